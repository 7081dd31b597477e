"""What a step of a tracker costs beside a report of the same 10,000 live arrays with origins."""

from __future__ import annotations

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
from compare import compare

from jax_array_info import live_array_report, track_arrays

ARRAYS = 10_000
SHAPES = 97

arrays = [jnp.zeros((number % SHAPES + 1,)) for number in range(ARRAYS)]


def with_origins() -> None:
    live_array_report(origins=True)


def entering() -> None:
    with track_arrays():
        pass


if __name__ == "__main__":
    what = f"{ARRAYS} arrays of {SHAPES} shapes"
    compare(f"entering a tracker: {what}, each new to it", entering, with_origins, bound="at most 2 x")
    with track_arrays() as growth:
        compare(f"a step with {what}", growth.step, with_origins, bound="at most 0.5 x")
        compare("the same beside a bare jax.live_arrays()", growth.step, jax.live_arrays, bound="at most 6 x")
        compare("a report", growth.report, with_origins, bound="at most 1.5 x")
