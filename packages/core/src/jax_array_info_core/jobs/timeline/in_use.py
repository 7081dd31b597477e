"""Readings of a recorder: the bytes in use on the devices of this process, and groups of its live arrays."""

from __future__ import annotations

import heapq
import os
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

from ...arrays.live.census import Census, Kind, is_in_host_memory
from ...base.config import shown_callers
from ...compat.arrays import shard_views
from ...compat.processes import has_backends
from ...compat.shardings import default_memory_kind
from ...facts.reports.record import RecordGroup
from ..devices import device_memory

LONGEST = 0.005
"""Seconds after which the live arrays are left uncounted."""
MOST_ARRAYS = 5000
"""Number of live arrays past which counting them takes longer."""
_SHARE = 200
"""The next attempt is so many times later as one took that was in vain."""
_PIECE = 50
"""Number of arrays that are counted between two looks at the clock."""

MOST_BYTES = 50
"""Number of groups with the most bytes in a sample."""
MOST_RISEN = 14
"""Number of further groups in a sample, those that increased the most often."""


class InUse(NamedTuple):
    """Bytes on each device; empty where they are unknown."""

    in_use: tuple[int, ...] = ()
    peak: tuple[int, ...] = ()
    """Peak since the process began, as the allocator reports it."""

    @staticmethod
    def of(memory: Sequence[Mapping[str, int | None]], array_nbytes: Sequence[int]) -> InUse:
        """Return the bytes as the allocator of each device has them, else those of its live arrays."""
        found = [one["bytes_in_use"] for one in memory]
        in_use = [arrays if use is None else use for use, arrays in zip(found, array_nbytes, strict=True)]
        peaks = [peak for one in memory if (peak := one["peak_bytes_in_use"]) is not None]
        return InUse(tuple(in_use), tuple(peaks) if len(peaks) == len(memory) else ())


