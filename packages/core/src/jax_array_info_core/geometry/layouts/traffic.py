"""Elements that each device must receive when an array is resharded, in closed form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .layout import ShardingLayout

_Ints = NDArray[Any]
"""Integers: int64, or Python integers as objects where the array has too many elements for int64."""

_MOST_PAIRS = 2**20
"""Maximum number of pairs of shards that are compared at once."""
_INT64_ELEMENTS = 2**52
"""Number of elements up to which their bits fit int64."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldShards:
    """The shard that each device of a layout holds. It does not depend on the lengths of the axes."""

    ids: NDArray[np.int64]
    """Device ids, ascending."""

    indices: tuple[NDArray[np.int64], ...]
    """Index of the shard on each of these devices, along each array axis."""

    counts: tuple[int, ...]
    """Number of shards along each array axis."""

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Number of the shard on each device, in row-major order."""
        if not self.counts:
            return np.zeros(len(self.ids), np.int64)
        return np.ravel_multi_index(self.indices, self.counts).astype(np.int64)

    def of(self, places: NDArray[Any]) -> HeldShards:
        """Return the shards on some of the devices, by position in ``ids``; positions can repeat."""
        return HeldShards(self.ids[places], tuple(index[places] for index in self.indices), self.counts)


def held_shards(layout: ShardingLayout) -> HeldShards:
    """Return the shard that each device of a layout holds."""
    flat = layout.device_ids.reshape(-1)
    order = np.argsort(flat, kind="stable")
    indices = np.unravel_index(order // layout.device_ids.shape[-1], (1, *layout.shard_counts))[1:]
    return HeldShards(flat[order], tuple(indices), layout.shard_counts)


def missing_elements(shape: Sequence[int], source: HeldShards | None, target: HeldShards) -> _Ints:
    """Return the number of elements that each device of the target must receive.

    A device receives the slices of its target shard that it does not already hold.

    Args:
        shape: Global shape of the array.
        source: The shards that the devices hold; None if they hold none.
        target: The shards that they are to hold.
    """
    missing = _overlaps(shape, target, target)
    if source is not None:
        _, held, wanted = np.intersect1d(source.ids, target.ids, assume_unique=True, return_indices=True)
        missing[wanted] -= _overlaps(shape, source.of(held), target.of(wanted))
    return missing


def missing_in_process(
    shape: Sequence[int],
    source: HeldShards,
    target: HeldShards,
    source_owners: NDArray[Any],
    target_owners: NDArray[Any],
) -> _Ints:
    """Return the number of elements that each device must receive from other processes.

    These are the elements of its target shard that no device of its process holds.

    Args:
        shape: Global shape of the array.
        source: The shards that the devices hold.
        target: The shards that they are to hold.
        source_owners: Process of each device of the source.
        target_owners: Process of each device of the target.
    """
    # Replicas within a process count once, on both sides.
    held_by, held, _ = _distinct(source_owners, source)
    wanted_by, wanted, place = _distinct(target_owners, target)
    missing = _overlaps(shape, wanted, wanted)
    first = np.searchsorted(held_by, wanted_by, "left")
    counts = np.searchsorted(held_by, wanted_by, "right") - first
    ends = np.cumsum(counts)
    start = 0
    while start < len(counts):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _MOST_PAIRS, "right")))
        some = counts[start:stop]
        rows = np.repeat(np.arange(start, stop), some)
        if len(rows):
            # The pairs of a row are consecutive: its shard with each shard of its process.
            offsets = np.cumsum(some) - some
            columns = np.arange(len(rows)) - np.repeat(offsets - first[start:stop], some)
            shared = _overlaps(shape, held.of(columns), wanted.of(rows))
            has_pairs = some > 0
            sums = np.add.reduceat(shared, offsets[has_pairs])
            missing[np.arange(start, stop)[has_pairs]] -= sums
        start = stop
    return missing[place]


def _distinct(owners: NDArray[Any], shards: HeldShards) -> tuple[NDArray[Any], HeldShards, NDArray[np.int64]]:
    """Return the distinct shards of each process, their processes, and the place of each device in these."""
    _, ranks = np.unique(owners, return_inverse=True)
    keys = ranks * math.prod(shards.counts) + shards.numbers
    _, first, places = np.unique(keys, return_index=True, return_inverse=True)
    return owners[first], shards.of(first), places


def _overlaps(shape: Sequence[int], held: HeldShards, other: HeldShards) -> _Ints:
    """Return the number of elements that two shards share, for each pair of shards at the same place."""
    dtype = np.int64 if math.prod(max(dim, 1) for dim in shape) < _INT64_ELEMENTS else object
    total = np.ones(len(other.ids), dtype)
    for axis, dim in enumerate(shape):
        if held.counts[axis] == other.counts[axis] == 1:
            total *= dim
            continue
        starts, stops = _bounds(dim, held, axis, dtype)
        if held is not other:
            other_starts, other_stops = _bounds(dim, other, axis, dtype)
            starts, stops = np.maximum(starts, other_starts), np.minimum(stops, other_stops)
        total *= np.maximum(stops - starts, 0)
    return total


def _bounds(dim: int, shards: HeldShards, axis: int, dtype: Any) -> tuple[_Ints, _Ints]:
    """Return start and stop of each shard along an axis."""
    chunk = -(-dim // shards.counts[axis])
    starts = shards.indices[axis].astype(dtype) * chunk
    return np.minimum(starts, dim), np.minimum(starts + chunk, dim)
