"""Changes of shardings that are tried: which to try, in which order, and which of them help."""
