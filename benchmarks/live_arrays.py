"""What the report and table of 10,000 live arrays cost beside a bare pass over them."""

from __future__ import annotations

import contextlib
import io
import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
from compare import compare

from jax_array_info import live_array_report, print_array_stats

ARRAYS = 10_000
SHAPES = 97

arrays = [jnp.zeros((number % SHAPES + 1,)) for number in range(ARRAYS)]


def bare_pass() -> None:
    for array in jax.live_arrays():
        array.nbytes, array.sharding, array.dtype, array.shape  # noqa: B018


def with_origins() -> None:
    live_array_report(origins=True)


def table() -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        print_array_stats()


if __name__ == "__main__":
    what = f"{ARRAYS} arrays of {SHAPES} shapes"
    compare(f"report of {what}", live_array_report, bare_pass, bound="at most 3 x")
    compare("the same with origins, beside it without", with_origins, live_array_report, bound="at most 2 x")
    compare(f"print_array_stats of {what}", table, bare_pass, bound="at most 5 x")
