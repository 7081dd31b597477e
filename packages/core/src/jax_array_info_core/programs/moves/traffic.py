"""Bytes that each device receives when leaves move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...facts.reports.tree import TreeRow
from ...geometry.layouts.layout import Processes, ShardingLayout
from ...geometry.layouts.traffic import HeldShards, held_shards, missing_elements, missing_in_process
from .places import Place, is_uncommitted

_INT64_SUM = 2**62


class Moved(NamedTuple):
    """Bytes that devices receive of one leaf."""

    device_nbytes: int
    """Bytes that the device which receives the most must receive."""
    nbytes: int
    """Bytes that all devices together must receive."""
    process_nbytes: int | None
    """Bytes that come from other processes; None if the processes are not known."""
    each: NDArray[Any]
    """Bytes that each device of the target receives."""
    ids: NDArray[np.int64]
    """Ids of these devices, ascending."""


class ReceivedBytes:
    """Sums of the bytes that each device receives.

    Leaves of the same shape that move in the same way are computed once.
    """

    def __init__(self) -> None:
        self._held: dict[Hashable, HeldShards] = {}
        self._moved: dict[Hashable, Moved] = {}
        self._counts = Counter[Hashable]()

    def add(self, row: TreeRow, before: Place, after: Place) -> Moved:
        """Add the bytes of a leaf, and return them. The place after has a layout."""
        assert after.layout is not None
        have = None if before.layout is None else self.shards(before.layout)
        want = self.shards(after.layout)
        is_other_memory = before.memory_kind != after.memory_kind
        has_owners = before.processes is not None and after.processes is not None
        is_from_host = have is None or (is_uncommitted(row) and before.process_count == 1)
        key = (row.shape, row.dtype, id(have), id(want), is_other_memory, has_owners, is_from_host)
        self._counts[key] += 1
        if key not in self._moved:
            shape: tuple[int, ...] = row.shape  # type: ignore[assignment]  # it has a size
            bits = row.bits or 0
            received = _nbytes(missing_elements(shape, None if is_other_memory else have, want), bits)
            foreign: int | None = None
            if after.processes is not None and is_from_host:
                foreign = 0  # each process has the data
            elif after.processes is not None and before.processes is not None and have is not None:
                owners = _owners(before.processes, have), _owners(after.processes, want)
                foreign = sum(_nbytes(missing_in_process(shape, have, want, *owners), bits).tolist())
            each = received.tolist()
            self._moved[key] = Moved(max(each), sum(each), foreign, received, want.ids)
        return self._moved[key]

    def totals(self) -> tuple[int, int]:
        """Return the number of devices, and the bytes on the one that receives the most."""
        ids = np.unique(
            np.concatenate([np.array([], np.int64), *(moved.ids for moved in self._moved.values())])
        )
        most = sum(moved.device_nbytes * self._counts[key] for key, moved in self._moved.items())
        totals = np.zeros(len(ids), np.int64 if most < _INT64_SUM else object)
        for key, moved in self._moved.items():
            totals[np.searchsorted(ids, moved.ids)] += moved.each.astype(totals.dtype) * self._counts[key]
        return len(ids), int(totals.max(initial=0))

    def shards(self, layout: ShardingLayout) -> HeldShards:
        """Return the shard on each device, the same object for layouts with the same device ids."""
        key = (layout.device_ids.shape, layout.device_ids.tobytes())
        if key not in self._held:
            self._held[key] = held_shards(layout)
        return self._held[key]


def _owners(processes: Processes, shards: HeldShards) -> NDArray[np.int64]:
    """Return the process of each device."""
    owners = {device: owner for owner, devices in processes for device in devices}
    return np.array([owners[device] for device in shards.ids.tolist()])


def _nbytes(elements: NDArray[Any], bits: int) -> NDArray[Any]:
    return -(-elements * bits // 8)
