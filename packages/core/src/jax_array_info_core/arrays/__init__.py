"""One value: its report, its sharding, its leaves, its label."""
