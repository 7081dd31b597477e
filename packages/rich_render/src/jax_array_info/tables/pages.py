"""Layout of tables with paths: full width, stacked rows or pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from jax_array_info_core.text import clipped, printable

from .. import style
from ..pictures.fitting import fit, wrapped
from .tree_words import Line
from .trees import path_lines

_GAP = "  "


class Page:
    """Lines of untrusted text, wrapped to a width.

    Args:
        width: Maximum line length in characters.
        encoding: Encoding of the console. Characters that it lacks are escaped.
    """

    def __init__(self, width: int, encoding: str) -> None:
        self.width = width
        self.encoding = encoding
        self.marks = style.marks(encoding)
        self._lines: list[Text] = []

    def write(self, words: str, *, indent: int = 0, look: str = "") -> None:
        """Add a text. Its lines after the first are indented by two more characters."""
        words = self.safe(words)
        first = " " * min(indent, self.width // 2)
        room = self.width - len(first)
        if cell_len(words) <= room:
            self._lines.append(Text(first + words, look))
            return
        indented = first + (_GAP if room > 4 * len(_GAP) else "")
        start, *more = wrapped(words, max(1, room))
        self._lines.append(Text(first + start, look))
        rest = words[len(start) :].strip()
        if more:
            pieces = wrapped(rest, max(1, self.width - len(indented)))
            self._lines += [Text(indented + piece, look) for piece in pieces]

    def write_entry(self, before: str, path: str, *facts: str, note: str = "", indent: int = 2) -> None:
        """Add an entry of a list: in one line if it fits, else with the facts below the path.

        Args:
            before: Text before the path, such as its aligned bytes; may be empty.
            path: Path that is wrapped only after ``/`` and inside long keys; may be empty.
            facts: Texts after the path; empty ones are left out.
            note: Text in a line below, in the style of warnings.
            indent: Number of spaces before the first line.
        """
        margin = " " * min(indent, self.width // 2)
        first = margin + (self.safe(before) + _GAP if before else "")
        path, words = self.safe(path), _GAP.join(self.safe(fact) for fact in facts if fact)
        whole = _GAP.join(filter(None, (path, words)))
        below = min(len(first) + len(_GAP), self.width // 3)
        if len(first) + cell_len(whole) <= self.width:
            self._lines.append(Text(first + whole))
        else:
            room = max(1, self.width - len(first))
            start, *rest = path_lines(path, room) if path else wrapped(words, room)
            self._lines.append(Text(first + start))
            if path:
                self._lines += [Text(" " * len(first) + piece) for piece in rest]
                self._write_below(words, below)
            else:
                self._write_below(words[len(start) :].strip(), below)
        self._write_below(self.safe(note), below, style.WARNING)

    def _write_below(self, words: str, indent: int, look: str = "") -> None:
        if words:
            pieces = wrapped(words, max(1, self.width - indent))
            self._lines += [Text(" " * indent + piece, look) for piece in pieces]

    def safe(self, text: str) -> str:
        """Return untrusted text for this console, without its middle if it is very long."""
        return printable(clipped(text), self.encoding)

    def text(self) -> Text:
        """Return the page."""
        return Text("\n", overflow="fold").join(self._lines)


_INDENT = "  "
_LEAST_PATH = 22
"""Width to which paths shrink before columns are stacked."""
_LEAST_COLUMN = 12
"""Width to which columns shrink before words are broken."""

Grouping = Sequence[Sequence[str]]
"""The columns of a table: names of those that are stacked in each, the first of them its head."""


@dataclass(frozen=True, slots=True)
class StackedColumn:
    """A column of a table, or a line in the cells of another column."""

    name: str
    """Head of the column."""

    cells: Sequence[str]
    """Text for each row; may be empty."""

    before: str = ""
    """Text before a cell that is stacked below another one."""

    is_number: bool = False
    """Whether to align the column right."""

    is_path: bool = False
    """Whether the cells are paths, which break only after ``/`` and inside long keys."""

    look: str = ""
    """Style of the cells."""


def stacked_table(
    title: RenderableType,
    columns: Sequence[StackedColumn],
    groupings: Sequence[Grouping],
    *,
    width: int,
    encoding: str,
    rest: Mapping[str, str] | None = None,
    heads: Mapping[str, str] | None = None,
) -> Table:
    """Return the table with the first grouping of its columns that fits; with the last one if none fits.

    Columns without content are left out.

    Args:
        title: Title above the table.
        columns: The columns, with as many cells each.
        groupings: Which columns are stacked, from the widest table to the narrowest.
        width: Maximum line length in characters.
        encoding: Encoding of the console.
        rest: Cells of a last row by the names of their columns; None for no such row.
        heads: Heads of columns that differ from their names.
    """
    by_name = {column.name: column for column in columns if any(column.cells)}
    for grouping in groupings:
        groups = [[by_name[name] for name in names if name in by_name] for names in grouping]
        groups = [group for group in groups if group]
        sections = [_rows(groups, encoding)]
        if rest is not None:
            sections.append([[[Line(printable(rest.get(group[0].name, ""), encoding))] for group in groups]])
        wanted = _widths(groups, sections, heads, _line_width)
        needed = _widths(groups, sections, heads, _unbroken_width)
        room = max(width - 3 * len(groups) - 1, len(groups))
        widths = fit(wanted, needed, room)
        if widths is not None:
            break
    else:
        least = [min(size, _LEAST_COLUMN) for size in needed]
        widths = fit(wanted, least, room) or fit(wanted, [1] * len(wanted), room) or [1] * len(wanted)
    table = Table(title=cast(str, title))  # Rich accepts any renderable as a title
    for group, size in zip(groups, widths, strict=True):
        justify: JustifyMethod = "right" if group[0].is_number else "left"
        table.add_column(_head(group, heads), justify=justify, width=size, overflow="fold")
    for section in sections:
        for row in section:
            table.add_row(*(_text(cell, size) for cell, size in zip(row, widths, strict=True)))
        table.add_section()
    return table


def _rows(groups: Sequence[Sequence[StackedColumn]], encoding: str) -> list[list[list[Line]]]:
    """Return the lines of each cell of each row."""
    count = len(groups[0][0].cells)
    return [[list(_cell(group, number, encoding)) for group in groups] for number in range(count)]


def _cell(group: Sequence[StackedColumn], number: int, encoding: str) -> Iterator[Line]:
    """Yield the lines of a cell: those below the first are indented, unless the column is of numbers."""
    indent = "" if group[0].is_number else _INDENT
    for place, column in enumerate(group):
        words = column.cells[number]
        if place == 0:
            yield Line(printable(clipped(words), encoding), column.look, column.is_path)
        elif words:
            safe = printable(clipped(column.before + words), encoding)
            yield Line(indent + safe, column.look, column.is_path)


def _head(group: Sequence[StackedColumn], heads: Mapping[str, str] | None) -> str:
    return (heads or {}).get(group[0].name, group[0].name)


def _widths(
    groups: Sequence[Sequence[StackedColumn]],
    sections: Sequence[Sequence[Sequence[Sequence[Line]]]],
    heads: Mapping[str, str] | None,
    measure: Callable[[Line], int],
) -> list[int]:
    """Return the widths of the columns that hold every line."""
    return [
        max(
            cell_len(_head(group, heads)),
            *(measure(line) for section in sections for row in section for line in row[number]),
        )
        for number, group in enumerate(groups)
    ]


def _line_width(line: Line) -> int:
    return cell_len(line.text)


def _unbroken_width(line: Line) -> int:
    """Return the width that a line needs: a path that is broken after ``/``, any other line as a whole."""
    if not line.is_path:
        return cell_len(line.text)
    longest = max(cell_len(key) + 1 for key in line.text.split("/"))
    return min(cell_len(line.text), max(longest + len(_INDENT), _LEAST_PATH))


def _text(lines: Sequence[Line], width: int) -> Text:
    pieces = [piece for line in lines for piece in _wrapped(line, width)]
    return Text("\n", overflow="fold").join([Text(line.text, line.look) for line in pieces])


def _wrapped(line: Line, width: int) -> list[Line]:
    """Return a line in pieces with the same indent."""
    if cell_len(line.text) <= width:
        return [line]
    words = line.text.lstrip()
    indent = " " * min(len(line.text) - len(words), width // 2)
    break_up = path_lines if line.is_path else wrapped
    return [replace(line, text=indent + piece) for piece in break_up(words, width - len(indent))]


class PathCell:
    """A path that wraps after ``/``, and inside a key only if the key is longer than the line.

    Args:
        path: Path of a leaf, or of several whose indices are folded.
        count: Number of leaves.
        note: Text in the next line, indented.
    """

    def __init__(self, path: str, count: int = 1, note: str = "") -> None:
        self._path = path or "(root)"
        self._count = count
        self._note = note

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        path, note = self._texts(options)
        lines = path_lines(path, options.max_width)
        if note:
            lines += [f"  {line}" for line in chop_cells(note, max(1, options.max_width - 2))]
        yield Text("\n".join(lines), overflow="fold")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        path, note = self._texts(options)
        longest_key = max(cell_len(key) + 1 for key in path.split("/"))
        widest = max(cell_len(path), cell_len(note) + 2 if note else 0)
        return Measurement(min(longest_key, widest), widest).with_maximum(options.max_width)

    def _texts(self, options: ConsoleOptions) -> tuple[str, str]:
        path, note = (printable(text, options.encoding) for text in (self._path, self._note))
        times = style.marks(options.encoding).times
        return path if self._count == 1 else f"{path} {times}{self._count}", note
