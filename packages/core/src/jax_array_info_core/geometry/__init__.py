"""Layouts of shards, without JAX."""
