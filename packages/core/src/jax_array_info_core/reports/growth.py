"""Reports on the growth of live arrays between two snapshots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .device_sums import DeviceNbytes, added_nbytes, fullest_nbytes
from .origin import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginGrowth:
    """Growth of the arrays of one allocation site since a tracker was entered.

    A dtype and shape that rose is an entry of its own, apart from the other arrays of its line. Arrays
    without a known allocation site are grouped by dtype and shape.
    """

    origin: Origin | None
    """Allocation site; None where it is not known."""

    content: str | None
    """Dtype and shape that take the most bytes, such as ``float32[4,4]``: among the new arrays, or among the
    freed arrays where none is new. None without new or freed arrays."""

    count: int
    """Number of new arrays: live now, and not at entry."""

    device_nbytes: DeviceNbytes
    """``(device id, bytes)`` of the new arrays on each device of this process that holds any. Shared buffers
    are counted once per array."""

    freed_count: int
    """Number of freed arrays: live at entry, and not now. Deleted and donated arrays are included."""

    freed_device_nbytes: DeviceNbytes
    """``(device id, bytes)`` of the freed arrays, counted in the same way."""

    count_per_step: float | None = None
    """Average growth in the number of live arrays per step; negative if they became fewer. The first step is
    excluded. None with fewer than two steps."""

    nbytes_per_step: float | None = None
    """Average growth in bytes per step, in total over all devices of this process: an array that is
    replicated on 8 devices counts 8 times. The first step is excluded. None with fewer than two steps."""

    rose_every_step: bool = False
    """Whether the number of live arrays, or their bytes in total, rose at every step, and at least twice.
    The first step is warm-up and need not rise."""

    rose_steps: int = 0
    """Number of steps at which the bytes in total rose, the first step included. 0 if they fell after the
    first step, or rose fewer than two times after it."""

    rose_count: int = 0
    """Growth in the number of arrays over these steps."""

    rose_nbytes: int = 0
    """Growth in bytes over these steps, in total over all devices of this process."""

    rose_content: str | None = None
    """Dtype and shape of the arrays that rose, such as ``float32[4,4]``. None where none rose, or where
    arrays of several dtypes or shapes rose together."""

    @property
    def rose(self) -> bool:
        """Whether the arrays rose at every step, or at several steps without falling."""
        return self.rose_every_step or self.rose_steps > 0

    @property
    def nbytes(self) -> int:
        """Bytes of the new arrays on the device of this process that holds the most of them."""
        return fullest_nbytes(self.device_nbytes)

    @property
    def freed_nbytes(self) -> int:
        """Bytes of the freed arrays on the device of this process that held the most of them."""
        return fullest_nbytes(self.freed_device_nbytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedArrays:
    """Arrays that ``gc.collect()`` freed, of one allocation site and one reference cycle."""

    origin: Origin | None
    """Allocation site; None where it is not known."""

    content: str
    """Dtype and shape that took the most bytes, such as ``float32[4,4]``."""

    count: int
    """Number of arrays."""

    device_nbytes: DeviceNbytes
    """``(device id, bytes)`` that the arrays took on each device of this process that held any."""

    cycle: str | None
    """Reference cycle that kept the arrays alive, such as ``Node.me → Node``; None where it is not known."""

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays on the device of this process that held the most of them."""
        return fullest_nbytes(self.device_nbytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthReport:
    """Growth of the live arrays on the devices of one platform since a tracker was entered."""

    platform: str
    """Platform, such as ``cpu``."""

    steps: int
    """Number of steps so far."""

    origins: tuple[OriginGrowth, ...]
    """Allocation sites with arrays that are new, were freed or rose: first those that rose at every step,
    then those that rose at several steps, then the others by bytes."""

    count_before: int
    """Number of live arrays at entry."""

    count: int
    """Number of live arrays now."""

    nbytes_before: DeviceNbytes
    """``(device id, bytes)`` of the live arrays on each device of this process at entry. Shared buffers are
    counted once, and arrays in host memory are not counted unless that is the default memory."""

    nbytes: DeviceNbytes
    """``(device id, bytes)`` now, counted in the same way."""

    nbytes_source: Literal["profile", "arrays"]
    """Source of the bytes per device. ``profile``: the memory profile of the backend. ``arrays``: sums over
    the arrays, where the backend has no profile; a shared buffer is then counted once per array."""

    origins_known: Literal["known", "not told by this jax"]
    """Whether allocation sites are available; ``not told by this jax``: not in this version of JAX."""

    collected: bool = False
    """Whether ``gc.collect()`` was run for this report."""

    freed_by_collection: tuple[CollectedArrays, ...] = ()
    """Arrays that ``gc.collect()`` freed, the most bytes first. They were part of a reference cycle, or
    referenced by one."""

    cycles: Literal["not asked", "complete", "incomplete"] = "not asked"
    """Result of the search for the reference cycles that kept these arrays alive. ``not asked``: there was no
    collection; ``incomplete``: the search hit its time limit."""

    view_count: int = 0
    """Number of live views, such as the arrays of ``array.addressable_shards``. They share the memory of
    their arrays, and no other field counts them."""

    @property
    def new_count(self) -> int:
        """Number of arrays that are live now, and were not at entry."""
        return sum(origin.count for origin in self.origins)

    @property
    def freed_count(self) -> int:
        """Number of arrays that were live at entry, and are not now."""
        return sum(origin.freed_count for origin in self.origins)

    @property
    def device_growth(self) -> tuple[tuple[tuple[int, ...], int, int], ...]:
        """``(device ids, bytes now, growth in bytes)``, one entry for all devices that agree in both."""
        alike: dict[tuple[int, int], tuple[int, ...]] = {}
        before = dict(self.nbytes_before)
        for device, nbytes in self.nbytes:
            held = nbytes, nbytes - before.get(device, 0)
            alike[held] = (*alike.get(held, ()), device)
        return tuple(sorted((devices, *held) for held, devices in alike.items()))

    @property
    def is_shared(self) -> bool:
        """Whether arrays share buffers, as some device gained fewer bytes than its arrays add up to."""
        gained: Counter[int] = Counter()
        for origin in self.origins:
            gained.update(dict(origin.device_nbytes))
            gained.subtract(dict(origin.freed_device_nbytes))
        return self.nbytes_source == "profile" and any(
            gained[device] > more for devices, _, more in self.device_growth for device in devices
        )


def origins_together(origins: Sequence[OriginGrowth]) -> OriginGrowth:
    """Return the sum of several entries, as one entry without an allocation site."""
    return OriginGrowth(
        origin=None,
        content=None,
        count=sum(origin.count for origin in origins),
        device_nbytes=added_nbytes(*(origin.device_nbytes for origin in origins)),
        freed_count=sum(origin.freed_count for origin in origins),
        freed_device_nbytes=added_nbytes(*(origin.freed_device_nbytes for origin in origins)),
        count_per_step=sum(origin.count_per_step or 0 for origin in origins),
        nbytes_per_step=sum(origin.nbytes_per_step or 0 for origin in origins),
        rose_count=sum(origin.rose_count for origin in origins),
        rose_nbytes=sum(origin.rose_nbytes for origin in origins),
    )


def collected_together(collected: Sequence[CollectedArrays]) -> CollectedArrays:
    """Return the sum of several entries, as one entry without an allocation site or content."""
    return CollectedArrays(
        origin=None,
        content="",
        count=sum(arrays.count for arrays in collected),
        device_nbytes=added_nbytes(*(arrays.device_nbytes for arrays in collected)),
        cycle=None,
    )
