"""Bytes in use on the devices of this process at one moment, read by the thread that asks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

from ..compat import shard_views
from ..compat.devices import default_memory_kind, has_backends
from ..devices.memory import device_memory
from ..live.report import ShardedType, is_in_host_memory, sharded_type

LONGEST = 0.005
"""Seconds after which the live arrays are left uncounted."""
MOST_ARRAYS = 5000
"""Number of live arrays past which counting them takes longer."""
_SHARE = 200
"""The next attempt is so many times later as one took that was in vain."""
_PIECE = 200
"""Number of arrays that are counted between two looks at the clock."""
_MOST_KNOWN = 4096
"""Number of combinations of shape, dtype and sharding that are remembered."""

_type_of = attrgetter("shape", "dtype", "sharding")


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


class LocalDevices:
    """The devices of this process by their places."""

    def __init__(self, devices: Sequence[Any]) -> None:
        """Number the devices, which are of one platform."""
        self._places = {device.id: place for place, device in enumerate(devices)}
        self._memory_kinds = {device.id: default_memory_kind(device) for device in devices}

    def places(self, array_type: ShardedType) -> list[int]:
        """Return the places of the devices whose memory has a shard of such an array."""
        if is_in_host_memory(array_type, self._memory_kinds):
            return []
        return [self._places[device] for device in array_type.local_devices if device in self._places]


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
        self._known: dict[tuple[Any, ...], tuple[int, list[int]]] = {}
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
        views = Counter(_type_of(view) for view, _ in shard_views(arrays))
        counts: Counter[tuple[Any, ...]] = Counter()
        rest = iter(arrays)
        while piece := [*islice(rest, _PIECE)]:
            if time.perf_counter() - start > LONGEST:
                return None
            counts.update(map(_type_of, piece))
        total = [0] * len(self._devices)
        for key, count in counts.items():
            if key not in self._known:
                if time.perf_counter() - start > LONGEST:
                    return None
                if len(self._known) >= _MOST_KNOWN:
                    self._known.clear()
                self._known[key] = self._bytes_of(*key)
            nbytes, places = self._known[key]
            for place in places:
                total[place] += (count - views[key]) * nbytes
        return total

    def _bytes_of(self, shape: tuple[int, ...], dtype: Any, sharding: Any) -> tuple[int, list[int]]:
        """Return the bytes of a shard, and the places of the devices that hold one in their memory."""
        array_type = sharded_type(shape, dtype, sharding)
        return array_type.template.shard_nbytes, self._local.places(array_type)
