"""The summary of a report of this process, and its set of arrays."""

from __future__ import annotations

import hashlib
import json
import socket
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ...base import quantities
from ...base.errors import UnsupportedValueError
from ...base.quantities import LARGEST
from ...base.text import clipped, printable
from ...compat import processes
from ...facts.reports.array import Dim
from ...facts.reports.devices import DevicesReport
from ...facts.reports.hosts import MAX_DEVICES, HostArray, HostDevice, HostSummary
from ...facts.reports.live import LiveArrayGroup, LiveArrayReport
from ...facts.reports.tree import TreeReport, TreeRow
from ..devices import device_memory

HostReport: TypeAlias = LiveArrayReport | TreeReport | DevicesReport
"""Reports of a process that can be compared with those of others."""

ArrayKey: TypeAlias = "tuple[tuple[Dim, ...], str, str, str | None]"
"""Shape, dtype, sharding and label."""

_LONGEST_NAME = 64
_LONGEST_PLATFORM = 32


@dataclass(frozen=True, slots=True)
class ArraySet:
    """A set of arrays: how many there are of each, and the bytes per device of one."""

    counts: Counter[ArrayKey]
    nbytes: Mapping[ArrayKey, int | None]

    @classmethod
    def of(cls, arrays: Iterable[tuple[ArrayKey, int, int | None]]) -> ArraySet:
        """Return the set of some arrays, each with its number and the bytes per device of one."""
        counts: Counter[ArrayKey] = Counter()
        nbytes: dict[ArrayKey, int | None] = {}
        for key, count, one in arrays:
            counts[key] += count
            nbytes[key] = one
        return cls(counts, nbytes)

    @property
    def digest(self) -> str:
        """Hash of the set, which does not depend on the order."""
        texts = sorted(f"{key!r}{count}" for key, count in self.counts.items())
        return hashlib.sha256("\n".join(texts).encode("utf-8", "backslashreplace")).hexdigest()[:32]

    def without(self, other: ArraySet) -> list[HostArray]:
        """Return the arrays that another set lacks, the most bytes first."""
        found = [
            HostArray(
                shape=shape,
                dtype=dtype,
                sharding=sharding,
                label=label,
                count=count,
                nbytes=self.nbytes[shape, dtype, sharding, label],
            )
            for (shape, dtype, sharding, label), count in (self.counts - other.counts).items()
        ]
        return sorted(
            found,
            key=lambda one: (-(one.nbytes or 0) * one.count, one.label or "", one.type, one.sharding),
        )


@dataclass(frozen=True, slots=True)
class SetAsText:
    """A set of arrays that travels to another process, as JSON."""

    arrays_of_set: tuple[HostArray, ...]

    @classmethod
    def of(cls, arrays: ArraySet) -> SetAsText:
        """Return a set for its text."""
        return cls(tuple(arrays.without(ArraySet.of(()))))

    @property
    def text(self) -> str:
        """The set as JSON."""
        import msgspec

        return json.dumps(msgspec.to_builtins(self))  # ASCII, also for lone surrogates

    @property
    def arrays(self) -> ArraySet:
        """The set."""
        return ArraySet.of(
            ((one.shape, one.dtype, one.sharding, one.label), one.count, one.nbytes)
            for one in self.arrays_of_set
        )


def arrays_of(report: HostReport) -> ArraySet:
    """Return the set of arrays of a report; an empty one for a report of devices."""
    match report:
        case LiveArrayReport():
            return set_of_groups(report.groups)
        case TreeReport():
            return set_of_rows(report.rows)
    return ArraySet.of(())


@dataclass(frozen=True, slots=True)
class ComparedFields:
    """The fields of a LiveArrayGroup that are compared: reading only these takes half the time."""

    shape: tuple[Dim, ...]
    dtype: str
    sharding: str
    label: str | None
    count: quantities.Size
    shard_nbytes: quantities.Size
    views_of: str | None = None


