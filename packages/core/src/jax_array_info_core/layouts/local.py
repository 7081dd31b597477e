"""Part of a multi-process array on the devices of one process."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .layout import ShardingLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPart:
    """The part of a multi-process array on the devices of one process."""

    process: int
    """Index of the process: the result of ``jax.process_index()`` in that process."""

    devices: tuple[int, ...]
    """Ids of the process's devices that hold a shard, ascending."""

    shard_count: int
    """Number of different shards on these devices."""

    element_count: int
    """Number of elements in these shards, without replicas."""

    index: tuple[tuple[int, int], ...] | None
    """Start and stop along each axis if the shards form one contiguous block of the array, else None."""

    nbytes: int | None
    """Bytes of these shards, without replicas; None if the size of the dtype is unknown."""

    device_nbytes: int | None
    """Bytes in total on these devices, with replicas; None if the size of the dtype is unknown."""


def local_part(layout: ShardingLayout, process: int, bits: int | None) -> LocalPart:
    """Return the part of a multi-process array on the devices of one process.

    Args:
        layout: Layout of the array.
        process: Index of the process.
        bits: Bits per element on a device; None where they are not known.
    """
    # A layout without processes is on devices of a single process, and that is another one.
    own = dict(layout.processes).get(process, ())
    ids = layout.device_ids.reshape(-1)
    places = np.flatnonzero(np.isin(ids, own))
    # A process has few of the devices, so the rest works on these alone.
    numbers, replica_counts = np.unique(places // layout.device_ids.shape[-1], return_counts=True)
    shards = np.array(np.unravel_index(numbers, (1, *layout.shard_counts)))[1:].T
    starts = np.minimum(shards * layout.shard_shape, layout.shape)
    stops = np.minimum((shards + 1) * layout.shard_shape, layout.shape)
    element_counts = (stops - starts).prod(axis=1, dtype=np.int64)
    nbytes = -(-element_counts * (bits or 0) // 8)
    return LocalPart(
        process=process,
        devices=tuple(np.sort(ids[places]).tolist()),
        shard_count=len(shards),
        element_count=int(element_counts.sum()),
        index=_box(starts, stops, int(element_counts.sum())),
        nbytes=None if bits is None else int(nbytes.sum()),
        device_nbytes=None if bits is None else int(nbytes @ replica_counts),
    )


def _box(
    starts: NDArray[np.int64], stops: NDArray[np.int64], element_count: int
) -> tuple[tuple[int, int], ...] | None:
    """Return the bounds of the box that some shards fill; None if they do not fill one or there are none."""
    if not len(starts):
        return None
    lowest, highest = starts.min(axis=0).tolist(), stops.max(axis=0).tolist()
    bounds = tuple(zip(lowest, highest, strict=True))
    # Shards do not overlap, so they fill the box around them if they have as many elements.
    return bounds if math.prod(stop - start for start, stop in bounds) == element_count else None
