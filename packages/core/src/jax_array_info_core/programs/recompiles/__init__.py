"""Recompilations: the calls that JAX compiled in a block of code, and the reason of each."""
