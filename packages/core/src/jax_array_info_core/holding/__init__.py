"""Who holds an object: the names that lead to it, and the cycles that keep it alive."""
