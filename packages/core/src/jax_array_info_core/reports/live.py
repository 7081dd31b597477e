"""Reports on live arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..notebooks import Displayed
from .device_sums import DeviceNbytes, fullest_nbytes
from .live_totals import LiveArrayTotal, all_totals, held_nbytes
from .origin import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveArrayGroup:
    """Live arrays with equal values in every field, except their devices and referrers.

    They have the same shape, dtype, bytes, sharding, memory kind, label and allocation site. They are all
    views of the same array, or none of them is a view. Either all or none of them have shards on devices of
    this process.
    """

    shape: tuple[int, ...]
    """Global shape of each array."""

    dtype: str
    """Name of the dtype."""

    nbytes: int
    """Bytes of one array, without replicas."""

    shard_nbytes: int
    """Bytes per device of one array; 0 for views, which take no memory."""

    device_count: int
    """Number of devices that hold each array."""

    replicas: int
    """Number of replicas of each shard; of an unreduced array, of each partial sum of a shard."""

    label: str | None
    """Label, set by ``label_array`` or by the name passed to ``sharding_info``; None without one."""

    count: int
    """Number of arrays in the group."""

    device_counts: tuple[tuple[int, int], ...] = ()
    """``(device id, number of arrays with a shard there)`` for the devices of this process; empty if all
    shards are on devices of other processes."""

    partial_sums: int = 1
    """Number of partial sums of each shard; 1 for an array that is not unreduced."""

    unreduced: tuple[str, ...] = ()
    """Mesh axes over which the values are partial sums."""

    sharding: str = ""
    """Spec and mesh, such as ``P('data', None) over data=4,model=2``, or the name of a sharding without a
    spec."""

    memory_kind: str | None = None
    """Memory kind, such as ``device`` or ``pinned_host``."""

    origin: Origin | None = None
    """Allocation site; None if it was not requested (``origins=True``) or is unknown."""

    holders: tuple[str, ...] = ()
    """Reference paths to the arrays, such as ``train.state.params['w']``; empty if they were not requested
    (``holders=True``)."""

    unheld_count: int = 0
    """Number of arrays for which no referrer was found."""

    views_of: str | None = None
    """Array that these arrays are views of, whose buffers they share: its label, or else its dtype and shape,
    such as ``float32[8,4]``. None for arrays that are not views."""

    @property
    def local_nbytes(self) -> int:
        """Bytes per device of one array on the devices of this process; 0 if it has no shards there."""
        return self.shard_nbytes if self.device_counts else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveArrayReport(Displayed):
    """Live arrays on the devices of one platform, and their bytes per device."""

    platform: str
    """Platform, such as ``cpu``."""

    visible_devices: int
    """Number of devices of the platform that this process sees, including those of other processes."""

    groups: tuple[LiveArrayGroup, ...]
    """Groups of live arrays, those with the largest ``local_nbytes`` first."""

    array_count: int
    """Number of live arrays."""

    device_nbytes: DeviceNbytes
    """``(device id, bytes)`` of the live arrays on each device of this process. Shared buffers are counted
    once."""

    nbytes_source: Literal["profile", "arrays"]
    """Source of ``device_nbytes``. ``profile``: the memory profile of the backend. ``arrays``: the sum over
    the arrays, if the backend provides no profile; a shared buffer is then counted once per array."""

    host_nbytes: DeviceNbytes = ()
    """``(device id, bytes)`` of arrays in host memory, if that is not the default memory of the device;
    ``device_nbytes`` excludes them. The profile does not separate the two. If arrays in host memory share
    buffers with arrays in device memory, the shared bytes are attributed to host memory."""

    origins: Literal["not asked", "known", "not told by this jax"] = "not asked"
    """Availability of allocation sites. ``not asked``: not requested; ``known``: each group has its
    allocation site, if JAX recorded one; ``not told by this jax``: not available in this version of JAX."""

    holders: Literal["not asked", "complete", "incomplete"] = "not asked"
    """Result of the search for referrers. ``not asked``: no search was requested; ``complete``: the search
    finished; ``incomplete``: there may be more referrers, for example because the search hit its time
    limit."""

    totals: tuple[LiveArrayTotal, ...] = field(init=False, default=(), repr=False, compare=False)
    """Totals by allocation site (if requested), device, dtype and sharding, the largest of each first.
    Derived from ``groups``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "totals", all_totals(self))

    @property
    def fullest_nbytes(self) -> int:
        """Bytes of live arrays on the fullest device of this process, without host memory."""
        return fullest_nbytes(self.device_nbytes)

    @property
    def fullest_host_nbytes(self) -> int:
        """Bytes of live arrays in host memory for the device of this process that has the most of them."""
        return fullest_nbytes(self.host_nbytes)

    @property
    def is_shared(self) -> bool:
        """Whether arrays share buffers: true if a device holds fewer bytes than its arrays add up to."""
        host, held = dict(self.host_nbytes), held_nbytes(self.groups)
        return self.nbytes_source == "profile" and any(
            held[device] > nbytes + host.get(device, 0) for device, nbytes in self.device_nbytes
        )
