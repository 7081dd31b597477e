"""Geometry of shards, without JAX.

layouts: which device holds which slice, specs and meshes in text, XLA's notation, links between devices.
"""
