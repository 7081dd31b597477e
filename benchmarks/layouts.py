"""Cost of layouts and pictures, relative to JAX's slices per device and its drawing."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tracemalloc

import compare
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_array_info import ShardingLayout, sharding_layout, sharding_vis, spec_layout
from jax_array_info_core.compat.shardings import mesh_placement

SPEC = PartitionSpec("a", "b")


class Client:
    """The parts of a device's client that a mesh uses."""

    platform = "cpu"
    runtime_type = "fake"

    @staticmethod
    def process_index() -> int:
        return 0


class Device:
    """A simulated device for meshes."""

    platform, device_kind, process_index, client = "cpu", "fake", 0, Client

    def __init__(self, number: int) -> None:
        self.id = number


def fake_sharding(rows: int, columns: int) -> NamedSharding:
    devices = np.array([Device(number) for number in range(rows * columns)]).reshape(rows, columns)
    return NamedSharding(Mesh(devices, ("a", "b")), SPEC)


def facts(layout: ShardingLayout) -> object:
    return layout.shard_counts, layout.shard_shape, layout.replicas, layout.index_of(1)


def cold_map(shape: tuple[int, int], sharding: NamedSharding) -> object:
    """Return JAX's map without its caches, from a new sharding on an equal mesh."""
    for name in ("common_devices_indices_map", "_common_devices_indices_map"):
        with contextlib.suppress(AttributeError):
            getattr(jax._src.sharding, name).cache_clear()
    return NamedSharding(sharding.mesh, SPEC).devices_indices_map(shape)


def plans(rows: int, columns: int, *, bounds: tuple[str, str, str], rounds: int) -> None:
    shape = (rows * 16, columns * 16)
    sharding = fake_sharding(rows, columns)
    mesh = {"a": rows, "b": columns}
    devices = f"{rows * columns} devices"

    def theirs() -> object:
        return cold_map(shape, sharding)

    def with_new_mesh() -> object:
        mesh_placement.cache_clear()
        return facts(sharding_layout(shape, sharding))

    compare.times(
        f"spec_layout, {devices}, relative to devices_indices_map",
        lambda: facts(spec_layout(shape, mesh, ("a", "b"))),
        theirs,
        bound=bounds[0],
        rounds=rounds,
    )
    compare.times(
        f"sharding_layout, {devices}, a new mesh",
        with_new_mesh,
        theirs,
        bound=bounds[1],
        rounds=rounds,
    )
    compare.times(
        f"sharding_layout, {devices}, a known mesh",
        lambda: facts(sharding_layout(shape, sharding)),
        theirs,
        bound=bounds[2],
        rounds=rounds,
    )


def pictures() -> None:
    sharding = fake_sharding(32, 16)
    shape = (512, 512)
    layout = sharding_layout(shape, sharding)

    compare.times(
        "sharding_vis of 32 x 16 devices, relative to jax.debug.visualize_sharding",
        compare.silent(sharding_vis, layout),
        compare.silent(jax.debug.visualize_sharding, shape, sharding, use_color=False),
        bound="at most 0.125 x",
        rounds=15,
    )


def memory() -> None:
    tracemalloc.start()
    facts(spec_layout((2**20, 2**20), {"a": 1024, "b": 1024}, ("a", "b")))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"a layout of 1,048,576 devices: peak of {peak / 1e6:.1f} MB (bound: 50 MB)")


def command() -> None:
    show = ["-m", "jax_array_info_cli", "show", "4096,4096", "--mesh", "a=64,b=64", "--spec", "a,b"]
    libraries = "import numpy, click, rich.console, rich.table, rich.panel"
    compare.times(
        "jai-cli show of 4096 devices, relative to import numpy, click, rich",
        lambda: subprocess.run([sys.executable, *show], check=True, capture_output=True),
        lambda: subprocess.run([sys.executable, "-c", libraries], check=True),
        bound="at most 1.3 x",
        rounds=9,
    )


if __name__ == "__main__":
    plans(256, 256, bounds=("at most 0.01 x", "at most 0.1 x", "at most 0.01 x"), rounds=15)
    plans(4, 2, bounds=("at most 1 x",) * 3, rounds=2000)
    memory()
    pictures()
    command()
