"""Pure geometry of shards: numpy only, no jax."""
