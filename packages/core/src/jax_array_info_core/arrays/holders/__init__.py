"""Reference paths from names to live objects, and the cycles that keep them alive."""
