"""Source lines of a program that move or keep bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from jax_array_info_core import Collective, Origin, ProgramReport, Temporary, format_bytes
from jax_array_info_core.layouts.dtypes import type_text

from .. import style
from ..tables.program_values import differs
from ..tables.program_words import (
    bound_of,
    collective_axes_words,
    counted_path,
    phase_words,
    sharding_words,
    spec_words,
    total_words,
)

_MARKS = style.marks("utf-8")


@dataclass(slots=True)
class MarkedLine:
    """A source line with its collectives, its temporaries and its findings."""

    origin: Origin
    sent_nbytes: int = 0
    """Bytes that its collectives send, or can send at most."""
    has_unknown: bool = False
    """Whether some of its collectives have an unknown number of executions."""
    is_bound: bool = False
    """Whether ``sent_nbytes`` is an upper bound."""
    live_nbytes: int = 0
    """Bytes of its values at the peak."""
    notes: list[tuple[str, str]] = field(default_factory=list)
    """Bytes and words of each collective, temporary or finding; the bytes may be empty."""

    @property
    def cost(self) -> tuple[int, int, int]:
        """Sort key: the more bytes, the larger."""
        return self.sent_nbytes, self.has_unknown, self.live_nbytes


def marked_lines(report: ProgramReport) -> list[MarkedLine]:
    """Return the lines of the user's code that move or keep bytes, the costliest first."""
    lines: dict[tuple[str, int], MarkedLine] = {}

    def line_of(origin: Origin) -> MarkedLine:
        return lines.setdefault((origin.file, origin.line), MarkedLine(origin))

    for collective in report.collectives:
        if collective.origin is not None:
            line = line_of(collective.origin)
            bound = bound_of(collective)
            line.sent_nbytes += bound or 0
            line.has_unknown |= bound is None
            line.is_bound |= collective.times is None and bound is not None
            line.notes.append((total_words(collective), ", ".join(_collective_words(collective))))
    for one in report.rematerializations:
        if one.origin is not None:
            before = one.before_text if one.before is None else spec_words(one.before, report.mesh)
            after = one.after_text if one.after is None else spec_words(one.after, report.mesh)
            words = counted_path(f"rematerialized from {before} to {after}", one.count, _MARKS)
            size = "" if one.nbytes is None else format_bytes(one.nbytes)
            line_of(one.origin).notes.append((size, words))
    for constraint in report.constraints or ():
        if constraint.origin is not None and differs(constraint):
            asked, got = sharding_words(constraint.asked), sharding_words(constraint.got)
            words = counted_path(f"asked {asked}, got {got}", constraint.count, _MARKS)
            line_of(constraint.origin).notes.append(("", words))
    for temporary in report.memory.temporaries if report.memory is not None else ():
        if temporary.origin is not None:
            line = line_of(temporary.origin)
            line.live_nbytes += temporary.nbytes * temporary.count
            line.notes.append((format_bytes(temporary.nbytes * temporary.count), _temporary_words(temporary)))
    for buffer in report.out_of_memory.buffers if report.out_of_memory is not None else ():
        if buffer.origin is not None:
            line = line_of(buffer.origin)
            line.live_nbytes += buffer.nbytes
            line.notes.append(
                (format_bytes(buffer.nbytes), f"buffer {type_text(buffer.dtype, buffer.shape)}")
            )
    return sorted(lines.values(), key=lambda line: line.cost, reverse=True)


def _collective_words(collective: Collective) -> Iterator[str]:
    """Yield the kind, the axes, the argument and the pass of a collective."""
    yield f"{collective.kind} over {collective_axes_words(collective)}"
    if collective.path is not None:
        yield collective.path
    if phase := phase_words(collective):
        yield phase


def _temporary_words(temporary: Temporary) -> str:
    array = counted_path(type_text(temporary.dtype, temporary.shape), temporary.count, _MARKS)
    return f"{'kept by a loop' if temporary.is_kept else 'live at the peak'}: {array}"
