"""Trees of arrays: reports, checks, differences, resharding and checkpoint files."""
