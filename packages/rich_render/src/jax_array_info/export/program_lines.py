"""Source lines of a program that move or keep bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from jax_array_info_core import format_bytes
from jax_array_info_core.grouping import by_key
from jax_array_info_core.layouts.dtypes import type_text
from jax_array_info_core.pages import page
from jax_array_info_core.pages.blocks import Source, Table
from jax_array_info_core.pages.folds import split_rows
from jax_array_info_core.reports import Collective, Origin, ProgramReport, Temporary
from jax_array_info_core.reports.collectives import (
    SLOW_LINKS,
    because_words,
    link_words,
    most_nbytes,
    sent_by,
    sent_words,
)

from .. import style
from ..engine.console import on_console
from ..tables.program_words import (
    collective_axes_words,
    counted_path,
    kept_words,
    phase_words,
    scope_words,
    sharding_words,
    total_words,
)
from .annotated import Annotated
from .source_lines import MARKS, MarkedLine, Note, by_line, caller_notes

_MOST_TEMPORARIES = 4
"""Maximum number of temporaries in the notes of a line."""
_LEAST_SHARE = 1000
"""Part of the largest temporary that one with a note has at least."""
SENT = style.WARNING
KEPT = "cyan"
"""Styles of the bytes that a line sends and keeps."""
TITLE = Text.assemble(
    "lines that ", ("move", SENT), " or ", ("keep", KEPT), " bytes, per device and call", style="bold"
)
"""Title, whose colors are those of the bytes."""


@dataclass(slots=True)
class ProgramLine(MarkedLine):
    """A source line with its collectives, its temporaries and its findings."""

    sent_nbytes: int = 0
    """Bytes that its collectives send, or can send at most."""
    has_unknown: bool = False
    """Whether some of its collectives have an unknown number of executions."""
    is_bound: bool = False
    """Whether ``sent_nbytes`` is an upper bound."""
    live_nbytes: int = 0
    """Bytes of its values at the peak."""

    @property
    def cost(self) -> tuple[int, int, int]:
        """Sort key: the more bytes, the larger."""
        return self.sent_nbytes, self.has_unknown, self.live_nbytes

    @property
    def weight(self) -> int:
        """Bytes that it sends."""
        return self.sent_nbytes

    @property
    def cells(self) -> tuple[str, ...]:
        """Bytes that it sends and keeps."""
        live = format_bytes(self.live_nbytes) if self.live_nbytes else ""
        if not self.sent_nbytes:
            return "?" if self.has_unknown else "", live
        bound = f"{MARKS.at_most} " if self.is_bound else ""
        return f"{bound}{format_bytes(self.sent_nbytes)}{' + ?' if self.has_unknown else ''}", live


def program_part(report: ProgramReport, max_rows: int | None = 20) -> Annotated:
    """Return a program as a part of a document: its summary, its source with marked lines, then its tables.

    Args:
        report: The program.
        max_rows: Maximum number of rows of each table.
    """
    blocks = [*page(report, max_rows=max_rows)]
    place = next(place for place, block in enumerate(blocks) if isinstance(block, Source))
    tables = [block for block in blocks if isinstance(block, Table)]
    return Annotated(
        report,
        program_lines(report),
        TITLE,
        ("sent", "live"),
        summary=lambda width: on_console(blocks[:place], width=width),
        details=lambda width: on_console(tables, width=width),
        max_rows=max_rows,
    )


def program_lines(report: ProgramReport) -> list[ProgramLine]:
    """Return the lines of the user's code that move or keep bytes, the costliest first."""
    lines: dict[tuple[str, int], ProgramLine] = {}

    def line_of(origin: Origin) -> ProgramLine:
        return lines.setdefault((origin.file, origin.line), ProgramLine(origin))

    _mark_collectives(report.collectives, line_of)
    for one in report.rematerializations:
        if one.origin is not None:
            change = f"resharded by full replication {one.change(report.mesh)}".rstrip()
            words = counted_path(change, one.count, MARKS)
            each = "" if one.count == 1 else " each"
            size = "" if one.nbytes is None else f"{format_bytes(one.nbytes)}{each}"
            line_of(one.origin).notes.append(Note(words, size, SENT))
    for constraint in report.constraints or ():
        if constraint.origin is not None and (constraint.is_padded or constraint.is_unknown):
            state = "padded inside the program" if constraint.is_padded else "not found in the program"
            words = counted_path(f"{sharding_words(constraint.asked)}, {state}", constraint.count, MARKS)
            line_of(constraint.origin).notes.append(Note(words))
    temporaries = report.memory.temporaries if report.memory is not None else ()
    _mark_temporaries(temporaries, line_of)
    for buffer in report.out_of_memory.buffers if report.out_of_memory is not None else ():
        if buffer.origin is not None:
            line = line_of(buffer.origin)
            line.live_nbytes += buffer.nbytes
            words = f"buffer {type_text(buffer.dtype, buffer.shape)}"
            line.notes.append(Note(words, format_bytes(buffer.nbytes), KEPT))
    return sorted(lines.values(), key=lambda line: line.cost, reverse=True)


