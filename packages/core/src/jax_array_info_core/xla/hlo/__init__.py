"""Readers of XLA's text: programs, warnings and tables. They import no JAX."""
