"""Memory of a compiled program, and of one that does not fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from ..hlo.liveness import LiveBytes, live_bytes_of, read_assignment
from ..hlo.module import Module
from ..hlo.oom_logs import ListedBuffer, Refusal, read_out_of_memory
from ..origins.origins import UserLines
from ..reports.origin import Origin
from ..reports.program import Donation, ProgramReport, ProgramValue
from ..reports.program_memory import (
    MAX_POINTS,
    MAX_SERIES,
    LargeBuffer,
    OutOfMemory,
    ProgramMemory,
    ProgramSeries,
    ProgramTimelineReport,
)
from ..text import printable

_LEAST_SHARE = 1000
"""Part of the bytes at the peak that a line of its own has at least, at some point."""


def with_host_apart(
    memory: ProgramMemory,
    arguments: Iterable[ProgramValue],
    outputs: Iterable[ProgramValue],
    donations: Iterable[Donation],
) -> ProgramMemory:
    """Return the memory of a program with the bytes of arguments and outputs in host memory apart.

    XLA tells them apart on TPU and GPU. On CPU, its figures of host memory are 0, and those of the device
    include them.

    Args:
        memory: XLA's figures.
        arguments: The arguments.
        outputs: The outputs.
        donations: The donated arguments.
    """
    kept = [value for value in arguments if value.is_in_host_memory and not value.is_pruned]
    paths = {value.path for value in kept}
    hosted = {
        "argument_nbytes": sum(value.nbytes or 0 for value in kept),
        "output_nbytes": sum(value.nbytes or 0 for value in outputs if value.is_in_host_memory),
        "alias_nbytes": sum(one.nbytes for one in donations if one.output is not None and one.path in paths),
    }
    moved: dict[str, Any] = {}
    for name, nbytes in hosted.items():
        on_device = getattr(memory, name)
        if nbytes and on_device is not None and not getattr(memory, f"host_{name}"):
            part = min(nbytes, on_device)
            moved |= {name: on_device - part, f"host_{name}": part}
    return replace(memory, **moved)


def timeline_of(
    report: ProgramReport, memory: ProgramMemory, module: Module, lines: UserLines
) -> ProgramTimelineReport:
    """Return the memory of a program along its schedule.

    Temporary values are those of the schedule, arguments and outputs the figures of XLA. Outputs have the
    memory that XLA reports, less what the temporary values need of it: XLA places some of them in it.

    Args:
        report: The program.
        memory: Its memory.
        module: The compiled program.
        lines: The search for the user's line.
    """
    live = live_bytes_of(module, lines.nearest, MAX_POINTS)
    peak = max(range(len(live.points)), key=live.nbytes.__getitem__)
    series = [*_of_xla(memory, live.nbytes, peak), *_of_lines(live, peak, lines)]
    series = [one for one in series if any(one.nbytes)]
    needed = memory.needed_nbytes
    return ProgramTimelineReport(
        name=report.name,
        origin=report.origin,
        platform=report.platform,
        topology=report.topology,
        operation_count=live.operation_count,
        points=live.points,
        operations=tuple(one.name for one in live.operations),
        series=tuple(series),
        live_nbytes=live.nbytes,
        total_nbytes=tuple(sum(one.nbytes[point] for one in series) for point in range(len(live.points))),
        peak=peak,
        peak_origin=lines.origin(live.operations[peak].frames),
        needed_nbytes=needed,
        needed_source="unknown" if needed is None else "sum" if memory.peak_nbytes is None else "peak",
        host_nbytes=memory.host_nbytes,
        out_of_memory=report.out_of_memory,
    )


def _of_xla(memory: ProgramMemory, live: Sequence[int], peak: int) -> Iterable[ProgramSeries]:
    """Yield arguments, outputs, and what XLA needs at the peak in addition."""
    needed = memory.needed_nbytes
    if needed is None:
        return
    arguments = memory.argument_nbytes or 0
    outputs = max((memory.output_nbytes or 0) - (memory.alias_nbytes or 0), 0)
    free = [min(outputs, max(needed - arguments - nbytes, 0)) for nbytes in live]
    rest = max(needed - arguments - free[peak] - live[peak], 0)
    yield ProgramSeries(kind="arguments", nbytes=(arguments,) * len(live))
    yield ProgramSeries(kind="outputs", nbytes=tuple(free))
    yield ProgramSeries(kind="not in the schedule", nbytes=(rest,) * len(live))


def _of_lines(live: LiveBytes, peak: int, lines: UserLines) -> Iterable[ProgramSeries]:
    """Yield the lines with the most bytes at the peak, then the others together."""
    changes: dict[Origin | None, list[int]] = {}
    places: dict[tuple[str, int, str], Origin] = {}
    for value, ranges in live.values:
        origin = lines.origin(value.frames)
        if origin is not None:  # calls of a line from several places are one line
            origin = places.setdefault((origin.file, origin.line, origin.function), origin)
        of_line = changes.setdefault(origin, [0] * (len(live.points) + 1))
        for first, last in ranges:
            of_line[first] += value.shape.nbytes
            of_line[last + 1] -= value.shape.nbytes
    found = {origin: tuple(accumulate(of_line[:-1])) for origin, of_line in changes.items()}
    without_line = found.pop(None, None)
    large = [origin for origin, nbytes in found.items() if max(nbytes) * _LEAST_SHARE >= live.nbytes[peak]]
    large.sort(key=lambda origin: (-found[origin][peak], -max(found[origin])))
    for origin in large[:MAX_SERIES]:
        yield ProgramSeries(kind="line", origin=origin, nbytes=found.pop(origin))
    rest = [*found.values()]
    rest += [] if without_line is None else [without_line]
    if rest:
        yield ProgramSeries(kind="other lines", nbytes=tuple(map(sum, zip(*rest, strict=True))))


_LONGEST = 300
_ROUNDED = 256
"""Unit to which the allocator for GPUs rounds bytes up."""


def out_of_memory_of(
    message: str, module: Module | None, assignment: Any, lines: UserLines
) -> OutOfMemory | None:
    """Return the compiler's refusal of a program; None if a message is about something else.

    Args:
        message: The whole message of the compiler.
        module: The program that was refused; None if it is not known.
        assignment: XLA's ``BufferAssignmentProto`` of it; None if it is not known.
        lines: The search for the user's line.
    """
    refusal = read_out_of_memory(message)
    if refusal is None:
        return None
    required, buffers = refusal.required_nbytes, refusal.buffers
    if module is not None and assignment is not None:
        # The message of some versions has the temporary values only, or a single buffer.
        assigned = read_assignment(assignment, module, lines.nearest)
        required = assigned.nbytes or required
        buffers = assigned.buffers or buffers
    return OutOfMemory(
        is_program_known=module is not None,
        message=printable(refusal.message[:_LONGEST]),
        required_nbytes=required,
        available_nbytes=refusal.available_nbytes,
        buffers=_listed(buffers, lines),
    )


def _listed(buffers: Iterable[ListedBuffer], lines: UserLines) -> tuple[LargeBuffer, ...]:
    """Return the rows of a table with the user's lines."""
    return tuple(
        LargeBuffer(
            nbytes=buffer.nbytes,
            shape=buffer.shape.dims,
            dtype=buffer.shape.dtype,
            op=buffer.op,
            origin=lines.origin(buffer.frames),
        )
        for buffer in buffers
    )


