"""``jai-cli demo``: scripts whose cells are shown and run."""
