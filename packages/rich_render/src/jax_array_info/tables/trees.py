"""Table for ``TreeReport``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import cast

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from jax_array_info_core import TreeReport
from jax_array_info_core.reports.tree_rows import Sort, TreeTableRows, tree_table_rows
from jax_array_info_core.text import printable

from .. import style
from ..pictures.fitting import fit, wrapped
from .tree_columns import TreeColumn, narrower, tree_columns
from .tree_totals import total_lines
from .tree_words import Line, title_words

_LEAST_PATH = 22
"""Width that paths need at least, in characters, before other columns give way."""
_INDENT = "  "
"""Space before all lines of a path but the first."""

_Cell = Sequence[Line]


def tree_table(
    report: TreeReport,
    *,
    depth: int | None = None,
    sort: Sort = "tree",
    max_rows: int | None = 100,
    width: int = 80,
) -> RenderableType:
    """Return the table of the leaves of a tree, with its totals and meshes below.

    Paths are never truncated. On narrow consoles, other columns give way: their text moves to the next
    line of another column.

    Args:
        report: The tree.
        depth: Maximum number of keys in a path. Deeper leaves are summed in a row for their prefix. None
            shows all leaves.
        sort: ``tree`` for the order of the tree; ``waste`` for leaves with NaN or infinities first, then by
            avoidable bytes.
        max_rows: Maximum number of rows. One more row sums the others. None shows all.
        width: Maximum line length in characters.

    Raises:
        TypeError: If ``depth`` or ``max_rows`` is neither an integer nor None.
        ValueError: If ``depth`` is less than 1, ``max_rows`` is negative, or ``sort`` is not an order.
    """
    rows = tree_table_rows(report, depth=depth, sort=sort, max_rows=max_rows)

    def make(_: Console, options: ConsoleOptions) -> RenderableType:
        marks = style.marks(options.encoding)
        columns = tree_columns(report, rows, marks)
        totals = [style.written(line) for line in total_lines(report, rows.rows, marks)]
        title = style.written(title_words(report))
        if not (rows.rows or rows.rest):
            return Group(title, *totals)
        choices = narrower(columns, shows_waste=sort == "waste")
        contents = (_Content(chosen, rows, options.encoding) for chosen in choices)
        return Group(_table(title, contents, min(width, options.max_width)), *totals)

    return style.ForConsole(make)


class _Content:
    """The cells of a table with some of its columns."""

    def __init__(self, columns: Sequence[TreeColumn], rows: TreeTableRows, encoding: str) -> None:
        def safe(lines: Sequence[Line]) -> _Cell:
            return [replace(line, text=printable(line.text, encoding)) for line in lines]

        self.columns = columns
        self.sections = [[[safe(column.lines(row)) for column in columns] for row in rows.rows]]
        """Rows of leaves, then the row for the rest."""
        if rows.rest is not None:
            self.sections.append([[safe(column.rest(rows.rest)) for column in columns]])

    def natural_widths(self) -> list[int]:
        """Return the widths of the columns if no line is broken."""
        return [
            max(map(cell_len, [column.name, *self._texts(number)]))
            for number, column in enumerate(self.columns)
        ]

    def _texts(self, number: int) -> list[str]:
        return [line.text for section in self.sections for row in section for line in row[number]]

    def longest_key(self) -> int:
        """Return the width of the longest key in a path, with the slash after it."""
        paths = [line.text for section in self.sections for row in section for line in row[0] if line.is_path]
        return max((cell_len(piece) for path in paths for piece in _pieces(path)), default=0)


def _table(title: RenderableType, contents: Iterable[_Content], width: int) -> Table:
    """Return the table with the first content that fits; with the last one if none fits."""
    for content in contents:
        widths = content.natural_widths()
        room = width - 3 * len(widths) - 1
        path = room - sum(widths[1:])
        if path >= min(widths[0], max(_LEAST_PATH, width // 4, min(content.longest_key(), width // 2))):
            widths[0] = min(widths[0], path)
            break
    else:
        widths = fit(widths, [1] * len(widths), room) or [1] * len(widths)
    table = Table(title=cast(str, title))  # Rich accepts any renderable as a title
    for column, size in zip(content.columns, widths, strict=True):
        justify: JustifyMethod = "right" if column.is_number else "left"
        table.add_column(column.name, justify=justify, width=size, overflow="fold")
    for section in filter(None, content.sections):
        table.add_row(*map(_text, _joined(section, widths)))
        table.add_section()
    return table


def _joined(rows: Sequence[Sequence[_Cell]], widths: Sequence[int]) -> list[list[Line]]:
    """Return several rows as one, with their lines wrapped and below each other: Rich takes far less time."""
    joined: list[list[Line]] = [[] for _ in widths]
    for row in rows:
        cells = [
            [piece for line in cell for piece in _wrapped(line, width)]
            for cell, width in zip(row, widths, strict=True)
        ]
        height = max(map(len, cells))
        for lines, cell in zip(joined, cells, strict=True):
            lines += [*cell, *[Line("")] * (height - len(cell))]
    return joined


def _text(lines: Sequence[Line]) -> Text:
    return Text("\n").join([Text(line.text, line.look) for line in lines])


def _wrapped(line: Line, width: int) -> list[Line]:
    """Return a line in pieces, those of an indented line with the same indent."""
    if cell_len(line.text) <= width:
        return [line]
    if line.is_path:
        return [replace(line, text=piece) for piece in path_lines(line.text, width)]
    indent = " " * min(len(line.text) - len(line.text.lstrip()), width // 2)
    return [replace(line, text=indent + piece) for piece in wrapped(line.text.strip(), width - len(indent))]


def path_lines(path: str, width: int) -> list[str]:
    """Return a path in lines of a width, broken after ``/``, and inside a key only if it is too long.

    All lines but the first are indented, so that a row of a table begins where a line does not.
    """
    indent = _INDENT if width > 4 * len(_INDENT) else ""
    lines, line, room = [], "", width
    for piece in _pieces(path):
        if line and cell_len(line) + cell_len(piece) > room:
            lines.append(line)
            line, room = "", width - len(indent)
        line += piece
        while cell_len(line) > room:
            # Four characters per column are enough, even with combining characters.
            part = chop_cells(line[: 4 * room], room)[0] or line[0]
            lines.append(part)
            line, room = line[len(part) :], width - len(indent)
    return [text if number == 0 else indent + text for number, text in enumerate([*lines, line])]


def _pieces(path: str) -> list[str]:
    return re.findall("[^/]*/|[^/]+", path)
