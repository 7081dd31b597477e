"""Tables whose columns are stacked into fewer ones on narrow consoles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from rich.cells import cell_len
from rich.console import JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from jax_array_info_core.text import clipped, printable

from ..pictures.fitting import fit, wrapped
from .tree_words import Line
from .trees import path_lines

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
