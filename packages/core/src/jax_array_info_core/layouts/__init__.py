"""Layouts of shards, computed with numpy and without JAX."""
