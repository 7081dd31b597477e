"""Views: live arrays that share the buffers of another live array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import compat


def bases_of_views(arrays: Sequence[Any]) -> dict[int, Any]:
    """Return the base of each view among some live arrays, by the ``id`` of the view.

    Reading ``array.addressable_shards``, as checkpointing libraries do, adds one array per device to
    ``jax.live_arrays()`` until ``array`` is freed. These views share its buffers and take no memory. A view
    is returned only if its base is among ``arrays``: without the base, the view holds the memory.

    Views from ``array.addressable_data``, and those that JAX before 0.12 creates to read the values of a
    sharded array, are not recognized. They count as separate arrays.

    Args:
        arrays: Live arrays, such as ``jax.live_arrays()``. None are created.
    """
    return {id(view): base for view, base in compat.shard_views(arrays)}
