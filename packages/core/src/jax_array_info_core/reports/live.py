"""Reports on live arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .device_sums import DeviceNbytes, fullest_nbytes
from .live_totals import LiveArrayTotal, all_totals, held_nbytes
from .origin import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveArrayGroup:
    """Live arrays that are alike.

    That is in shape, dtype, bytes, sharding, memory, label, origin, what they are views of, and whether any
    of them is here.
    """

    shape: tuple[int, ...]
    """Global shape of each."""

    dtype: str
    """Name of the dtype."""

    nbytes: int
    """Bytes of one array of them, each element once."""

    shard_nbytes: int
    """Bytes of one array on each device that holds it; 0 for views, which take none of their own."""

    device_count: int
    """On how many devices each is."""

    replicas: int
    """How many devices hold each shard."""

    label: str | None
    """The label that the user gave."""

    count: int
    """How many arrays these are."""

    device_counts: tuple[tuple[int, int], ...] = ()
    """``(device id, how many of them have a part there)`` of the devices of this process; empty where
    these are all on devices of other processes."""

    sharding: str = ""
    """How each is cut: ``P('data', None) over data=4,model=2``, or the name of a sharding without a spec."""

    memory_kind: str | None = None
    """The memory that holds them, such as ``device`` or ``pinned_host``."""

    origin: Origin | None = None
    """The line of the user's code that made them; None where that was not asked or is not known."""

    holders: tuple[str, ...] = ()
    """Paths to who holds them, such as ``train.state.params['w']``; empty where that was not asked."""

    unheld_count: int = 0
    """For how many of them no holder was found."""

    views_of: str | None = None
    """The array whose shards they are, by its label, else as ``float32[8,4]``: they share its buffers. None
    where they are no views."""

    @property
    def local_nbytes(self) -> int:
        """Bytes of one array on each device of this process that holds it; 0 where none does."""
        return self.shard_nbytes if self.device_counts else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveArrayReport:
    """All arrays that are alive on the devices of one platform."""

    platform: str
    """The platform, such as ``cpu``."""

    visible_devices: int
    """How many devices of the platform the process sees, of all processes."""

    groups: tuple[LiveArrayGroup, ...]
    """Arrays that are alike, the largest ``local_nbytes`` first."""

    array_count: int
    """How many arrays are alive."""

    device_nbytes: DeviceNbytes
    """``(device id, bytes)`` of each device of this process, buffers that arrays share counted once."""

    nbytes_source: Literal["profile", "arrays"]
    """``profile``: ``device_nbytes`` are what the backend's memory profile says; ``arrays``: it has
    none, and they are sums over the arrays, in which a shared buffer counts each time."""

    host_nbytes: DeviceNbytes = ()
    """``(device id, bytes)`` of the devices of this process that have arrays in host memory, where that
    is not their default memory; ``device_nbytes`` are without these. The profile does not tell the two
    apart: of what arrays in both of them share, all is taken to be shared in host memory."""

    origins: Literal["not asked", "known", "not told by this jax"] = "not asked"
    """Whether the groups say who made them."""

    holders: Literal["not asked", "complete", "incomplete"] = "not asked"
    """Whether the groups say who holds them; ``incomplete``: the search came to the end of its time, or of
    the length of paths, and there may be more holders."""

    totals: tuple[LiveArrayTotal, ...] = field(init=False, default=(), repr=False, compare=False)
    """What arrays take together that have their origin (where that was asked), device, dtype or sharding
    in common, for each of these the most bytes first. Derived from the groups."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "totals", all_totals(self))

    @property
    def fullest_nbytes(self) -> int:
        """Bytes on the device of this process that holds the most, without host memory."""
        return fullest_nbytes(self.device_nbytes)

    @property
    def fullest_host_nbytes(self) -> int:
        """The most bytes in host memory of one device of this process."""
        return fullest_nbytes(self.host_nbytes)

    @property
    def is_shared(self) -> bool:
        """Whether the arrays take less together than one by one, as they share buffers."""
        host, held = dict(self.host_nbytes), held_nbytes(self.groups)
        return self.nbytes_source == "profile" and any(
            held[device] > nbytes + host.get(device, 0) for device, nbytes in self.device_nbytes
        )
