"""Reports on live arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .device_sums import DeviceNbytes, fullest_nbytes
from .live_totals import LiveArrayTotal, all_totals, held_nbytes
from .origin import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveArrayGroup:
    """Live arrays that agree in every field but their devices and referrers.

    They have the same shape, dtype, bytes, sharding, memory kind, label and allocation site, are views of
    the same array or none, and either all or none of them have shards on devices of this process.
    """

    shape: tuple[int, ...]
    """Global shape of each array."""

    dtype: str
    """Name of the dtype."""

    nbytes: int
    """Bytes of one array, without replicas."""

    shard_nbytes: int
    """Bytes per device of one array; 0 for views, which have no memory of their own."""

    device_count: int
    """Number of devices that hold each array."""

    replicas: int
    """Number of replicas of each shard."""

    label: str | None
    """Label given by the user."""

    count: int
    """Number of arrays in the group."""

    device_counts: tuple[tuple[int, int], ...] = ()
    """``(device id, number of arrays with a shard there)`` for the devices of this process; empty if all
    shards are on devices of other processes."""

    sharding: str = ""
    """Spec and mesh, such as ``P('data', None) over data=4,model=2``; for a sharding without a spec, its
    name."""

    memory_kind: str | None = None
    """Memory kind, such as ``device`` or ``pinned_host``."""

    origin: Origin | None = None
    """Allocation site; None where it was not requested (``origins=True``) or is not known."""

    holders: tuple[str, ...] = ()
    """Reference paths to the arrays, such as ``train.state.params['w']``; empty where they were not requested
    (``holders=True``)."""

    unheld_count: int = 0
    """Number of arrays for which no referrer was found."""

    views_of: str | None = None
    """Base array of these views, by its label, else as ``float32[8,4]``. A view shares the buffers of
    its array. None for arrays that are not views."""

    @property
    def local_nbytes(self) -> int:
        """Bytes per device of one array on the devices of this process; 0 if none of them holds it."""
        return self.shard_nbytes if self.device_counts else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveArrayReport:
    """Live arrays on the devices of one platform, and their bytes per device."""

    platform: str
    """Platform, such as ``cpu``."""

    visible_devices: int
    """Number of devices of the platform that the process sees, those of other processes included."""

    groups: tuple[LiveArrayGroup, ...]
    """Groups of live arrays, the largest ``local_nbytes`` first."""

    array_count: int
    """Number of live arrays."""

    device_nbytes: DeviceNbytes
    """``(device id, bytes)`` of the live arrays on each device of this process. Shared buffers are counted
    once."""

    nbytes_source: Literal["profile", "arrays"]
    """Source of ``device_nbytes``. ``profile``: the memory profile of the backend. ``arrays``: sums over the
    arrays, where the backend has no profile; a shared buffer is then counted once per array."""

    host_nbytes: DeviceNbytes = ()
    """``(device id, bytes)`` of arrays in host memory, where that is not the default memory of the device;
    ``device_nbytes`` excludes them. The profile does not separate the two: where arrays in both share
    buffers, all of the shared bytes are attributed to host memory."""

    origins: Literal["not asked", "known", "not told by this jax"] = "not asked"
    """Whether the groups have allocation sites. ``not asked``: they were not requested; ``not told by this
    jax``: not available in this version of JAX."""

    holders: Literal["not asked", "complete", "incomplete"] = "not asked"
    """Whether the groups have reference paths. ``not asked``: they were not requested; ``incomplete``: the
    search hit its time limit or its limit on the length of paths, so there may be more referrers."""

    totals: tuple[LiveArrayTotal, ...] = field(init=False, default=(), repr=False, compare=False)
    """Totals by allocation site (where requested), device, dtype and sharding, each with the most bytes
    first. Derived from ``groups``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "totals", all_totals(self))

    @property
    def fullest_nbytes(self) -> int:
        """Bytes of live arrays on the fullest device of this process, without host memory."""
        return fullest_nbytes(self.device_nbytes)

    @property
    def fullest_host_nbytes(self) -> int:
        """Bytes of live arrays in host memory for the device of this process that has the most there."""
        return fullest_nbytes(self.host_nbytes)

    @property
    def is_shared(self) -> bool:
        """Whether arrays share buffers, as some device holds fewer bytes than its arrays add up to."""
        host, held = dict(self.host_nbytes), held_nbytes(self.groups)
        return self.nbytes_source == "profile" and any(
            held[device] > nbytes + host.get(device, 0) for device, nbytes in self.device_nbytes
        )
