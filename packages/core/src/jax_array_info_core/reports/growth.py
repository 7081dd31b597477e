"""The reports about growth: frozen facts about what has come and gone between two moments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .device_sums import DeviceNbytes, added_nbytes, fullest_nbytes
from .origin import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginGrowth:
    """What the arrays of one line of the user's code have done since a tracker was entered.

    Those of one dtype and shape that rose are told apart from the others of their line. Arrays whose line is
    not known are put together by dtype and shape.
    """

    origin: Origin | None
    """The line that made them; None where that is not known."""

    content: str | None
    """Dtype and shape of those that take the most bytes, as ``float32[4,4]``: of the new arrays, or, where
    none is new, of the freed ones. None where there are neither."""

    count: int
    """How many are alive that were not alive at entry."""

    device_nbytes: DeviceNbytes
    """``(device id, bytes)`` of what each device of this process holds of these, where it holds any; memory
    that arrays share counts for each."""

    freed_count: int
    """How many were alive at entry and are gone, deleted and donated ones included."""

    freed_device_nbytes: DeviceNbytes
    """The same of what each device held of those."""

    count_per_step: float | None = None
    """How many more have been alive after each step than after the one before, on average over the steps
    after the first; negative where they became fewer. None with fewer than two steps."""

    nbytes_per_step: float | None = None
    """The same of their bytes, on all devices of this process together: arrays made on one device after
    the other are seen at once, one that is on 8 devices counts 8 times."""

    rose_every_step: bool = False
    """Whether the number of those alive, or their bytes on all devices together, rose at each of the steps
    but perhaps the first (which often makes what lives on), and at least twice."""

    rose_steps: int = 0
    """At how many steps their bytes on all devices together rose, the first included. 0 unless they rose at
    least twice after the first step, and never fell after it."""

    rose_count: int = 0
    """By how many arrays they rose at these steps together."""

    rose_nbytes: int = 0
    """By how many bytes they rose at these steps together, on all devices of this process."""

    rose_content: str | None = None
    """Dtype and shape of what rose, as ``float32[4,4]``; None where nothing did, or arrays of several."""

    @property
    def rose(self) -> bool:
        """Whether they rose at every step, or at several and never fell."""
        return self.rose_every_step or self.rose_steps > 0

    @property
    def nbytes(self) -> int:
        """What the device of this process that holds the most of the new ones holds of them, in bytes."""
        return fullest_nbytes(self.device_nbytes)

    @property
    def freed_nbytes(self) -> int:
        """What the device of this process that held the most of the freed ones held of them, in bytes."""
        return fullest_nbytes(self.freed_device_nbytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedArrays:
    """Arrays alike that only the garbage collector has freed."""

    origin: Origin | None
    """The line that made them; None where that is not known."""

    content: str
    """Dtype and shape of those that took the most bytes, as ``float32[4,4]``."""

    count: int
    """How many they were."""

    device_nbytes: DeviceNbytes
    """``(device id, bytes)`` of what each device of this process held of them, where it held any."""

    cycle: str | None
    """The path round the reference cycle that held them, such as ``Node.me → Node``; None where it is not
    known."""

    @property
    def nbytes(self) -> int:
        """What the device of this process that held the most of them held of them, in bytes."""
        return fullest_nbytes(self.device_nbytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthReport:
    """What has come and gone on the devices of one platform since a tracker was entered."""

    platform: str
    """The platform, such as ``cpu``."""

    steps: int
    """How many steps there have been."""

    origins: tuple[OriginGrowth, ...]
    """The lines whose arrays are new, freed or rose: first those that rose at every step, then those at
    several, then by bytes."""

    count_before: int
    """How many arrays were alive at entry."""

    count: int
    """How many are alive now."""

    nbytes_before: DeviceNbytes
    """``(device id, bytes)`` of each device of this process at entry, buffers that arrays share counted once;
    without arrays in host memory, where that is not the default."""

    nbytes: DeviceNbytes
    """The same now."""

    nbytes_source: Literal["profile", "arrays"]
    """``profile``: these are what the backend's memory profile says; ``arrays``: it has none, and they are
    sums over the arrays, in which a shared buffer counts each time."""

    origins_known: Literal["known", "not told by this jax"]
    """Whether it can be known who made an array."""

    collected: bool = False
    """Whether ``gc.collect()`` was run for this report."""

    freed_by_collection: tuple[CollectedArrays, ...] = ()
    """The arrays that this has freed, the most bytes first; they were in reference cycles, or held by one."""

    cycles: Literal["not asked", "complete", "incomplete"] = "not asked"
    """Whether all reference cycles that held them are told; ``incomplete``: the search came to the end of
    its time. Asked with the collection."""

    view_count: int = 0
    """How many views are alive now, such as ``array.addressable_shards`` makes. They share the memory of
    their arrays, and are in none of the other figures."""

    @property
    def new_count(self) -> int:
        """How many arrays are alive that were not alive at entry."""
        return sum(origin.count for origin in self.origins)

    @property
    def freed_count(self) -> int:
        """How many arrays that were alive at entry are gone."""
        return sum(origin.freed_count for origin in self.origins)

    @property
    def device_growth(self) -> tuple[tuple[tuple[int, ...], int, int], ...]:
        """``(device ids, bytes now, bytes more than at entry)``: devices that hold and gained the same."""
        alike: dict[tuple[int, int], tuple[int, ...]] = {}
        before = dict(self.nbytes_before)
        for device, nbytes in self.nbytes:
            held = nbytes, nbytes - before.get(device, 0)
            alike[held] = (*alike.get(held, ()), device)
        return tuple(sorted((devices, *held) for held, devices in alike.items()))

    @property
    def is_shared(self) -> bool:
        """Whether new and freed arrays changed less together than one by one, as they share buffers."""
        gained: Counter[int] = Counter()
        for origin in self.origins:
            gained.update(dict(origin.device_nbytes))
            gained.subtract(dict(origin.freed_device_nbytes))
        return self.nbytes_source == "profile" and any(
            gained[device] > more for devices, _, more in self.device_growth for device in devices
        )


def origins_together(origins: Sequence[OriginGrowth]) -> OriginGrowth:
    """Return what the arrays of several lines have done together, as of one line that is not known."""
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
    """Return several kinds of arrays that the garbage collector has freed as one, of no known content."""
    return CollectedArrays(
        origin=None,
        content="",
        count=sum(arrays.count for arrays in collected),
        device_nbytes=added_nbytes(*(arrays.device_nbytes for arrays in collected)),
        cycle=None,
    )
