"""Live arrays: their number and their bytes."""
