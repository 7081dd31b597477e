"""Reports that are lists → tables."""
