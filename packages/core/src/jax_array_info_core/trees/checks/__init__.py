"""Checks of trees: findings about their shardings, and the moments of optimizers."""
