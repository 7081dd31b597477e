"""Cost of reports and checks of trees, relative to flattening them with paths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import compare
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_array_info import assert_sharded, tree_report

SHAPES = {"q": (512, 64), "k": (64, 512), "v": (64, 64), "o": (512, 512)}


def training_state(layers: int, leaf: Callable[[str], Any]) -> dict[str, Any]:
    """Return parameters and two moments of each, 12 leaves per layer."""

    def parameters() -> dict[str, Any]:
        made = {f"layer_{number}": {name: leaf(name) for name in SHAPES} for number in range(layers)}
        return {"layers": made}

    return {"params": parameters(), "opt_state": ({"mu": parameters(), "nu": parameters()},)}


def abstract_leaf(name: str) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(SHAPES[name], jnp.float32)


def sharded_leaf() -> Callable[[str], jax.Array]:
    """Return a function that makes an array on 8 devices, sharded over both axes."""
    mesh = Mesh(np.reshape(jax.devices(), (4, 2)), ("fsdp", "tensor"))
    sharding = NamedSharding(mesh, PartitionSpec("fsdp", "tensor"))
    return lambda name: jax.device_put(np.zeros(SHAPES[name], np.float32), sharding)


def reports() -> None:
    tree = training_state(8_334, abstract_leaf)
    count = len(jax.tree.leaves(tree))
    compare.times(
        f"tree_report of {count:,} ShapeDtypeStructs, relative to flattening them with paths",
        lambda: tree_report(tree),
        lambda: jax.tree_util.tree_flatten_with_path(tree),
        bound="at most 20 x",
        rounds=9,
    )


def checks() -> None:
    tree = training_state(84, sharded_leaf())
    count = len(jax.tree.leaves(tree))
    compare.times(
        f"assert_sharded of {count:,} sharded arrays, relative to flattening them with paths",
        lambda: assert_sharded(tree),
        lambda: jax.tree_util.tree_flatten_with_path(tree),
        bound="at most 10 x",
    )


if __name__ == "__main__":
    reports()
    checks()
