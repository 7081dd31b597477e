"""Traced values: their sharding, as the compiler chooses it."""
