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
from ..live.report import is_in_host_memory, sharded_type

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
        self._places = {device.id: place for place, device in enumerate(devices)}
        self._memory_kinds = {device.id: default_memory_kind(device) for device in devices}
        self._known: dict[tuple[Any, ...], tuple[int, list[int]]] = {}
        self._idle_until = 0.0

    def read(self) -> InUse:
        """Return the bytes in use now. Live arrays are counted for at most 5 ms."""
        if not has_backends():  # the program has cleared them: looking must not start new ones
            return InUse()
        memory = [self._memory_of(device) for device in self._devices]
        in_use = [found["bytes_in_use"] for found in memory]
        peak = [found["peak_bytes_in_use"] for found in memory]
        if None in in_use:
            arrays = self._array_nbytes()
            if arrays is None:
                return InUse()
            in_use = [count if found is None else found for found, count in zip(in_use, arrays, strict=True)]
        return InUse(_numbers(in_use), _numbers(peak))

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
        if is_in_host_memory(array_type, self._memory_kinds):
            return 0, []
        places = [self._places[device] for device in array_type.local_devices if device in self._places]
        return array_type.template.shard_nbytes, places


def _numbers(values: Sequence[int | None]) -> tuple[int, ...]:
    """Return the values; none if one is unknown."""
    found = tuple(value for value in values if value is not None)
    return found if len(found) == len(values) else ()
