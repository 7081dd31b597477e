"""Cost of finding the referrers of 10,000 arrays, relative to one pass over a heap of 1,000,000 objects.

The pass is the cheapest search with the garbage collector that can find a referrer: it gets the referents of
all objects in chunks and checks whether an array is among them.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

import compare
import jax
import jax.numpy as jnp

from jax_array_info_core.arrays.holders.search import find_holders

ARRAYS = 10_000
LAYERS = 1_000
OTHERS = 650_000  # a million together with the objects of JAX and the arrays
CHUNK = 512


@dataclass
class Layer:
    """Arrays of a layer, as in a typical model."""

    params: dict[str, Any]
    moments: list[Any]
    cache: tuple[Any, ...]


def make_layer(number: int) -> dict[str, Layer]:
    """Return ten arrays in a dict, a dataclass, dicts, lists and tuples."""
    w, b, *moments = (jnp.full((2,), number) for _ in range(8))
    return {"dense": Layer({"w": w, "b": {"value": b}}, moments, (jnp.ones(2), [jnp.zeros(2)]))}


def fill(heap: list[Any], count: int) -> None:
    """Fill the heap with objects that the garbage collector tracks, in small trees."""
    while len(heap) * 4 < count:
        heap.append({"row": [len(heap), {"cells": (len(heap), [])}]})


others: list[Any] = []
layers: list[dict[str, Layer]] = []
for number in range(LAYERS):
    layers.append(make_layer(number))
    fill(others, OTHERS * (number + 1) // LAYERS)


def one_pass() -> None:
    wanted = set(map(id, jax.live_arrays()))
    objects = gc.get_objects()
    for start in range(0, len(objects), CHUNK):
        wanted.isdisjoint(map(id, gc.get_referents(*objects[start : start + CHUNK])))


def holders() -> None:
    find_holders(jax.live_arrays(), max_seconds=None)


if __name__ == "__main__":
    arrays = jax.live_arrays()
    report = find_holders(arrays, max_seconds=None)
    named = sum("layers" in path for path in report.paths.values())
    name = f"{named} of {len(arrays)} arrays in {len(gc.get_objects())} objects have a named referrer"
    del arrays
    compare.times(f"{name}, relative to one pass", holders, one_pass, bound="at most 10 x", rounds=5)
