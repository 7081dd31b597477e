"""What layouts and pictures cost beside JAX's own: slices per device, and its drawing."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tracemalloc

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
from compare import compare
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_array_info import ShardingLayout, sharding_layout, sharding_vis, spec_layout
from jax_array_info_core.compat.meshes import mesh_placement

SPEC = PartitionSpec("a", "b")


class Client:
    """What a mesh asks of the client of a device."""

    platform = "cpu"
    runtime_type = "fake"

    @staticmethod
    def process_index() -> int:
        return 0


class Device:
    """A device that only a mesh sees."""

    platform, device_kind, process_index, client = "cpu", "fake", 0, Client

    def __init__(self, number: int) -> None:
        self.id = number


def fake_sharding(rows: int, columns: int) -> NamedSharding:
    devices = np.array([Device(number) for number in range(rows * columns)]).reshape(rows, columns)
    return NamedSharding(Mesh(devices, ("a", "b")), SPEC)


def facts(layout: ShardingLayout) -> object:
    return layout.shard_counts, layout.shard_shape, layout.replicas, layout.index_of(1)


def cold_map(shape: tuple[int, int], sharding: NamedSharding) -> object:
    """Return JAX's map, made anew: a fresh sharding of an equal mesh has none remembered."""
    for name in ("common_devices_indices_map", "_common_devices_indices_map"):
        with contextlib.suppress(AttributeError):
            getattr(jax._src.sharding, name).cache_clear()
    return NamedSharding(sharding.mesh, SPEC).devices_indices_map(shape)


def plans(rows: int, columns: int, *, bounds: tuple[str, str, str], rounds: int) -> None:
    shape = (rows * 16, columns * 16)
    sharding = fake_sharding(rows, columns)
    mesh = {"a": rows, "b": columns}
    what = f"{rows * columns} devices"

    def theirs() -> object:
        return cold_map(shape, sharding)

    def seen_for_the_first_time() -> object:
        mesh_placement.cache_clear()
        return facts(sharding_layout(shape, sharding))

    compare(
        f"spec_layout, {what}, beside devices_indices_map",
        lambda: facts(spec_layout(shape, mesh, ("a", "b"))),
        theirs,
        bound=bounds[0],
        rounds=rounds,
    )
    compare(
        f"sharding_layout, {what}, a new mesh",
        seen_for_the_first_time,
        theirs,
        bound=bounds[1],
        rounds=rounds,
    )
    compare(
        f"sharding_layout, {what}, a known mesh",
        lambda: facts(sharding_layout(shape, sharding)),
        theirs,
        bound=bounds[2],
        rounds=rounds,
    )


def pictures() -> None:
    sharding = fake_sharding(32, 16)
    shape = (512, 512)
    layout = sharding_layout(shape, sharding)

    def drawn(function: object) -> object:
        def call() -> None:
            with contextlib.redirect_stdout(io.StringIO()):
                function()  # type: ignore[operator]

        return call

    compare(
        "sharding_vis of 32 x 16 devices, beside jax.debug.visualize_sharding",
        drawn(lambda: sharding_vis(layout)),  # type: ignore[arg-type]
        drawn(lambda: jax.debug.visualize_sharding(shape, sharding, use_color=False)),  # type: ignore[arg-type]
        bound="at most 0.125 x",
        rounds=15,
    )


def memory() -> None:
    tracemalloc.start()
    facts(spec_layout((2**20, 2**20), {"a": 1024, "b": 1024}, ("a", "b")))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"a layout of 1,048,576 devices: at most {peak / 1e6:.1f} MB at once (wished for: under 50 MB)")


def command() -> None:
    show = ["-m", "jax_array_info_cli", "show", "4096,4096", "--mesh", "a=64,b=64", "--spec", "a,b"]
    compare(
        "jai-cli show of 4096 devices, beside import jax",
        lambda: subprocess.run([sys.executable, *show], check=True, capture_output=True),
        lambda: subprocess.run([sys.executable, "-c", "import jax"], check=True),
        bound="at most 0.35 x",
        rounds=9,
    )


if __name__ == "__main__":
    plans(256, 256, bounds=("at most 0.01 x", "at most 0.1 x", "at most 0.01 x"), rounds=15)
    plans(4, 2, bounds=("at most 1 x",) * 3, rounds=2000)
    memory()
    pictures()
    command()
