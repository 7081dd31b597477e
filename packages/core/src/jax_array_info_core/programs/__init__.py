"""Compiled programs and their caches."""
