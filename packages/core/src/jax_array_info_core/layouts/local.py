"""What one process holds of an array whose other parts are on devices of other processes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .layout import ShardingLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPart:
    """What one process holds of an array that spans processes."""

    process: int
    """The process: its ``jax.process_index()``."""

    devices: tuple[int, ...]
    """Ids of its devices that hold a part of the array, ascending."""

    shard_count: int
    """How many different shards they hold."""

    element_count: int
    """How many elements these have, each counted once however many of the devices hold it."""

    index: tuple[tuple[int, int], ...] | None
    """Start and stop along each axis where the shards together are one box of the array, else None."""

    nbytes: int | None
    """Bytes of these elements; None where they cannot be known."""

    device_nbytes: int | None
    """Bytes that the devices hold in all: more than ``nbytes`` where several hold the same shard."""


def local_part(layout: ShardingLayout, process: int, bits: int | None) -> LocalPart:
    """Return what a process holds of an array that is not all its own.

    Args:
        layout: Where the array is.
        process: The process.
        bits: Bits that an element takes on a device; None where that cannot be known.
    """
    # A layout tells processes apart where it has several; where it has one, that is another one.
    own = dict(layout.processes).get(process, ())
    ids = layout.device_ids.reshape(-1)
    held = np.flatnonzero(np.isin(ids, own))
    # Of many devices a process has few: from here on, only these are looked at.
    numbers, copies = np.unique(held // layout.replicas, return_counts=True)
    shards = np.array(np.unravel_index(numbers, (1, *layout.shard_counts)))[1:].T
    starts = np.minimum(shards * layout.shard_shape, layout.shape)
    stops = np.minimum((shards + 1) * layout.shard_shape, layout.shape)
    element_counts = (stops - starts).prod(axis=1, dtype=np.int64)
    nbytes = -(-element_counts * (bits or 0) // 8)
    return LocalPart(
        process=process,
        devices=tuple(np.sort(ids[held]).tolist()),
        shard_count=len(shards),
        element_count=int(element_counts.sum()),
        index=_box(starts, stops, int(element_counts.sum())),
        nbytes=None if bits is None else int(nbytes.sum()),
        device_nbytes=None if bits is None else int(nbytes @ copies),
    )


def _box(
    starts: NDArray[np.int64], stops: NDArray[np.int64], element_count: int
) -> tuple[tuple[int, int], ...] | None:
    """Return the bounds of shards that together are one box, None for others and for none."""
    if not len(starts):
        return None
    lowest, highest = starts.min(axis=0).tolist(), stops.max(axis=0).tolist()
    bounds = tuple(zip(lowest, highest, strict=True))
    # Shards do not overlap: where they have as many elements as the box around them, they fill it.
    return bounds if math.prod(stop - start for start, stop in bounds) == element_count else None
