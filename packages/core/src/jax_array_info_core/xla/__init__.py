"""Readers of what XLA writes, without JAX.

hlo: compiled programs, their loops, schedule and buffers, and the lines of logs.
"""
