"""A training step in several modules: the table of shardings has one row that is wrong."""
