"""Source lines of a program that move or keep bytes."""

from __future__ import annotations

import io
import linecache
import tokenize
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from jax_array_info.tables.folds import split_rows
from jax_array_info_core import config, format_bytes
from jax_array_info_core.errors import FileFormatError
from jax_array_info_core.layouts.dtypes import type_text
from jax_array_info_core.quantities import counted
from jax_array_info_core.reports import Collective, Origin, ProgramReport, Temporary
from jax_array_info_core.stored.reading import Budget, read_whole

from .. import style
from ..tables.program_words import (
    because_words,
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

_MOST_BYTES = 2**21
"""Maximum size of a source file."""
_LONGEST_FUNCTION = 40
"""Functions of up to this number of lines are shown whole."""
_AROUND = 4
"""Number of lines before and after a line in a longer function."""
_SHORTEST_GAP = 3
"""Shorter gaps between shown lines are filled."""
_SHARED_NAMES = ("<string>", "<stdin>", "<unknown>")
"""Names that several sources share: Python 3.13 keeps the source of ``python -c`` as ``<string>``."""
_STARTS = ("def ", "async def ")


def source_lines(file: str) -> list[str]:
    """Return the lines of a Python file, or of a notebook cell; empty if they cannot be read.

    A report can come from someone else's JSON: only files whose name ends in ``.py`` are read.

    Args:
        file: Path or name, as Python records it.
    """
    if file.endswith(".py"):
        try:
            return _decoded(read_whole(Path(file), Budget(_MOST_BYTES)))
        except (OSError, FileFormatError, SyntaxError, ValueError):
            pass
    is_name = file.startswith("<") and file.endswith(">") and file not in _SHARED_NAMES
    if is_name or (file in linecache.cache and not file.startswith("<")):
        return [line.rstrip("\r\n") for line in linecache.getlines(file)]
    return []


def _decoded(data: bytes) -> list[str]:
    """Return the lines of a source file, in the encoding that it declares.

    Raises:
        SyntaxError: If it declares an unknown encoding.
        ValueError: If it is not text.
    """
    if b"\0" in data:
        raise ValueError("a binary file")
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    # As in Python, form feeds and other separators of str.splitlines are within a line.
    text = data.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
    return text.removesuffix("\n").split("\n")


def shown_ranges(lines: Sequence[str], numbers: Iterable[int]) -> list[range]:
    """Return the ranges of line numbers to show, from 1: short functions as a whole, others in part.

    Functions are found by indentation, so a range can be wrong for unusual source, but never fails.

    Args:
        lines: The lines of the file.
        numbers: Line numbers within the file.
    """
    wanted = sorted({shown for number in numbers for shown in _around(lines, number)})
    ranges: list[range] = []
    for number in wanted:
        if ranges and number - ranges[-1].stop < _SHORTEST_GAP:
            ranges[-1] = range(ranges[-1].start, number + 1)
        else:
            ranges.append(range(number, number + 1))
    return ranges


def _around(lines: Sequence[str], number: int) -> Iterator[int]:
    """Yield the line numbers to show around a line."""
    start = _function_start(lines, number)
    stop = len(lines) if start is None else _function_stop(lines, start)
    if start is not None and stop - start <= _LONGEST_FUNCTION:
        yield from range(start, stop)
        return
    if start is not None:
        yield start
    yield from range(max(1, number - _AROUND), min(len(lines), number + _AROUND) + 1)


def _function_start(lines: Sequence[str], number: int) -> int | None:
    """Return the line number of the function around a line; None in module-level code."""
    indent = _indent(lines[number - 1])
    for candidate in range(number, 0, -1):
        line = lines[candidate - 1]
        if not line.strip():
            continue
        is_outside = _indent(line) < indent or candidate == number
        if is_outside and line.lstrip().startswith(_STARTS):
            return candidate
        indent = min(indent, _indent(line))
    return None


def _function_stop(lines: Sequence[str], start: int) -> int:
    """Return the line number after the last line of a function."""
    indent, last = _indent(lines[start - 1]), start
    for number in range(start + 1, len(lines) + 1):
        line = lines[number - 1]
        if not line.strip():
            continue
        # The closing parenthesis of a signature is not indented.
        if _indent(line) <= indent and not line.lstrip().startswith((")", "]", "}")):
            break
        last = number
    return last + 1


def _indent(line: str) -> int:
    return len(line.expandtabs()) - len(line.expandtabs().lstrip())


_MOST_TEMPORARIES = 4
"""Maximum number of temporaries in the notes of a line."""
_LEAST_SHARE = 1000
"""Part of the largest temporary that one with a note has at least."""
_MARKS = style.marks("utf-8")
SENT = style.WARNING
KEPT = "cyan"
"""Styles of the bytes that a line sends and keeps."""


class Note(NamedTuple):
    """A collective, a temporary or a finding of a line."""

    words: str
    size: str = ""
    """Its bytes; may be empty."""

    look: str = ""
    """Style of the bytes."""


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
    notes: list[Note] = field(default_factory=list)
    """Its collectives, temporaries and findings."""

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
            words = counted_path(f"resharded by full replication from {before} to {after}", one.count, _MARKS)
            size = "" if one.nbytes is None else format_bytes(one.nbytes)
            line_of(one.origin).notes.append(Note(words, size, SENT))
    for constraint in report.constraints or ():
        if constraint.origin is not None and (constraint.is_padded or constraint.is_unknown):
            state = "padded inside the program" if constraint.is_padded else "not found in the program"
            words = counted_path(f"{sharding_words(constraint.asked)}, {state}", constraint.count, _MARKS)
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
        line_of(rows[0].origin).notes.append(Note(words, size, SENT))


def _mark_temporaries(temporaries: Sequence[Temporary], line_of: Callable[[Origin], MarkedLine]) -> None:
    """Add the largest temporaries to their lines, and the sum of the others of each line.

    Scalars such as the counters of loops have no notes where other temporaries are far larger.
    """
    of_line: dict[int, list[Temporary]] = {}
    least = max((one.nbytes * one.count for one in temporaries), default=0) / _LEAST_SHARE
    for one in temporaries:
        if one.origin is not None and one.nbytes * one.count >= least:
            line = line_of(one.origin)
            line.live_nbytes += one.nbytes * one.count
            of_line.setdefault(id(line), []).append(one)
    for rows in of_line.values():
        assert rows[0].origin is not None
        notes = line_of(rows[0].origin).notes
        shown, rest = split_rows(rows, _MOST_TEMPORARIES)
        notes += [Note(_temporary_words(one), format_bytes(one.nbytes * one.count), KEPT) for one in shown]
        if rest:
            size = format_bytes(sum(one.nbytes * one.count for one in rest))
            notes.append(Note(f"{sum(one.count for one in rest)} more, live at once", size, KEPT))


def _collective_words(collective: Collective) -> Iterator[str]:
    """Yield the kind, the axes, the argument and the pass of a collective."""
    yield f"{collective.kind} over {collective_axes_words(collective)}"
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
    array = counted_path(type_text(temporary.dtype, temporary.shape), temporary.count, _MARKS)
    kept = kept_words(temporary) or "live at once"
    return ", ".join([f"{kept}: {array}", *_place_words(temporary)])


def _place_words(row: Collective | Temporary) -> Iterator[str]:
    """Yield the named scopes of a row, and the lines of its chain but for the one that has the note.

    As in tables, ``config.callers`` adds the lines that called it.
    """
    if row.scopes:
        yield f"in {scope_words(row.scopes)}"
    if row.origin is not None:
        yield from (f"in {one}" for one in row.origin.skipped)
        yield from (f"from {one}" for one in row.origin.callers[: config.callers - 1])


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A line of source, or the lines that are left out before the next one."""

    number: int
    """Line number, from 1."""

    code: str = ""
    """Text of the line; empty if it could not be read."""

    line: MarkedLine | None = None
    """Its bytes and notes, if it has any."""

    left_out: str = ""
    """Number of lines that are left out from this one on, in words; empty for a line that is shown."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The source around the marked lines of a file, then those that could not be read."""

    path: str
    """Path as Python records it, or the notebook cell."""

    name: str
    """Name without folders, or the notebook cell."""

    note: str
    """Whether the source could not be read, in words."""

    rows: tuple[SourceRow, ...]

    @property
    def digits(self) -> int:
        """Largest number of digits of a line number."""
        return max(len(str(row.number)) for row in self.rows if not row.left_out)


def source_files(lines: Sequence[MarkedLine]) -> list[SourceFile]:
    """Return the source around marked lines, by file; the file of the first line first."""
    by_file: dict[str, dict[int, MarkedLine]] = {}
    for line in lines:
        by_file.setdefault(line.origin.file, {})[line.origin.line] = line
    return [_source_file(file, marked) for file, marked in by_file.items()]


def _source_file(file: str, marked: dict[int, MarkedLine]) -> SourceFile:
    source = source_lines(file)
    origin = next(iter(marked.values())).origin
    return SourceFile(
        path=file if origin.cell is None else origin.name,
        name=origin.name,
        note="" if source else "source not available",
        rows=tuple(_source_rows(source, marked)),
    )


def _source_rows(source: Sequence[str], marked: dict[int, MarkedLine]) -> Iterator[SourceRow]:
    inside = [number for number in marked if 1 <= number <= len(source)]
    after = 1
    for shown in shown_ranges(source, inside):
        yield from _gap(after, shown.start)
        for number in shown:
            yield SourceRow(number, source[number - 1].expandtabs(), marked.get(number))
        after = shown.stop
    if inside:
        yield from _gap(after, len(source) + 1)
    for number in sorted(set(marked) - set(inside)):
        yield SourceRow(number, marked[number].origin.code.expandtabs(), marked[number])


def _gap(start: int, stop: int) -> Iterator[SourceRow]:
    """Yield a row for lines that are left out, if there are any."""
    if start < stop:
        yield SourceRow(start, left_out=f"{_MARKS.skipped_rows} {counted(stop - start, 'line', 'lines')}")
