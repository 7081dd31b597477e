"""Reports on trees of arrays: as they are, as planned, and in files."""
