"""Reports and labels of single values."""
