"""Readers of the text of XLA."""
