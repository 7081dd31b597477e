"""Cost of reports and checks of trees, relative to flattening them with paths."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import compare
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_array_info import assert_tree, tree_report

sys.path.append(str(Path(__file__).parents[1]))
from tests.maxtext import DUMPS, write_dump

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
    numbers = itertools.count()

    def new_tree() -> dict[str, Any]:
        """Return the same leaves in a structure that was never reported before."""
        return {**tree, f"step_{next(numbers)}": abstract_leaf("v")}

    for name, make in (("", new_tree), (", again", lambda: tree)):
        compare.times(
            f"tree_report of {count:,} ShapeDtypeStructs{name}, relative to flattening them with paths",
            lambda make=make: tree_report(make()),
            lambda make=make: jax.tree_util.tree_flatten_with_path(make()),
            bound="at most 20 x",
            rounds=9,
        )


def checks() -> None:
    tree = training_state(84, sharded_leaf())
    count = len(jax.tree.leaves(tree))
    compare.times(
        f"assert_tree of {count:,} sharded arrays, relative to flattening them with paths",
        lambda: assert_tree(tree),
        lambda: jax.tree_util.tree_flatten_with_path(tree),
        bound="at most 10 x",
    )


def commands() -> None:
    with tempfile.TemporaryDirectory() as folder:
        dump = str(write_dump(folder, DUMPS[0]))
        compare.times(
            "jai-cli tree of a sharding dump, relative to import jax",
            lambda: subprocess.run(
                [sys.executable, "-m", "jax_array_info_cli", "tree", dump], check=True, capture_output=True
            ),
            lambda: subprocess.run([sys.executable, "-c", "import jax"], check=True),
            bound="at most 0.5 x",
            rounds=7,
        )


if __name__ == "__main__":
    reports()
    checks()
    commands()
