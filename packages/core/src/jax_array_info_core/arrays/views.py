"""Live arrays that are views of another: the shards that a program has taken from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import compat


def bases_of_views(arrays: Sequence[Any]) -> dict[int, Any]:
    """Return the base of each view among some live arrays, by the ``id`` of the view.

    Reading ``array.addressable_shards``, as checkpointing libraries do, adds an array for each device to
    ``jax.live_arrays()``, until ``array`` dies. They share its buffers and take no memory of their own.
    Only views whose base is among the arrays are returned: without it, they are what holds the memory.

    Not known, and counted as arrays of their own, are views from ``array.addressable_data`` and those that
    JAX before 0.12 makes to read the values of a sharded array.

    Args:
        arrays: Live arrays, such as ``jax.live_arrays()``. Nothing is added to them.
    """
    return {id(view): base for view, base in compat.shard_views(arrays)}
