"""Reports on the growth of live arrays between two snapshots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...base import quantities
from ...base.grouping import by_key
from ...base.notebooks import Displayed
from .devices import DeviceNbytes, added_nbytes, fullest_nbytes
from .origin import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginGrowth:
    """Growth of the arrays of one allocation site since a tracker was entered.

    If the arrays of one dtype and shape increased in number or bytes from step to step, they have their own
    entry, separate from the other arrays of their line. Arrays without a known allocation site are grouped by
    dtype and shape.
    """

    origin: Origin | None
    """Allocation site, with the callers that made most of the arrays; None if unknown."""

    content: str | None
    """Dtype and shape that take the most bytes, such as ``float32[4,4]``, among the new arrays. If there are
    no new arrays, among the freed arrays; None if there are neither."""

    count: quantities.Size
    """Number of new arrays: live now but not at entry."""

    device_nbytes: DeviceNbytes
    """``(device id, bytes)`` of the new arrays on each device of this process that holds any of them. Shared
    buffers are counted once per array."""

    freed_count: quantities.Size
    """Number of freed arrays: live at entry but not now. Includes deleted and donated arrays."""

    freed_device_nbytes: DeviceNbytes
    """``(device id, bytes)`` of the freed arrays, counted in the same way."""

    count_per_step: float | None = None
    """Average growth in the number of live arrays per step; negative if the number fell. The first step is
    treated as warm-up and is excluded. None with fewer than two steps."""

    nbytes_per_step: float | None = None
    """Average growth in bytes per step, in total over all devices of this process: an array that is
    replicated on 8 devices counts 8 times. The first step is excluded. None with fewer than two steps."""

    rose_every_step: bool = False
    """Whether the number of live arrays, or their total bytes, increased in every step after the first.
    With only two steps, whether the number or
    the bytes increased in both steps. False with fewer than two steps."""

    rose_steps: quantities.Size = 0
    """Number of steps in which the total bytes increased, including the first step if they increased there.
    0 if the bytes fell after the first step, or increased fewer than two times after it."""

    rose_count: quantities.Difference = 0
    """Growth in the number of arrays over these steps."""

    rose_nbytes: quantities.Difference = 0
    """Growth in bytes over these steps, in total over all devices of this process."""

    stopped_at: quantities.Size | None = None
    """Last step in which the total bytes increased, if they have not since, for at least twice as many steps
    as ever between two increases: a buffer of a bounded length is full. None while they may increase again.
    """

    rose_content: str | None = None
    """Dtype and shape of the arrays that increased in number or bytes, such as ``float32[4,4]``. None if
    there was no such growth, or if no single dtype and shape accounts for it."""

    caller_count: quantities.Count = 1
    """Number of lines that called the allocation site for these arrays."""

    holder: str | None = None
    """Reference path to one of the new arrays, such as ``train.losses[0]``, if they increased from step to
    step: the most frequent of the shortest paths to the oldest 1000, where paths that differ in numbers alone
    are alike. None if no path was requested (``referrers=True``) or found."""

    garbage_count: quantities.Size = 0
    """Number of these arrays that only reference cycles keep alive, found by the same search; 0 if it was
    incomplete."""

    @property
    def rose(self) -> bool:
        """Whether there was growth in every step, or in several steps without the bytes ever falling."""
        return self.rose_every_step or self.rose_steps > 0

    @property
    def nbytes(self) -> int:
        """Bytes of the new arrays on the device of this process that holds the most bytes of them."""
        return fullest_nbytes(self.device_nbytes)

    @property
    def freed_nbytes(self) -> int:
        """Bytes of the freed arrays on the device of this process that held the most bytes of them."""
        return fullest_nbytes(self.freed_device_nbytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedArrays:
    """Arrays that ``gc.collect()`` freed, with the same allocation site."""

    origin: Origin | None
    """Allocation site; None if unknown."""

    content: str
    """Dtype and shape that took the most bytes, such as ``float32[4,4]``."""

    count: quantities.Size
    """Number of arrays."""

    device_nbytes: DeviceNbytes
    """``(device id, bytes)`` of the arrays on each device of this process that held any of them."""

    caller_count: quantities.Count = 1
    """Number of lines that called the allocation site for these arrays."""

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays on the device of this process that held the most bytes of them."""
        return fullest_nbytes(self.device_nbytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthReport(Displayed):
    """Growth of the live arrays on the devices of one platform since a tracker was entered."""

    platform: str
    """Platform, such as ``cpu``."""

    steps: quantities.Size
    """Number of steps since entry."""

    origins: tuple[OriginGrowth, ...]
    """Allocation sites with new arrays, freed arrays or growth: first the sites with growth in every step,
    then those with growth in several steps, then the others by bytes."""

    count_before: quantities.Size
    """Number of live arrays at entry."""

    count: quantities.Size
    """Number of live arrays now."""

    nbytes_before: DeviceNbytes
    """``(device id, bytes)`` of the live arrays in the default memory of each device of this process, at
    entry. Shared buffers are counted once."""

    nbytes: DeviceNbytes
    """``(device id, bytes)`` of the live arrays now, counted in the same way."""

    nbytes_source: Literal["profile", "arrays"]
    """Source of the bytes per device. ``profile``: the memory profile of the backend. ``arrays``: the sum
    over the arrays, if the backend provides no profile; a shared buffer is then counted once per array."""

    origins_known: Literal["known", "not told by this jax"]
    """Availability of allocation sites. ``not told by this jax``: not available in this version of JAX."""

    collected: bool = False
    """Whether ``gc.collect()`` was run for this report."""

    freed_by_collection: tuple[CollectedArrays, ...] = ()
    """Arrays that ``gc.collect()`` freed, the largest entries first. They were part of a reference cycle, or
    reachable from one."""

    holders: Literal["not asked", "complete", "incomplete"] = "not asked"
    """Result of the search for referrers. ``not asked``: no search was requested; ``complete``: the search
    finished; ``incomplete``: there may be more referrers, for example because the search hit its time
    limit."""

    view_count: quantities.Size = 0
    """Number of live views, such as the arrays of ``array.addressable_shards``. They share the memory of
    other arrays and are not counted in any other field."""

    host_nbytes_before: DeviceNbytes = ()
    """``(device id, bytes)`` of the live arrays in host memory, such as ``pinned_host``, at entry. Devices
    without such arrays are omitted."""

    host_nbytes: DeviceNbytes = ()
    """``(device id, bytes)`` of the live arrays in host memory now."""

    @property
    def new_count(self) -> int:
        """Number of arrays that are live now but were not at entry."""
        return sum(origin.count for origin in self.origins)

    @property
    def freed_count(self) -> int:
        """Number of arrays that were live at entry but are not now."""
        return sum(origin.freed_count for origin in self.origins)

    @property
    def device_growth(self) -> tuple[tuple[tuple[int, ...], int, int], ...]:
        """``(device ids, bytes now, growth in bytes)``. Devices with equal values share an entry."""
        return _growth_of_alike(self.nbytes_before, self.nbytes)

    @property
    def host_growth(self) -> tuple[tuple[tuple[int, ...], int, int], ...]:
        """The same for arrays in host memory; devices that never held any are omitted."""
        return _growth_of_alike(self.host_nbytes_before, self.host_nbytes)

    @property
    def is_shared(self) -> bool:
        """Whether arrays share buffers: some device grew by less than its new arrays minus its freed ones."""
        gained: Counter[int] = Counter()
        for origin in self.origins:
            gained.update(dict(origin.device_nbytes))
            gained.subtract(dict(origin.freed_device_nbytes))
        gained.subtract(dict(self.host_nbytes))
        gained.update(dict(self.host_nbytes_before))
        return self.nbytes_source == "profile" and any(
            gained[device] > more for devices, _, more in self.device_growth for device in devices
        )


def _growth_of_alike(before: DeviceNbytes, now: DeviceNbytes) -> tuple[tuple[tuple[int, ...], int, int], ...]:
    """Return ``(device ids, bytes now, growth in bytes)``, with one entry for devices with equal values."""
    earlier, later = dict(before), dict(now)
    alike = by_key(
        ((later.get(device, 0), later.get(device, 0) - earlier.get(device, 0)), device)
        for device in sorted(earlier | later)
    )
    return tuple(sorted((tuple(devices), *held) for held, devices in alike.items()))


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
    )
