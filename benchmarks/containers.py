"""Cost of the report of a container with 300,000 leaves, relative to flattening it with JAX."""

from __future__ import annotations

import compare
import jax
import jax.numpy as jnp
import numpy as np

from jax_array_info import array_report

LEAVES = 300_000
array, host = jnp.ones((4, 4)), np.ones(3)
CONTAINERS = {
    "a tuple of numbers": tuple(range(LEAVES)),
    "a tuple of jax arrays": (array,) * LEAVES,
    "a tuple of numpy arrays": (host,) * LEAVES,
    "a list of dicts": [{"w": array, "b": host, "n": None} for _ in range(LEAVES // 3)],
}

if __name__ == "__main__":
    for name, container in CONTAINERS.items():
        compare.times(
            f"report of {name}, {LEAVES} leaves",
            lambda container=container: array_report(container),
            lambda container=container: jax.tree_util.tree_flatten_with_path(container),
            bound="at most 5 x",
            rounds=5,
        )
