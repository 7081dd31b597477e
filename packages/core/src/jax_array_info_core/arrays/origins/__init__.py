"""Allocation sites of arrays, and definitions of functions."""
