"""Reports, the pages that say them, and the texts about codes of findings."""
