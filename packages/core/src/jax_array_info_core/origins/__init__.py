"""Lines of source that made arrays and functions."""
