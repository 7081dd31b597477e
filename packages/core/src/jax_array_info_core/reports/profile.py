"""The report on a memory profile."""

from __future__ import annotations

from dataclasses import dataclass

from .origin import Origin


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