def _mark_collectives(collectives: Iterable[Collective], line_of: Callable[[Origin], ProgramLine]) -> None:
    """Add the collectives to their lines; those with the same words have one note with their sum."""
    for line, ones in by_line(collectives, lambda one: one.origin, line_of):
        bounded = [one for one in ones if one.bound_nbytes is not None]
        line.has_unknown = len(bounded) < len(ones)
        line.sent_nbytes = most_nbytes(bounded) or 0
        line.is_bound = any(one.times is None for one in bounded)
        for words, alike in by_key((", ".join(_collective_words(one)), one) for one in ones).items():
            several = len(alike) > 1
            size = sent_words(sent_by(alike), has_loops=False) if several else total_words(alike[0])
            line.notes.append(Note(words, size, SENT))


def _mark_temporaries(temporaries: Sequence[Temporary], line_of: Callable[[Origin], ProgramLine]) -> None:
    """Add the largest temporaries to their lines, and the sum of the others of each line.

    Scalars such as the counters of loops have no notes where other temporaries are far larger.
    """
    least = max((one.nbytes * one.count for one in temporaries), default=0) / _LEAST_SHARE
    large = [one for one in temporaries if one.nbytes * one.count >= least]
    for line, ones in by_line(large, lambda one: one.origin, line_of):
        line.live_nbytes += sum(one.nbytes * one.count for one in ones)
        shown, rest = split_rows(ones, _MOST_TEMPORARIES)
        line.notes += [
            Note(_temporary_words(one), format_bytes(one.nbytes * one.count), KEPT) for one in shown
        ]
        if rest:
            size = format_bytes(sum(one.nbytes * one.count for one in rest))
            line.notes.append(Note(f"{sum(one.count for one in rest)} more, live at once", size, KEPT))


def _collective_words(collective: Collective) -> Iterator[str]:
    """Yield the kind, the axes, the argument and the pass of a collective."""
    yield f"{collective.kind} over {collective_axes_words(collective)}"
    if collective.link in SLOW_LINKS:
        yield f"by {link_words(collective.link)}"
    if collective.path is not None:
        yield collective.path
    if phase := phase_words(collective):
        yield phase
    if collective.origin is not None and collective.origin.is_near:
        yield "near this line"
    if because := because_words(collective):
        yield f"because {because}"
    yield from _place_words(collective)


def _temporary_words(temporary: Temporary) -> str:
    array = counted_path(type_text(temporary.dtype, temporary.shape), temporary.count, MARKS)
    kept = kept_words(temporary) or "live at once"
    return ", ".join([f"{kept}: {array}", *_place_words(temporary)])


def _place_words(row: Collective | Temporary) -> Iterator[str]:
    """Yield the named scopes of a row, and the lines of its chain but for the one that has the note."""
    if row.scopes:
        yield f"in {scope_words(row.scopes)}"
    if row.origin is not None:
        yield from caller_notes(row.origin)
