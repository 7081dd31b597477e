"""Moves of trees to other shardings: places of leaves, targets, traffic and peaks."""
