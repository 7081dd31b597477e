"""Bytes that each device receives when leaves move."""

from __future__ import annotations

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


class ReceivedBytes:
    """Sums of the bytes that each device receives.

    Leaves of the same shape that move in the same way are computed once.
    """

    def __init__(self) -> None:
        self._held: dict[Hashable, HeldShards] = {}
        self._moved: dict[Hashable, Moved] = {}
        self._owners: dict[int, tuple[Processes, NDArray[np.int64], NDArray[np.int64]]] = {}
        self._sums: dict[int, tuple[HeldShards, NDArray[Any]]] = {}
        self._bound = 0

    def add(self, row: TreeRow, before: Place, after: Place) -> Moved:
        """Add the bytes of a leaf, and return them. The place after has a layout."""
        assert after.layout is not None
        have = None if before.layout is None else self.shards(before.layout)
        want = self.shards(after.layout)
        is_other_memory = before.memory_kind != after.memory_kind
        has_owners = before.processes is not None and after.processes is not None
        is_from_host = have is None or (is_uncommitted(row) and before.process_count == 1)
        key = (row.shape, row.dtype, id(have), id(want), is_other_memory, has_owners, is_from_host)
        moved = self._moved.get(key)
        if moved is None:
            shape: tuple[int, ...] = row.shape  # type: ignore[assignment]  # it has a size
            bits = row.bits or 0
            received = _nbytes(missing_elements(shape, None if is_other_memory else have, want), bits)
            foreign: int | None = None
            if after.processes is not None and is_from_host:
                foreign = 0  # each process has the data
            elif after.processes is not None and before.processes is not None and have is not None:
                owners = self._owners_of(before.processes, have), self._owners_of(after.processes, want)
                foreign = _sum(_nbytes(missing_in_process(shape, have, want, *owners), bits))
            moved = self._moved[key] = Moved(int(max(received)), _sum(received), foreign, received)
        self._bound += moved.device_nbytes
        sums = self._sums.get(id(want), (want, np.zeros(len(want.ids), np.int64)))[1]
        if self._bound >= _INT64_SUM:
            sums = sums.astype(object)
        self._sums[id(want)] = want, sums + moved.each
        return moved

    def totals(self) -> tuple[int, int]:
        """Return the number of devices, and the bytes on the one that receives the most."""
        if not self._sums:
            return 0, 0
        ids = np.unique(np.concatenate([want.ids for want, _ in self._sums.values()]))
        totals = np.zeros(len(ids), object if self._bound >= _INT64_SUM else np.int64)
        for want, sums in self._sums.values():
            totals[np.searchsorted(ids, want.ids)] += sums
        return len(ids), int(max(totals))

    def shards(self, layout: ShardingLayout) -> HeldShards:
        """Return the shard on each device, the same object for layouts with the same device ids."""
        key = (layout.device_ids.shape, layout.device_ids.tobytes())
        if key not in self._held:
            self._held[key] = held_shards(layout)
        return self._held[key]

    def _owners_of(self, processes: Processes, shards: HeldShards) -> NDArray[np.int64]:
        """Return the process of each device."""
        if id(processes) not in self._owners:
            ids = np.concatenate([np.array(devices, np.int64) for _, devices in processes])
            owners = np.repeat([owner for owner, _ in processes], [len(devices) for _, devices in processes])
            order = np.argsort(ids)
            self._owners[id(processes)] = processes, ids[order], owners[order]
        _, ids, owners = self._owners[id(processes)]
        return owners[np.searchsorted(ids, shards.ids)]


def _nbytes(elements: NDArray[Any], bits: int) -> NDArray[Any]:
    return -(-elements * bits // 8)


def _sum(received: NDArray[Any]) -> int:
    is_small = int(max(received)) * len(received) < _INT64_SUM
    return int(received.sum()) if is_small else sum(received.tolist())
