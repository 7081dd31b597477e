"""Reports on devices, their memory and its profile."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from ...base import quantities
from ...base.grouping import by_key, sums_by_key
from ...base.notebooks import Displayed
from .origin import Origin

DeviceNbytes: TypeAlias = "tuple[tuple[int, quantities.Size], ...]"
"""``(device id, bytes)``, one pair for each device."""


def fullest_nbytes(device_nbytes: DeviceNbytes) -> int:
    """Return the bytes on the fullest device."""
    return max((nbytes for _, nbytes in device_nbytes), default=0)


def added_nbytes(*device_nbytes: DeviceNbytes) -> DeviceNbytes:
    """Return the sum of several lists of bytes per device, in ascending order of device ids."""
    together = sums_by_key(pair for nbytes in device_nbytes for pair in dict(nbytes).items())
    return tuple(sorted(together.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReport(Displayed):
    """Memory statistics of one device from its allocator."""

    device: str
    """Name of the device, such as ``cuda:0``."""

    stats: tuple[tuple[str, int | float | str], ...] | None
    """``(name, value)`` pairs in the order of the backend, without ``num_allocs``; sizes are in bytes. None
    if the backend provides no statistics."""

    allocation_count: quantities.Size | None = None
    """Number of allocations so far (``num_allocs``); None if the backend does not report it."""

    missing_reason: str | None = None
    """Reason why the statistics are missing; None if they are available."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """Kind and memory statistics of one device."""

    id: int
    """Id of the device, as in ``jax.devices()``."""

    name: str
    """Name, such as ``cuda:0``."""

    platform: str
    """Platform, such as ``gpu``."""

    kind: str
    """Hardware model (JAX's ``device_kind``), such as ``NVIDIA H100 80GB HBM3``."""

    process: int
    """Index of the process that owns the device."""

    is_local: bool
    """Whether this process owns the device. The memory of other processes' devices is unknown."""

    memory_kinds: tuple[str, ...] = ()
    """Memory kinds that the device can address, such as ``device`` and ``pinned_host``."""

    default_memory_kind: str | None = None
    """Memory kind that the device uses by default."""

    bytes_in_use: quantities.Size | None = None
    """Bytes allocated now; None if the backend does not report them."""

    peak_bytes_in_use: quantities.Size | None = None
    """Largest number of bytes allocated at any time so far; None if the backend does not report it."""

    bytes_limit: quantities.Size | None = None
    """Maximum number of bytes that can be allocated; None if the backend does not report it."""

    array_nbytes: quantities.Size | None = None
    """Bytes of live arrays in the default memory of the device. Shared buffers are counted once. None for
    devices of other processes."""

    unexplained_nbytes: quantities.Difference | None = None
    """Bytes in use that belong to no live array: executables, temporaries and fragmentation. At least 0; None
    if ``bytes_in_use`` or ``array_nbytes`` is None."""

    missing_reason: str | None = None
    """Reason why the statistics are missing; None if they are available."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesReport(Displayed):
    """Kind and memory statistics of several devices."""

    devices: tuple[DeviceReport, ...]
    """One report per device, in the order in which they were passed, or in the order of
    ``jax.devices()``."""

    @property
    def has_statistics(self) -> bool:
        """Whether at least one device reports its memory in use."""
        return any(device.bytes_in_use is not None for device in self.devices)


_T = TypeVar("_T", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRow:
    """Bytes of one allocation site on one device."""

    device: str | None
    """Name of the device, such as ``cuda:0``; None if the profile does not give it, as for executables."""

    kind: str
    """``buffer`` or ``executable``; ``unknown`` if the profile does not give it."""

    origin: Origin | None
    """Allocation site: the innermost line of user code, or else the innermost line of any code. None if no
    line is known."""

    nbytes: quantities.Size
    """Bytes in use; 0 for executables if the backend does not report their size, as on CPU."""

    count: quantities.Size
    """Number of buffers or executables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryProfileReport(Displayed):
    """Bytes of each allocation site on each device."""

    rows: tuple[ProfileRow, ...]
    """One row per device, kind and allocation site, sorted by bytes in descending order."""

    device_nbytes: tuple[tuple[str, quantities.Size], ...]
    """``(device, bytes)``: the total of all buffers on each device."""

    @property
    def lines(self) -> dict[str, tuple[ProfileLine, ...]]:
        """Allocation sites by kind (``buffer``, ``executable``), sorted by bytes in descending order."""
        kinds = dict.fromkeys(row.kind for row in self.rows)
        return {kind: _lines([row for row in self.rows if row.kind == kind]) for kind in kinds}

    @property
    def devices_alike(self) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """``(bytes, devices)``. Devices with the same number of bytes share an entry."""
        return _alike((nbytes, device) for device, nbytes in self.device_nbytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileLine:
    """Bytes of one allocation site, the same on each of several devices."""

    devices: tuple[str, ...]
    """Names of the devices; ``unknown`` if the profile does not give them."""

    origin: Origin | None
    """Allocation site; None if unknown."""

    nbytes: quantities.Size
    """Bytes per device."""

    count: quantities.Size
    """Number of buffers or executables per device."""


def _lines(rows: Sequence[ProfileRow]) -> tuple[ProfileLine, ...]:
    """Return one line for all rows that agree in allocation site, bytes and count."""
    alike = _alike(((row.origin, row.nbytes, row.count), row.device or "unknown") for row in rows)
    return tuple(
        ProfileLine(devices=devices, origin=origin, nbytes=nbytes, count=count)
        for (origin, nbytes, count), devices in alike
    )


def lines_together(lines: Sequence[ProfileLine]) -> ProfileLine:
    """Return the sum of several lines on the devices that hold the most of them."""
    nbytes = sums_by_key((device, line.nbytes) for line in lines for device in line.devices)
    counts = sums_by_key((device, line.count) for line in lines for device in line.devices)
    alike = _alike(((nbytes[device], counts[device]), device) for device in counts)
    (nbytes_on_each, count), devices = max(alike, key=lambda entry: entry[0])
    return ProfileLine(devices=devices, origin=None, nbytes=nbytes_on_each, count=count)


def _alike(pairs: Iterable[tuple[_T, str]]) -> tuple[tuple[_T, tuple[str, ...]], ...]:
    """Return each value once, with the names of all devices that have it."""
    return tuple((value, tuple(names)) for value, names in by_key(pairs).items())
