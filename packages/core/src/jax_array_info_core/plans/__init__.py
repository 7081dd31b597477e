"""Layouts of arrays and meshes that need not exist."""