def process_nbytes() -> int | None:
    """Return the bytes of this process in the memory of its host; None if they are not known."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


class LocalDevices:
    """The devices of this process by their places."""

    def __init__(self, devices: Sequence[Any]) -> None:
        """Number the devices, which are of one platform."""
        self._places = {device.id: place for place, device in enumerate(devices)}
        self._memory_kinds = {device.id: default_memory_kind(device) for device in devices}

    def places(self, kind: Kind) -> tuple[int, ...]:
        """Return the places of the devices whose memory has a shard of such an array."""
        if is_in_host_memory(kind, self._memory_kinds):
            return ()
        return tuple(self._places[device] for device in kind.local_devices if device in self._places)


class BytesInUse:
    """Reader of the bytes in use, which are those of a sample of the recorder at the same moment.

    They come from the allocator where it has statistics, else from one pass over the live arrays.
    """

    def __init__(
        self, devices: Sequence[Any], memory_of: Callable[[Any], Mapping[str, int | None]] = device_memory
    ) -> None:
        """Read nothing yet.

        Args:
            devices: Devices of this process.
            memory_of: Returns bytes in use, peak and limit of a device.
        """
        self._devices, self._memory_of = devices, memory_of
        self._local = LocalDevices(devices)
        self._census = Census(callers=None)
        self._idle_until = 0.0

    def read(self) -> InUse:
        """Return the bytes in use now. Live arrays are counted for at most 5 ms."""
        if not has_backends():  # the program has cleared them: looking must not start new ones
            return InUse()
        memory = [self._memory_of(device) for device in self._devices]
        is_needed = any(found["bytes_in_use"] is None for found in memory)
        arrays = self._array_nbytes() if is_needed else [0] * len(memory)
        return InUse() if arrays is None else InUse.of(memory, arrays)

    def _array_nbytes(self) -> list[int] | None:
        """Return the bytes of the live arrays on each device; None if that takes too long."""
        start = time.perf_counter()
        if start < self._idle_until:
            return None
        found = self._count(start)
        if found is None:
            now = time.perf_counter()
            self._idle_until = now + _SHARE * (now - start)
        return found

    def _count(self, start: float) -> list[int] | None:
        import jax

        arrays = jax.live_arrays()
        counts: Counter[Kind] = Counter()
        rest = iter(arrays)
        while piece := [*islice(rest, _PIECE)]:
            if time.perf_counter() - start > LONGEST:
                return None
            counts.update(self._census.kinds(piece))
        counts.subtract(self._census.kinds([view for view, _ in shard_views(arrays)]))
        total = [0] * len(self._devices)
        for kind, count in counts.items():
            for place in self._local.places(kind):
                total[place] += count * kind.template.shard_nbytes
        return total


@dataclass(slots=True, eq=False, weakref_slot=True)
class LiveGroup:
    """Live arrays that agree in allocation site, shape, dtype and sharding."""

    facts: RecordGroup
    """Its line of a record, with 0 for its number."""

    count: int = 0
    """Number of live arrays."""

    last_count: int = 0
    """Number of live arrays in the sample before."""

    rises: int = 0
    """Number of samples in which the arrays became more, less those in which they became fewer: a model is
    allocated once, a leak rises again and again."""

    @property
    def nbytes(self) -> int:
        """Bytes on all devices of this process."""
        return self.count * self.facts.shard_nbytes * len(self.facts.devices)


class LiveGroups:
    """Groups of the live arrays of this process. Views take no memory and are left out."""

    def __init__(self, devices: Sequence[Any]) -> None:
        """Begin without arrays.

        Args:
            devices: Devices of this process, of one platform.
        """
        self._local = LocalDevices(devices)
        self._census = Census(callers=shown_callers())
        self._groups: weakref.WeakValueDictionary[RecordGroup, LiveGroup] = weakref.WeakValueDictionary()
        self._is_first = True
        self.live: set[LiveGroup] = set()
        """Groups with live arrays."""
        self.device_nbytes = [0] * len(devices)
        """Bytes of the live arrays on each device. A buffer that several arrays share counts for each."""

    @property
    def count(self) -> int:
        """Number of live arrays."""
        return self._census.counts.total()

    @property
    def own_nbytes(self) -> int:
        """Bytes of the table of live arrays."""
        return self._census.alive.nbytes

    def update(self, live_arrays: Callable[[], Iterable[Any]], pause: Callable[[], None]) -> int:
        """Count the arrays that are alive now.

        Args:
            live_arrays: Returns all live arrays.
            pause: Lets other threads run. No array is kept alive meanwhile.

        Returns:
            Number of new arrays that were freed in a pause, before they were read: they are not counted.
        """
        new, gone, lost = self._census.update(live_arrays, pause)
        for kinds, sign in ((new, 1), (gone, -1)):
            for kind, number in kinds.items():
                self._add(self._group(kind), sign * number)
        for group in self.live:
            if not self._is_first:
                group.rises += (group.count > group.last_count) - (group.count < group.last_count)
            group.last_count = group.count
        self._is_first = self._is_first and not self.live
        return lost

    def largest(self, pause: Callable[[], None]) -> list[LiveGroup]:
        """Return the groups with the most bytes, then others that increased the most often."""
        found = heapq.nlargest(MOST_BYTES, self.live, key=attrgetter("nbytes"))
        pause()
        others = (group for group in self.live.difference(found) if group.rises > 0)
        return found + heapq.nlargest(MOST_RISEN, others, key=attrgetter("rises", "nbytes"))

    def _group(self, kind: Kind) -> LiveGroup:
        template = kind.template
        key = RecordGroup(
            id=0,
            shape=template.shape,
            dtype=template.dtype,
            sharding=template.sharding,
            memory_kind=template.memory_kind,
            origin=kind.site.origin,
            shard_nbytes=template.shard_nbytes,
            devices=self._local.places(kind),
        )
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = LiveGroup(replace(key, origin=template.origin))
        return group

    def _add(self, group: LiveGroup, number: int) -> None:
        """Add a number of arrays to a group, or remove them."""
        group.count += number
        for place in group.facts.devices:
            self.device_nbytes[place] += number * group.facts.shard_nbytes
        (self.live.add if group.count else self.live.discard)(group)
