"""The harness of the benchmarks: CPU devices, and the times of two things as a ratio.

Imported before jax, which reads the environment when it is imported.
"""

from __future__ import annotations

import contextlib
import io
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"


def times(
    what: str,
    ours: Callable[[], Any],
    theirs: Callable[[], Any],
    *,
    bound: str,
    rounds: int = 50,
) -> None:
    """Print the median times of both and their ratio, and the bound that it should keep.

    They take turns, so that a machine that slows down slows both, and who goes first, as that has a price.
    """
    taken: dict[Callable[[], Any], list[float]] = {ours: [], theirs: []}
    for function in taken:
        function()
    for number in range(rounds):
        for function in (ours, theirs) if number % 2 else (theirs, ours):
            start = time.perf_counter()
            function()
            taken[function].append(time.perf_counter() - start)
    ours_median, theirs_median = map(statistics.median, taken.values())
    print(
        f"{what}: {ours_median * 1e3:.3f} ms / {theirs_median * 1e3:.3f} ms"
        f" = {ours_median / theirs_median:.2f} x (bound: {bound})",
        flush=True,
    )


def silent(function: Callable[..., Any], *args: Any, **options: Any) -> Callable[[], None]:
    """Return a call of a function that prints, without what it prints."""

    def call() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            function(*args, **options)

    return call


def many_arrays() -> list[Any]:
    """Return 10,000 arrays of 97 shapes."""
    import jax.numpy as jnp

    return [jnp.zeros((number % 97 + 1,)) for number in range(10_000)]
