"""The report on the memory of a compiled program along its schedule."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

from .. import quantities
from ..notebooks import Displayed
from .origin import Origin
from .program_memory import OutOfMemory
from .timeline import MAX_POINTS as MAX_POINTS
from .timeline import MAX_SERIES as MAX_SERIES
from .timeline import Sizes

ProgramBytes = Literal["arguments", "outputs", "not in the schedule", "line", "other lines"]
"""Bytes that a series contains.

- ``arguments``: the arguments, which are in memory from start to end;
- ``outputs``: memory of the outputs that reuse no argument, without what temporary values use of it;
- ``not in the schedule``: what XLA needs at the peak in addition, such as gaps, alignment and constants;
- ``line``: temporary values of one line;
- ``other lines``: temporary values of all other lines, and of operations without a line.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSeries:
    """Bytes along the schedule that have one origin."""

    kind: ProgramBytes
    """Bytes that it contains."""

    origin: Origin | None = None
    """Line of the operations that compute the values; None for kinds other than ``line``."""

    nbytes: Sizes
    """Bytes at each point."""

    @property
    def name(self) -> str:
        """The line, or the kind."""
        return self.kind if self.origin is None else str(self.origin).rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramTimelineReport(Displayed):
    """Memory of a compiled program along its schedule. Returned by ``program_timeline_report``.

    Bytes are those of one device, without host memory. A loop's body is in the schedule once, at the place of
    the loop; so are branches, one after the other.
    """

    name: str
    """Name of the function."""

    origin: Origin | None = None
    """Line of the function's definition."""

    platform: str
    """Platform that it is compiled for: ``cpu``, ``tpu``, ``gpu``."""

    topology: str | None = None
    """Topology that it is compiled for; None for the devices of this process."""

    operation_count: quantities.Size = 0
    """Number of operations in the schedule."""

    points: tuple[quantities.Size, ...] = ()
    """Operation of each point, counted from 1: the one with the most bytes in its part of the schedule. Parts
    have equal lengths; there are at most 480."""

    operations: tuple[str, ...] = ()
    """Name of the operation of each point in XLA."""

    series: tuple[ProgramSeries, ...] = ()
    """Arguments, outputs and what is not in the schedule; the 12 lines with the most bytes at the peak, the
    most first, of those that have at least 1/1000 of the peak's bytes at some point; and other lines. Those
    without bytes are left out."""

    live_nbytes: tuple[quantities.Total, ...] = ()
    """Bytes of the temporary values at each point, estimated from the schedule: the sum of the lines. The
    largest is ``live_nbytes`` of the memory of a ``ProgramReport``."""

    total_nbytes: tuple[quantities.Total, ...] = ()
    """Sum of all series at each point."""

    peak: quantities.Size | None = None
    """Index of the point of the peak, at which the temporary values have the most bytes; None without
    points."""

    peak_origin: Origin | None = None
    """Line of the operation at the peak; None if it has none."""

    needed_nbytes: quantities.Size | None = None
    """Bytes that the program needs at one time according to XLA; None if the backend does not report it."""

    needed_source: Literal["peak", "sum", "unknown"] = "unknown"
    """Source of ``needed_nbytes``: ``peak``, XLA's own peak; ``sum``, the sum of XLA's arguments, outputs and
    temporary values; ``unknown``, no figures, so that the series have the temporary values only."""

    host_nbytes: quantities.Size = 0
    """Bytes in host memory, which are in no series."""

    out_of_memory: OutOfMemory | None = None
    """The program does not fit: the compiler's refusal. Without points, except for a GPU topology."""

    def __post_init__(self) -> None:
        count = len(self.points)
        if any(after <= before for before, after in itertools.pairwise(self.points)):
            raise ValueError("points that are not in the order of the schedule")
        figures = (self.operations, self.live_nbytes, self.total_nbytes, *(one.nbytes for one in self.series))
        if any(len(each) != count for each in figures):
            raise ValueError(f"figures of other than the {count} points")
        if self.peak is not None and self.peak >= count:
            raise ValueError(f"a peak at point {quantities.format_number(self.peak)} of {count}")

    @property
    def peak_nbytes(self) -> int | None:
        """Sum of all series at the peak; None without points."""
        return None if self.peak is None else self.total_nbytes[self.peak]

    @property
    def excess_nbytes(self) -> int:
        """Bytes of the peak in excess of what XLA needs: the estimate is too large by them."""
        return max((self.peak_nbytes or 0) - self.needed_nbytes, 0) if self.needed_nbytes is not None else 0

    @property
    def peak_words(self) -> str:
        """The peak with its operation: ``peak 2.4 MiB at operation 17 of 240``; empty without points."""
        if self.peak is None:
            return ""
        place = f"operation {self.points[self.peak]} of {self.operation_count}"
        return f"peak {quantities.format_bytes(self.total_nbytes[self.peak])} at {place}"
