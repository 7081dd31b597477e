"""Reports on live arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from ...base import quantities
from ...base.grouping import by_key, sums_by_key
from ...base.notebooks import Displayed
from ...base.text import UNKNOWN
from .array import ArrayType
from .devices import DeviceNbytes, fullest_nbytes
from .origin import Origin

TotalsBy = Literal["origin", "device", "dtype", "sharding"]
"""Property by which arrays are grouped into totals; ``origin`` is the allocation site."""

By = Literal["shape", "origin", "device", "dtype", "sharding"]
"""Grouping of the rows of a table: ``shape`` for one row per group of similar arrays, else totals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveArrayTotal:
    """Bytes of the live arrays that share the value of one property."""

    by: TotalsBy
    """Property that the arrays of the total share; ``origin`` is the allocation site."""

    of: str
    """Value of the property, such as ``train.py:141 init_params from train.py:9 main`` or ``bfloat16``."""

    count: int
    """Number of arrays; by device, the number of arrays with a shard there."""

    nbytes: int
    """Bytes on the device of this process that holds the most bytes of these arrays. Shared buffers are
    counted once per array; by device, once."""

    total_nbytes: int
    """Bytes in total over all devices of this process; by device, bytes including host memory."""


def held_nbytes(groups: Sequence[LiveArrayGroup]) -> Counter[int]:
    """Return the bytes of some arrays on each device of this process; shared buffers count once per array."""
    return sums_by_key(
        (device, group.shard_nbytes * count) for group in groups for device, count in group.device_counts
    )


def held_counts(groups: Sequence[LiveArrayGroup]) -> Counter[int]:
    """Return the number of arrays with a shard on each device of this process."""
    return sums_by_key(pair for group in groups for pair in dict(group.device_counts).items())


def fullest_share(report: LiveArrayReport, groups: Sequence[LiveArrayGroup]) -> str:
    """Return the share of the bytes on the fullest device that some arrays take: ``25.0%``.

    Shared buffers are counted once per array. Empty if the arrays are in host memory, or no device holds
    any bytes.
    """
    device, nbytes = max(report.device_nbytes, key=lambda pair: pair[1], default=(0, 0))
    on_device = [group for group in groups if not is_in_host_memory(report, group)]
    if not nbytes or (groups and not on_device):
        return ""
    return quantities.percent_words(held_nbytes(on_device)[device], nbytes)


def is_in_host_memory(report: LiveArrayReport, group: LiveArrayGroup) -> bool:
    """Return whether arrays are in host memory, and that is not the default memory of their devices."""
    return bool(report.host_nbytes) and "host" in (group.memory_kind or "")


def check_totals_by(by: str) -> None:
    """Raise ValueError for an unknown property to total by."""
    if by not in get_args(By):
        raise ValueError(f"by must be one of {', '.join(map(repr, get_args(By)))}, got {by!r}")


def all_totals(report: LiveArrayReport) -> tuple[LiveArrayTotal, ...]:
    """Return the totals of a report by every property, each with the most bytes first.

    Totals by allocation site are included if the report has allocation sites.
    """
    has_origins = report.origins != "not asked" or any(group.origin for group in report.groups)
    totals: list[LiveArrayTotal] = []
    for by in get_args(TotalsBy):
        if by == "origin" and not has_origins:
            continue
        unsorted = (
            _by_device(report)
            if by == "device"
            else [_total(by, value, groups) for value, groups in groups_by_total(report, by).items()]
        )
        totals += sorted(unsorted, key=lambda total: (-total.nbytes, -total.total_nbytes, total.of))
    return tuple(totals)


def groups_by_total(report: LiveArrayReport, by: TotalsBy) -> dict[str, list[LiveArrayGroup]]:
    """Return the groups of a report by the value of a property; by device, a group is in several totals."""
    return by_key((value, group) for group in report.groups for value in _common(report, group, by))


def _common(report: LiveArrayReport, group: LiveArrayGroup, by: TotalsBy) -> list[str]:
    """Return the totals that a group belongs to: one, or by device one for each of its devices."""
    if by == "dtype":
        return [group.dtype]
    if by == "sharding":
        return [group.sharding]
    if by == "origin":
        return [UNKNOWN if group.origin is None else group.origin.text(1)]
    return [device_words(report, device) for device, _ in group.device_counts]


