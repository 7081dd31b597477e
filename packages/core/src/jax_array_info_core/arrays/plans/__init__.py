"""Layouts and reports of planned arrays and meshes, without devices."""
