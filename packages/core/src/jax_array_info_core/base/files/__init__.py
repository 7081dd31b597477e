"""Files of this package: checked descriptors, and files that are complete or absent."""