def logged_errors(counts: dict[Refusal, int], lines: UserLines) -> tuple[OutOfMemory, ...]:
    """Return the errors in a log, in its order.

    What precedes an error in the log is left out where the error follows. The error then has the free bytes
    of the allocator's warning, and the buffers of libtpu's report.

    Args:
        counts: Number of equal errors.
        lines: The search for the user's line.
    """
    firsts = [found for found in counts if found.is_warning]
    errors = [found for found in counts if not found.is_warning]
    pairs = [(first, error) for first in firsts for error in errors if _precedes(first, error)]
    left_out, before = {first for first, _ in pairs}, {error: first for first, error in pairs}
    rows = ((before.get(found, found), found, count) for found, count in counts.items())
    return tuple(
        OutOfMemory(
            message=printable(found.message[:_LONGEST]),
            required_nbytes=found.required_nbytes,
            available_nbytes=found.available_nbytes,
            requested_nbytes=found.requested_nbytes,
            free_nbytes=first.free_nbytes if found.free_nbytes is None else found.free_nbytes,
            buffers=_listed(found.buffers or first.buffers, lines),
            count=count,
        )
        for first, found, count in rows
        if found not in left_out
    )


def _precedes(first: Refusal, error: Refusal) -> bool:
    """Return whether the line of a log is that before an error: of the same allocation, or program."""
    if first.requested_nbytes is not None:
        return _rounded(first) == _rounded(error)
    sizes = [(one.requested_nbytes, one.required_nbytes, one.available_nbytes) for one in (first, error)]
    return sizes[0] == sizes[1] and error.module in ("", first.module)


def _rounded(found: Refusal) -> int | None:
    """Return the bytes that the allocator for GPUs was asked for."""
    return None if found.requested_nbytes is None else -(-found.requested_nbytes // _ROUNDED) * _ROUNDED
