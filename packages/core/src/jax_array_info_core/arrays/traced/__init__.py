"""Shardings of traced values, from their types or from XLA."""
