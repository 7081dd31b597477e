"""Source lines of a program that move or keep bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from jax_array_info.tables.folds import split_rows
from jax_array_info_core import format_bytes
from jax_array_info_core.layouts.dtypes import type_text
from jax_array_info_core.reports import Collective, Origin, ProgramReport, Temporary

from .. import style
from ..tables.program_words import (
    collective_axes_words,
    counted_path,
    kept_words,
    phase_words,
    scope_words,
    sent_words,
    sharding_words,
    spec_words,
    total_words,
)

_MOST_TEMPORARIES = 4
"""Maximum number of temporaries in the notes of a line."""
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

    _mark_collectives(report.collectives, line_of)
    for one in report.rematerializations:
        if one.origin is not None:
            before = one.before_text if one.before is None else spec_words(one.before, report.mesh)
            after = one.after_text if one.after is None else spec_words(one.after, report.mesh)
            words = counted_path(f"rematerialized from {before} to {after}", one.count, _MARKS)
            size = "" if one.nbytes is None else format_bytes(one.nbytes)
            line_of(one.origin).notes.append((size, words))
    for constraint in report.constraints or ():
        if constraint.origin is not None and (constraint.is_padded or constraint.is_unknown):
            state = "padded inside the program" if constraint.is_padded else "not found in the program"
            words = counted_path(f"{sharding_words(constraint.asked)}, {state}", constraint.count, _MARKS)
            line_of(constraint.origin).notes.append(("", words))
    temporaries = report.memory.temporaries if report.memory is not None else ()
    _mark_temporaries(temporaries, line_of)
    for buffer in report.out_of_memory.buffers if report.out_of_memory is not None else ():
        if buffer.origin is not None:
            line = line_of(buffer.origin)
            line.live_nbytes += buffer.nbytes
            line.notes.append(
                (format_bytes(buffer.nbytes), f"buffer {type_text(buffer.dtype, buffer.shape)}")
            )
    return sorted(lines.values(), key=lambda line: line.cost, reverse=True)


def _mark_collectives(collectives: Iterable[Collective], line_of: Callable[[Origin], MarkedLine]) -> None:
    """Add the collectives to their lines; those with the same words have one note with their sum."""
    alike: dict[tuple[int, str], list[Collective]] = {}
    for one in collectives:
        if one.origin is not None:
            line = line_of(one.origin)
            bound = one.bound_nbytes
            line.sent_nbytes += bound or 0
            line.has_unknown |= bound is None
            line.is_bound |= one.times is None and bound is not None
            alike.setdefault((id(line), ", ".join(_collective_words(one))), []).append(one)
    for (_, words), rows in alike.items():
        assert rows[0].origin is not None
        size = total_words(rows[0])
        if len(rows) > 1:
            unknown = sum(row.times is None for row in rows)
            size = sent_words(sum(row.total_nbytes or 0 for row in rows), unknown)
        line_of(rows[0].origin).notes.append((size, words))


def _mark_temporaries(temporaries: Iterable[Temporary], line_of: Callable[[Origin], MarkedLine]) -> None:
    """Add the largest temporaries to their lines, and the sum of the others of each line."""
    of_line: dict[int, list[Temporary]] = {}
    for one in temporaries:
        if one.origin is not None:
            line = line_of(one.origin)
            line.live_nbytes += one.nbytes * one.count
            of_line.setdefault(id(line), []).append(one)
    for rows in of_line.values():
        assert rows[0].origin is not None
        notes = line_of(rows[0].origin).notes
        shown, rest = split_rows(rows, _MOST_TEMPORARIES)
        notes += [(format_bytes(one.nbytes * one.count), _temporary_words(one)) for one in shown]
        if rest:
            size = format_bytes(sum(one.nbytes * one.count for one in rest))
            notes.append((size, f"{sum(one.count for one in rest)} more, live at the peak"))


def _collective_words(collective: Collective) -> Iterator[str]:
    """Yield the kind, the axes, the argument and the pass of a collective."""
    yield f"{collective.kind} over {collective_axes_words(collective)}"
    if collective.path is not None:
        yield collective.path
    if phase := phase_words(collective):
        yield phase
    yield from _place_words(collective)


def _temporary_words(temporary: Temporary) -> str:
    array = counted_path(type_text(temporary.dtype, temporary.shape), temporary.count, _MARKS)
    kept = kept_words(temporary) or "live at the peak"
    return ", ".join([f"{kept}: {array}", *_place_words(temporary)])


def _place_words(row: Collective | Temporary) -> Iterator[str]:
    """Yield the named scopes of a row, and the lines of its chain but for the one that has the note."""
    if row.scopes:
        yield f"in {scope_words(row.scopes)}"
    if row.origin is not None:
        yield from (f"in {one}" for one in row.origin.skipped)
        yield from (f"from {one}" for one in row.origin.callers)
