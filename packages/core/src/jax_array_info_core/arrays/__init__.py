"""Reports on single values, and the labels of arrays."""
