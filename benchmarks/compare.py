"""Benchmark harness: simulated CPU devices, and the ratio of two running times.

Import this before jax, which reads the environment on import.
"""

from __future__ import annotations

import contextlib
import io
import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # users have compiled files


def times(
    name: str,
    ours: Callable[[], Any],
    theirs: Callable[[], Any],
    *,
    bound: str,
    rounds: int = 50,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Print the median times of two functions, their ratio and its bound.

    The functions run in turn, so that a slower machine affects both. The first one changes each round,
    because going first has a cost. With ``clock=time.process_time``, the time is that of the CPUs.
    """
    taken: dict[Callable[[], Any], list[float]] = {ours: [], theirs: []}
    for function in taken:
        function()
    for number in range(rounds):
        for function in (ours, theirs) if number % 2 else (theirs, ours):
            start = clock()
            function()
            taken[function].append(clock() - start)
    show(name, *taken.values(), bound=bound)


def show(name: str, ours: Sequence[float], theirs: Sequence[float], *, bound: str) -> None:
    """Print the medians of two lists of seconds, their ratio and its bound."""
    ours_median, theirs_median = map(statistics.median, (ours, theirs))
    print(
        f"{name}: {ours_median * 1e3:.3f} ms / {theirs_median * 1e3:.3f} ms"
        f" = {ours_median / theirs_median:.2f} x (bound: {bound})",
        flush=True,
    )


def silent(function: Callable[..., Any], *args: Any, **options: Any) -> Callable[[], None]:
    """Return a function that calls another one and discards its output."""

    def call() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            function(*args, **options)

    return call


def many_arrays() -> list[Any]:
    """Return 10,000 arrays of 97 shapes."""
    import jax.numpy as jnp

    return [jnp.zeros((number % 97 + 1,)) for number in range(10_000)]
