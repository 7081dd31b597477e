"""Cost of ``sharding_info`` of an array on 8 devices, relative to a rich Panel of six lines."""

from __future__ import annotations

import compare
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from rich.console import Console
from rich.panel import Panel

from jax_array_info import array_report, sharding_info, to_text

mesh = Mesh(np.array(jax.devices()), ("gpus",))
array = jax.device_put(jnp.zeros((128, 128, 128)), NamedSharding(mesh, PartitionSpec(None, "gpus")))
six_lines = "\n".join(to_text(array_report(array)).splitlines()[1:-1])


def rich_panel() -> None:
    Console().print(Panel(six_lines, title="some_array", expand=False))


if __name__ == "__main__":
    ours = compare.silent(sharding_info, array, "some_array")
    compare.times(
        "sharding_info, relative to a rich Panel",
        ours,
        compare.silent(rich_panel),
        bound="at most 2 x",
        rounds=300,
    )
