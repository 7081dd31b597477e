"""Memory profiles of backends, decoded."""
