"""Growth of live arrays between two moments and from step to step."""
