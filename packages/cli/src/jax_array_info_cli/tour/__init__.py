"""The tour of ``jai-cli demo``: scripts, shown and run cell by cell."""