def set_of_groups(groups: Iterable[LiveArrayGroup | ComparedFields]) -> ArraySet:
    """Return the set of some live arrays, without views."""
    return ArraySet.of(
        ((group.shape, group.dtype, group.sharding, group.label), group.count, group.shard_nbytes)
        for group in groups
        if group.views_of is None
    )


def set_of_rows(rows: Iterable[TreeRow]) -> ArraySet:
    """Return the set of some leaves, with their paths as labels."""
    return ArraySet.of(
        ((row.shape, row.dtype, row.sharding_text, row.path), 1, row.shard_nbytes) for row in rows
    )


def require_host_report(report: object) -> None:
    """Raise UnsupportedValueError for a value that is not a report of a process."""
    if not isinstance(report, HostReport):
        raise UnsupportedValueError(
            f"expected a LiveArrayReport, a TreeReport or a DevicesReport, got {type(report)}:"
            " live_array_report(), tree_report(tree) and devices_report() return them"
        )


def summary_of(report: HostReport) -> HostSummary:
    """Return the summary of a report of this process, with the memory of its devices now.

    Raises:
        UnsupportedValueError: If the report is of another class.
    """
    require_host_report(report)
    arrays = arrays_of(report)
    devices = _devices(report)
    match report:
        case LiveArrayReport():
            of, nbytes = "LiveArrayReport", sum(nbytes for _, nbytes in report.device_nbytes)
        case TreeReport():
            of, nbytes = "TreeReport", report.fullest_device_nbytes
        case DevicesReport():
            of, nbytes = "DevicesReport", sum(device.held_nbytes for device in devices)
    has_arrays = not isinstance(report, DevicesReport)
    return HostSummary(
        process=processes.process_index(),
        process_count=max(processes.process_count(), processes.process_index() + 1),
        host_name=_clipped(socket.gethostname(), _LONGEST_NAME),
        boot_id=_boot_id(),
        of=of,  # type: ignore[arg-type]
        platform=_clipped(_platform(report), _LONGEST_PLATFORM),
        nbytes=nbytes,
        device_count=len(devices),
        devices=tuple(sorted(devices, key=lambda one: -one.held_nbytes)[:MAX_DEVICES]),
        array_count=arrays.counts.total() if has_arrays else None,
        digest=arrays.digest if has_arrays else "",
    )


def _boot_id() -> str | None:
    """Return the identifier that Linux draws when a machine starts; None on other systems."""
    try:
        return _clipped(Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip(), _LONGEST_NAME)
    except (OSError, ValueError):
        return None


def _clipped(text: str, longest: int) -> str:
    return printable(clipped(text)[:longest])[:longest]


def _platform(report: HostReport) -> str:
    """Return the platform of a report; empty for one of a tree that is not on devices."""
    match report:
        case LiveArrayReport():
            return report.platform
        case TreeReport():
            return next((mesh.platform for mesh in report.meshes if mesh.platform), "")
        case DevicesReport():
            return next((device.platform for device in report.devices if device.is_local), "")


def _devices(report: HostReport) -> list[HostDevice]:
    """Return the memory of the devices of this process, as far as it is known."""
    if isinstance(report, DevicesReport):
        return [
            HostDevice(
                id=device.id,
                nbytes=device.array_nbytes,
                bytes_in_use=device.bytes_in_use,
                peak_bytes_in_use=device.peak_bytes_in_use,
                bytes_limit=device.bytes_limit,
            )
            for device in report.devices
            if device.is_local and abs(device.id) <= LARGEST
        ]
    nbytes = dict(report.device_nbytes) if isinstance(report, LiveArrayReport) else {}
    local = {device.id: device_memory(device) for device in processes.local_devices(_platform(report))}
    return [
        HostDevice(id=device, nbytes=nbytes.get(device), **local.get(device, {}))
        for device in sorted({*local, *nbytes})
        if abs(device) <= LARGEST
    ]
