"""The memory of a compiled program: its figures, along its schedule and for the backward pass."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

from ...base import quantities
from ...base.notebooks import Displayed
from ...base.quantities import bytes_apart
from .array import ArrayType
from .compiler_messages import OutOfMemory
from .origin import Origin
from .timeline import MAX_POINTS as MAX_POINTS
from .timeline import MAX_SERIES as MAX_SERIES
from .timeline import Sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardLine:
    """Values of one line for the backward pass."""

    nbytes: quantities.Total | None
    """Bytes of all of them on a device; None if they are not known."""

    global_nbytes: quantities.Total | None = None
    """Bytes of all of them on all devices together, without copies; None for values of a compiled program."""

    count: quantities.Count = 1
    """Number of arrays. One that a loop stacks over its iterations is one."""

    origin: Origin | None = None
    """Line of the operations that compute them; of values that a loop stacks, the line inside the loop."""

    checkpoint_name: str | None = None
    """Name that ``checkpoint_name`` gives them; None for values of a compiled program."""

    is_in_loop: bool = False
    """Whether a loop stacks them over its iterations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedForBackward:
    """What JAX saves for the backward pass, before XLA: the same on all platforms, and for donated arguments.

    The values that equations of the forward pass compute and those of the backward pass read, at the place
    where they have the most bytes: the gradients of one program, one after another, do not add up. Arguments,
    constants and literals are not among them. What a loop saves and reads in the same iteration counts once.
    """

    nbytes: quantities.Total | None = None
    """Bytes on a device, in its own memory. None if the sharding of a value is not known: before JAX 0.10.1,
    and with ``explain=False``."""

    global_nbytes: quantities.Total | None = None
    """Bytes on all devices together, without copies, in their own memory."""

    lines: tuple[BackwardLine, ...] = ()
    """Lines of these values, the most bytes first."""

    offloaded: tuple[BackwardLine, ...] = ()
    """Lines of the values that a remat policy offloads to host memory, which are not in the sums."""

    reason: str | None = None
    """Why the values are not known: ``nested derivatives``; None if they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveAtBackward:
    """Temporary values that are live when the backward pass begins, estimated from XLA's schedule.

    Those that the backward pass does not compute itself. XLA computes some values of the forward pass later,
    or once more, and holds others that JAX does not save, such as gathered arguments.
    """

    nbytes: quantities.Total | None = None
    """Bytes on a device, in its main memory; None if they are not known."""

    vmem_nbytes: quantities.Total = 0
    """Bytes of such values elsewhere, such as in a TPU's VMEM."""

    lines: tuple[BackwardLine, ...] = ()
    """Lines of the values in the main memory, the most bytes first."""

    reason: str | None = None
    """Why they are not known; None if they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Temporary(ArrayType):
    """Equal temporary values at the highest point of the schedule."""

    shape: tuple[quantities.Size, ...]
    """Shape on a device."""

    nbytes: quantities.Size
    """Bytes of one of them."""

    count: quantities.Count = 1
    """Number of equal values."""

    origin: Origin | None = None
    """Line of the operation that computes it. For a value that a scan keeps, the line inside the scan."""

    scopes: tuple[str, ...] = ()
    """Different ``jax.named_scope`` names around the operation, as in ``Collective``."""

    checkpoint_name: str | None = None
    """Name that ``checkpoint_name`` gives the value, where ``jax.checkpoint`` keeps it by a policy."""

    is_kept: bool = False
    """Whether a loop stacks the value over its iterations, as a scan does for the backward pass."""

    is_for_backward: bool = False
    """Whether the value is among those of ``live_at_backward``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramMemory:
    """Memory of a compiled program per device, in bytes. None where the compiler does not report it.

    Figures without ``host`` are those of the device's own memory. Those of host memory are apart: arguments
    and outputs with the memory kind ``pinned_host``, and activations that a remat policy offloads.
    """

    argument_nbytes: quantities.Size | None = None
    """Bytes of the arguments."""

    output_nbytes: quantities.Size | None = None
    """Bytes of the outputs, including those that reuse an argument's memory."""

    alias_nbytes: quantities.Size | None = None
    """Bytes of the outputs that reuse an argument's memory."""

    temporary_nbytes: quantities.Size | None = None
    """Bytes that XLA allocates for temporary values, apart from the memory of outputs."""

    code_nbytes: quantities.Size | None = None
    """Bytes of the program's code."""

    peak_nbytes: quantities.Size | None = None
    """Largest memory use at one time. None on CPU, where XLA's figure leaves out temporary values, and on
    TPU, where it counts those of one of several memories."""

    required_nbytes: quantities.Size | None = None
    """Bytes that the program allocates, to compare with ``available_nbytes``: those of the arguments, of the
    outputs that reuse none of them, and of the temporary values. None without a topology or
    ``hbm_nbytes``."""

    available_nbytes: quantities.Size | None = None
    """Bytes of a device that a program can use, from a table: of a TPU, libtpu's limit, rounded to 10 MiB; of
    a GPU, the memory that its driver reports. Or ``hbm_nbytes``, as it was given; None without both."""

    host_argument_nbytes: quantities.Size | None = None
    """Bytes of the arguments in host memory."""

    host_output_nbytes: quantities.Size | None = None
    """Bytes of the outputs in host memory, including those that reuse an argument's memory."""

    host_alias_nbytes: quantities.Size | None = None
    """Bytes of the outputs in host memory that reuse an argument's memory."""

    host_temporary_nbytes: quantities.Size | None = None
    """Bytes that XLA allocates for temporary values in host memory."""

    temporaries: tuple[Temporary, ...] | None = ()
    """Largest values that are live at the highest point of the schedule, the most bytes first: without
    arguments, outputs and constants, and without values outside of the main memory, such as in a TPU's
    VMEM."""

    live_nbytes: quantities.Total | None = 0
    """Bytes of all such values at that point, estimated from the schedule. More than ``temporary_nbytes``
    where XLA places some of them in the memory of outputs; less where ``temporary_nbytes`` includes gaps, or
    values outside of the main memory."""

    vmem_nbytes: quantities.Total | None = None
    """Most bytes of temporary values in a TPU's VMEM at one time, estimated from the schedule; None for other
    platforms."""

    saved: SavedForBackward | None = None
    """What JAX saves for the backward pass; None without one, or if the program was not traced for the
    report, as a Lowered or a Compiled."""

    live_at_backward: LiveAtBackward | None = None
    """Temporary values that are live when the backward pass begins; None if there is none."""

    elsewhere: tuple[Temporary, ...] | None = ()
    """Largest temporary values that are not live at the highest point, the most bytes first."""

    @property
    def needed_nbytes(self) -> int | None:
        """Bytes that the program needs at one time: the peak; where it is unknown, the sum of the parts."""
        return self.allocated_nbytes if self.peak_nbytes is None else self.peak_nbytes

    @property
    def allocated_nbytes(self) -> int | None:
        """Bytes of the arguments, of the outputs that reuse none of them, and of the temporary values."""
        parts = (self.argument_nbytes, self.output_nbytes, self.temporary_nbytes)
        known = [nbytes for nbytes in parts if nbytes is not None]
        return max(sum(known) - (self.alias_nbytes or 0), 0) if known else None

    @property
    def answer(self) -> str:
        """Bytes that the program needs and a device has, in words. Empty without a topology."""
        if self.required_nbytes is None or self.available_nbytes is None:
            return ""
        needs, has = bytes_apart(self.required_nbytes, self.available_nbytes)
        return f"fits: needs {needs} of {has} per device"

    @property
    def host_nbytes(self) -> int:
        """Bytes in host memory, as far as they are known; memory that an output reuses counts once."""
        parts = (self.host_argument_nbytes, self.host_output_nbytes, self.host_temporary_nbytes)
        return sum(nbytes or 0 for nbytes in parts) - (self.host_alias_nbytes or 0)


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
