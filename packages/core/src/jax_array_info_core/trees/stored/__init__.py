"""Trees in files: their leaves, as the formats describe them."""
