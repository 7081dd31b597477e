"""Report on a device memory profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..notebooks import Displayed
from .origin import Origin

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

    nbytes: int
    """Bytes in use; 0 for executables if the backend does not report their size, as on CPU."""

    count: int
    """Number of buffers or executables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryProfileReport(Displayed):
    """Bytes of each allocation site on each device."""

    rows: tuple[ProfileRow, ...]
    """One row per device, kind and allocation site, sorted by bytes in descending order."""

    device_nbytes: tuple[tuple[str, int], ...]
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

    nbytes: int
    """Bytes per device."""

    count: int
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
    nbytes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for line in lines:
        for device in line.devices:
            nbytes[device] += line.nbytes
            counts[device] += line.count
    alike = _alike(((nbytes[device], counts[device]), device) for device in counts)
    (nbytes_on_each, count), devices = max(alike, key=lambda entry: entry[0])
    return ProfileLine(devices=devices, origin=None, nbytes=nbytes_on_each, count=count)


def _alike(pairs: Iterable[tuple[_T, str]]) -> tuple[tuple[_T, tuple[str, ...]], ...]:
    """Return each value once, with the names of all devices that have it."""
    names_of: dict[_T, list[str]] = {}
    for value, name in pairs:
        names_of.setdefault(value, []).append(name)
    return tuple((value, tuple(names)) for value, names in names_of.items())
