"""Memory over time: the recorder, its files, and the report on a record."""
