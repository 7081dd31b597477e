"""The report on a memory profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from .origin import Origin

_T = TypeVar("_T", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRow:
    """What one line of source holds on one device."""

    device: str | None
    """Name of the device, such as ``cuda:0``; None where the profile does not tell, as of executables."""

    kind: str
    """``buffer`` or ``executable``; ``unknown`` where the profile does not tell."""

    origin: Origin | None
    """The innermost line of the user's code; of JAX's or another library's where none is the user's,
    None where no line is known."""

    nbytes: int
    """Bytes that are held; 0 for executables where the backend does not tell their size, as that of CPU."""

    count: int
    """How many buffers or executables these are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryProfileReport:
    """What each line of source holds on each device."""

    rows: tuple[ProfileRow, ...]
    """The most bytes first."""

    device_nbytes: tuple[tuple[str, int], ...]
    """``(device, bytes)``: the buffers on each device, together."""

    @property
    def lines(self) -> dict[str, tuple[ProfileLine, ...]]:
        """The lines of source, by kind, the most bytes first."""
        kinds = dict.fromkeys(row.kind for row in self.rows)
        return {kind: _lines([row for row in self.rows if row.kind == kind]) for kind in kinds}

    @property
    def devices_alike(self) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """``(bytes, devices)``: the devices whose buffers take the same number of bytes."""
        return _alike((nbytes, device) for device, nbytes in self.device_nbytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileLine:
    """What one line of source holds on each of several devices, the same on all of them."""

    devices: tuple[str, ...]
    """Names of the devices; ``unknown`` where the profile does not tell."""

    origin: Origin | None
    """The line, None where it is not known."""

    nbytes: int
    """Bytes that are held on each."""

    count: int
    """Number of buffers or executables on each."""


def _lines(rows: Sequence[ProfileRow]) -> tuple[ProfileLine, ...]:
    """Return rows of one kind, those of the same line, bytes and count as one."""
    alike = _alike(((row.origin, row.nbytes, row.count), row.device or "unknown") for row in rows)
    return tuple(
        ProfileLine(devices=devices, origin=origin, nbytes=nbytes, count=count)
        for (origin, nbytes, count), devices in alike
    )


def lines_together(lines: Sequence[ProfileLine]) -> ProfileLine:
    """Return several lines as one, with what the devices that hold the most of them hold."""
    nbytes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for line in lines:
        for device in line.devices:
            nbytes[device] += line.nbytes
            counts[device] += line.count
    alike = _alike(((nbytes[device], counts[device]), device) for device in counts)
    (most, count), devices = max(alike, key=lambda held: held[0])
    return ProfileLine(devices=devices, origin=None, nbytes=most, count=count)


def _alike(pairs: Iterable[tuple[_T, str]]) -> tuple[tuple[_T, tuple[str, ...]], ...]:
    """Return what is alike once, with the names of its devices."""
    found: dict[_T, list[str]] = {}
    for thing, name in pairs:
        found.setdefault(thing, []).append(name)
    return tuple((thing, tuple(names)) for thing, names in found.items())
