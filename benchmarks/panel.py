"""What ``sharding_info`` of an array on 8 devices costs beside one rich Panel of six lines."""

from __future__ import annotations

import contextlib
import io
import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from compare import compare
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from rich.console import Console
from rich.panel import Panel

from jax_array_info import array_report, sharding_info, to_text

mesh = Mesh(np.array(jax.devices()), ("gpus",))
array = jax.device_put(jnp.zeros((128, 128, 128)), NamedSharding(mesh, PartitionSpec(None, "gpus")))
six_lines = "\n".join(to_text(array_report(array)).splitlines()[1:-1])


def ours() -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        sharding_info(array, "some_array")


def rich_panel() -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        Console().print(Panel(six_lines, title="some_array", expand=False))


if __name__ == "__main__":
    compare("sharding_info, beside one rich Panel", ours, rich_panel, bound="at most 2.5 x", rounds=300)
