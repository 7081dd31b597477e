"""Errors that JAX raised on shardings, meshes and devices, explained."""
