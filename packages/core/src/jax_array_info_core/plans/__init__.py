"""Plans: layouts of arrays and meshes, without devices."""
