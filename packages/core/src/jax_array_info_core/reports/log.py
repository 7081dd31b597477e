"""The report on the log of a finished run."""

from __future__ import annotations

from dataclasses import dataclass

from ..layouts.spec import MeshAxes
from ..notebooks import Displayed
from .program import Rematerialization


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusableDonation:
    """Donated buffers that JAX could not use, from its warning "Some donated buffers were not usable"."""

    shape: tuple[int, ...]
    """Shape in the warning: that of one device."""

    dtype: str
    """Name of the dtype."""

    nbytes: int | None
    """Bytes of one buffer; None if the dtype is unknown."""

    count: int = 1
    """Number of buffers of this type in all warnings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReport(Displayed):
    """Rematerialization and donation warnings in a log. Returned by ``log_report``."""

    name: str | None
    """Path of the log; ``-`` for standard input."""

    mesh: MeshAxes | None = None
    """Mesh that the shardings are translated to; None if none was given."""

    line_count: int = 0
    """Number of lines."""

    rematerializations: tuple[Rematerialization, ...] = ()
    """Values that XLA replicates and shards again, each once with its count, the most bytes first."""

    donations: tuple[UnusableDonation, ...] = ()
    """Donated buffers that JAX could not use, the most bytes first."""

    unread: tuple[str, ...] = ()
    """Warnings of these kinds in a wording that could not be read, at most 100 different ones."""

    unlisted_count: int = 0
    """Number of further warnings that are in no row: 10,000 different ones of a kind are listed, and eight
    million characters of different warnings are read."""
