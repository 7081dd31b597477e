"""Cost of calls that compile nothing in a ``watch_compiles`` block, relative to the calls alone."""

from __future__ import annotations

import compare
import jax
import jax.numpy as jnp

from jax_array_info import watch_compiles

CALLS = 2000
STEP = jax.jit(lambda x: x * 2)
ARRAY = jnp.ones((8, 8))


def calls() -> None:
    for _ in range(CALLS):
        STEP(ARRAY)


def watched_calls() -> None:
    with watch_compiles(STEP):
        calls()


if __name__ == "__main__":
    compare.times(
        f"{CALLS} calls in a watch_compiles block, relative to the calls alone",
        watched_calls,
        calls,
        bound="at most 1.02 x",
        rounds=60,
    )
