"""Cost of ``sharding_info`` of an array on 8 devices, and of its first call, relative to a rich Panel."""

from __future__ import annotations

import subprocess
import sys

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


FIRST = """
import sys, time
import jax.numpy as jnp
array = jnp.zeros((128, 128))
start = time.perf_counter()
{}
print(time.perf_counter() - start, file=sys.stderr)
"""


def first(code: str) -> float:
    """Return the seconds of code in a new process that has an array, with the imports of the code."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST.format(code)], check=True, capture_output=True, text=True
    )
    return float(done.stderr)


if __name__ == "__main__":
    ours = compare.silent(sharding_info, array, "some_array")
    compare.times(
        "sharding_info, relative to a rich Panel",
        ours,
        compare.silent(rich_panel),
        bound="at most 2 x",
        rounds=300,
    )
    info = "from jax_array_info import sharding_info; sharding_info(array, 'some_array')"
    panel = "from rich.console import Console; from rich.panel import Panel; Console().print(Panel('1\\n2'))"
    rounds = [(first(info), first(panel)) for _ in range(9)]
    compare.show(
        "the first sharding_info with its imports, relative to a first rich Panel",
        *zip(*rounds, strict=True),
        bound="at most 4 x",
    )
