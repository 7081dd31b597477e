"""Differences between trees, resharding traffic, and sharding snapshots in tests."""
