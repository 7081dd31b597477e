"""Plans: layouts of arrays and meshes that need not exist."""