def device_words(report: LiveArrayReport, *devices: int) -> str:
    """Return the names of some devices, such as ``cpu:3`` or ``cpu:0-7``."""
    return f"{report.platform}:{quantities.format_device_ids(devices)}"


def _total(by: TotalsBy, value: str, groups: Sequence[LiveArrayGroup]) -> LiveArrayTotal:
    held = held_nbytes(groups)
    return LiveArrayTotal(
        by=by,
        of=value,
        count=sum(group.count for group in groups),
        nbytes=max(held.values(), default=0),
        total_nbytes=held.total(),
    )


def _by_device(report: LiveArrayReport) -> list[LiveArrayTotal]:
    host, counts = dict(report.host_nbytes), held_counts(report.groups)
    return [
        LiveArrayTotal(
            by="device",
            of=device_words(report, device),
            count=counts[device],
            nbytes=nbytes,
            total_nbytes=nbytes + host.get(device, 0),
        )
        for device, nbytes in report.device_nbytes
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveArrayGroup(ArrayType):
    """Live arrays with equal values in every field, except their devices and referrers.

    They have the same shape, dtype, bytes, sharding, memory kind, label and allocation site. They are all
    views of the same array, or none of them is a view. Either all or none of them have shards on devices of
    this process.
    """

    shape: tuple[quantities.Size, ...]
    """Global shape of each array."""

    nbytes: quantities.Size
    """Bytes of one array, without replicas."""

    shard_nbytes: quantities.Size
    """Bytes per device of one array; 0 for views, which take no memory."""

    device_count: quantities.Size
    """Number of devices that hold each array."""

    replicas: quantities.Count
    """Number of replicas of each shard; of an unreduced array, of each partial sum of a shard."""

    label: str | None
    """Label, set by ``label_array`` or by the name passed to ``sharding_info``; None without one."""

    count: quantities.Size
    """Number of arrays in the group."""

    device_counts: tuple[tuple[int, quantities.Size], ...] = ()
    """``(device id, number of arrays with a shard there)`` for the devices of this process; empty if all
    shards are on devices of other processes."""

    partial_sums: quantities.Count = 1
    """Number of partial sums of each shard; 1 for an array that is not unreduced."""

    unreduced: tuple[str, ...] = ()
    """Mesh axes over which the values are partial sums."""

    replicated_over: tuple[str, ...] = ()
    """Mesh axes over which the arrays are replicated; empty if there are none, and without a mesh."""

    sharding: str = ""
    """Spec and mesh, such as ``P('data', None) over data=4,model=2``, or the name of a sharding without a
    spec."""

    memory_kind: str | None = None
    """Memory kind, such as ``device`` or ``pinned_host``."""

    origin: Origin | None = None
    """Allocation site; None if it was not requested (``origins=True``) or is unknown."""

    holder: str | None = None
    """Reference path to one of the arrays, such as ``train.state.params['w']``: the shortest that begins at a
    name of the user. None if no path was requested (``referrers=True``) or found."""

    unheld_count: quantities.Size = 0
    """Number of arrays for which no referrer was found, garbage apart."""

    garbage_count: quantities.Size = 0
    """Number of arrays that only reference cycles keep alive, so that ``gc.collect()`` frees them; 0 if no
    search was requested, or it is incomplete."""

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

    visible_devices: quantities.Size
    """Number of devices of the platform that this process sees, including those of other processes."""

    groups: tuple[LiveArrayGroup, ...]
    """Groups of live arrays, those with the largest ``local_nbytes`` first."""

    array_count: quantities.Size
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

    device: int | None = None
    """Id of the device whose arrays these are, if one was chosen; the bytes are those on it. None for the
    arrays on all devices of this process."""

    totals: tuple[LiveArrayTotal, ...] = field(init=False, default=(), repr=False, compare=False)
    """Totals by allocation site (if requested), device, dtype and sharding, the largest of each first.
    Derived from ``groups``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "totals", all_totals(self))

    @property
    def garbage_count(self) -> int:
        """Number of arrays that only reference cycles keep alive; 0 without a complete search."""
        return sum(group.garbage_count for group in self.groups)

    @property
    def garbage_nbytes(self) -> int:
        """Bytes of these arrays, without replicas; views take none."""
        return sum(group.nbytes * group.garbage_count for group in self.groups if group.views_of is None)

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
