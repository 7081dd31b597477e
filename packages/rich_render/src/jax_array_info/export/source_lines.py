"""Lines of the user's source with notes in their margin."""

from __future__ import annotations

import io
import linecache
import tokenize
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, TypeVar

from rich.text import Text

from jax_array_info_core import config
from jax_array_info_core.base.grouping import by_key
from jax_array_info_core.base.quantities import counted
from jax_array_info_core.base.text import clipped
from jax_array_info_core.errors import FileFormatError
from jax_array_info_core.facts.pages.blocks import SKIPPED_ROWS
from jax_array_info_core.facts.pages.program_words import Pieces, Target, line_target, text_of_pieces
from jax_array_info_core.reports import Origin
from jax_array_info_core.trees.stored.reading import Budget, read_whole

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
_T = TypeVar("_T")


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
    return data.decode(encoding).replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")


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


class Note(NamedTuple):
    """Something about a line, in its margin."""

    words: str | Pieces
    """Text, or texts with links between."""

    size: str = ""
    """Its bytes; may be empty."""

    look: str = ""
    """Style of the bytes."""

    @property
    def pieces(self) -> Pieces:
        """Texts and links."""
        return (self.words,) if isinstance(self.words, str) else self.words

    @property
    def text(self) -> str:
        """Text without links."""
        return text_of_pieces(self.pieces)


@dataclass(slots=True)
class MarkedLine:
    """A source line with its notes."""

    origin: Origin
    weight: int | None = None
    """Bytes for the color of the line; None for a line that is not in the list of the costliest ones."""
    is_uncertain: bool = False
    """Whether it may have more bytes."""
    other_nbytes: int = 0
    """Further bytes, which order lines of equal weight."""
    cells: dict[str, str] = field(default_factory=dict)
    """Bytes in the list of the costliest lines, by head."""
    notes: list[Note] = field(default_factory=list)
    """Notes in the margin."""
    columns: set[tuple[int, int]] = field(default_factory=set)
    """Parts of the line that the notes are about: in bytes of UTF-8, the first and that after the last."""

    @property
    def cost(self) -> tuple[bool, int, bool, int]:
        """Sort key: the more bytes, the larger."""
        return self.weight is not None, self.weight or 0, self.is_uncertain, self.other_nbytes


@dataclass(slots=True)
class LeafLine:
    """An argument or output, or equal ones whose paths differ in indices, with notes."""

    words: str
    """Path, type and spec."""
    paths: Sequence[str]
    """All paths that it stands for."""
    notes: list[Note]


@dataclass(slots=True)
class Margin:
    """Lines of source with notes, and what the notes refer to."""

    title: Text
    """Title, whose colors are those of the bytes."""
    heads: Sequence[str]
    """Heads of the bytes of the lines."""
    leaves: list[LeafLine] = field(default_factory=list)
    """Arguments and outputs that notes refer to."""
    _lines: dict[Target, MarkedLine] = field(default_factory=dict)

    @property
    def lines(self) -> list[MarkedLine]:
        """The lines, the costliest first."""
        return sorted(self._lines.values(), key=lambda line: line.cost, reverse=True)

    def line(self, origin: Origin) -> MarkedLine:
        """Return the line of an origin."""
        return self._lines.setdefault(line_target(origin), MarkedLine(origin))

    def by_line(
        self, rows: Iterable[_T], origin_of: Callable[[_T], Origin | None]
    ) -> Iterator[tuple[MarkedLine, list[_T]]]:
        """Yield each line that some rows are about, with these rows.

        Args:
            rows: The rows.
            origin_of: Function that returns the line of a row; None if it is unknown.
        """
        placed = ((origin, row) for row in rows if (origin := origin_of(row)) is not None)
        for placed_rows in by_key((line_target(origin), (origin, row)) for origin, row in placed).values():
            yield self.line(placed_rows[0][0]), [row for _, row in placed_rows]


def caller_notes(origin: Origin) -> Iterator[str]:
    """Yield the lines of a chain but for the one that has the note.

    As in tables, ``config.callers`` adds the lines that called it.
    """
    yield from (f"in {caller}" for caller in origin.skipped)
    yield from (f"from {caller}" for caller in origin.callers[: config.callers - 1])


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A line of source, or the lines that are left out before the next one."""

    number: int
    """Line number, from 1."""

    code: str = ""
    """Text of the line, with its tabs expanded; empty if it could not be read."""

    line: MarkedLine | None = None
    """Its bytes and notes, if it has any."""

    underlined: frozenset[int] = frozenset()
    """Positions in ``code`` of the characters that the notes are about."""

    @property
    def runs(self) -> list[tuple[bool, str]]:
        """The text in parts that are underlined or not."""
        if clipped(self.code) != self.code:
            return [(False, self.code)]
        marked = groupby(enumerate(self.code), lambda place: place[0] in self.underlined)
        return [(is_marked, "".join(text for _, text in part)) for is_marked, part in marked]

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
    by_file = by_key((line.origin.file, (line.origin.line, line)) for line in lines)
    return [_source_file(file, dict(marked)) for file, marked in by_file.items()]


def _source_file(file: str, marked: dict[int, MarkedLine]) -> SourceFile:
    source = source_lines(file)
    note = "" if source else "source not available"
    if source and not all(_is_as_traced(line.origin, source) for line in marked.values()):
        source, note = [], "changed since it was traced: only the traced lines are shown"
    origin = next(iter(marked.values())).origin
    return SourceFile(
        path=file if origin.cell is None else origin.name,
        name=origin.name,
        note=note,
        rows=tuple(_source_rows(source, marked)),
    )


def _is_as_traced(origin: Origin, source: Sequence[str]) -> bool:
    """Return whether a file has the text of a line at its place, if the report has it."""
    code = origin.code
    return not code or (origin.line <= len(source) and clipped(source[origin.line - 1].rstrip()) == code)


def _source_rows(source: Sequence[str], marked: dict[int, MarkedLine]) -> Iterator[SourceRow]:
    inside = [number for number in marked if 1 <= number <= len(source)]
    after = 1
    for shown in shown_ranges(source, inside):
        yield from _gap(after, shown.start)
        for number in shown:
            yield _source_row(number, source[number - 1], marked.get(number))
        after = shown.stop
    if inside:
        yield from _gap(after, len(source) + 1)
    for number in sorted(set(marked) - set(inside)):
        yield _source_row(number, marked[number].origin.code, marked[number])


def _source_row(number: int, code: str, line: MarkedLine | None) -> SourceRow:
    """Return a row for a line, with its columns in characters after its tabs are expanded."""
    data = code.encode(errors="surrogatepass")
    inside: set[int] = set()
    for columns in line.columns if line is not None else ():
        start, stop = (len(data[:place].decode(errors="ignore").expandtabs()) for place in columns)
        inside.update(range(start, stop))
    return SourceRow(number, code.expandtabs(), line, frozenset(inside))


def _gap(start: int, stop: int) -> Iterator[SourceRow]:
    """Yield a row for lines that are left out, if there are any."""
    if start < stop:
        yield SourceRow(start, left_out=f"{SKIPPED_ROWS} {counted(stop - start, 'line', 'lines')}")
