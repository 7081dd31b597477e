"""Tables that fit: columns are stacked or left out until the others need no break, then broken."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from rich.cells import cell_len
from rich.console import JustifyMethod
from rich.table import Table as RichTable
from rich.text import Text

from jax_array_info_core.facts.pages.blocks import Column, Grouping, Kind, Note, Row, Table

from .. import style
from ..pictures.fitting import fit
from ..style import path_lines, path_pieces, wrapped
from .lines import LOOKS, Writing

_INDENT = "  "
"""Spaces before the lines of a cell below its first one."""
_LEAST_PATH = 22
"""Width to which paths shrink before columns are stacked."""
_LEAST_COLUMN = 10
"""Width to which columns shrink before words are broken."""
_WORD = re.compile(r"\s*\S+\s?")
_QUOTED = r"'(?:[^'\\]++|\\.)*+'|\"(?:[^\"\\]++|\\.)*+\""
_NAME = re.compile(rf"(?:\[(?:{_QUOTED}|[^\]'\"])*+\]?|\.?(?:<[^<>]*>|[^\s.\[<])+|\S)\s*|\s+")
"""A key in brackets, an attribute or a word, with the spaces after it."""
_KEYS: dict[Kind, Callable[[str], Sequence[str]]] = {
    "path": path_pieces,
    "text": _WORD.findall,
    "names": _NAME.findall,
}
"""Function that returns the pieces between which the cells of a kind may be broken."""
_ALIGNMENTS: dict[Kind, JustifyMethod] = {"number": "right", "centered": "center"}


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a cell, printable."""

    text: str
    style: str = ""
    kind: Kind = "words"
    shorter: Sequence[str] = ()

    @property
    def width(self) -> int:
        """Width of the whole line."""
        return cell_len(self.text)

    @property
    def unbroken_width(self) -> int:
        """Width that it needs if only paths are broken, after their keys."""
        if self.kind not in _KEYS:
            return min(map(cell_len, (self.text, *self.shorter)))
        longest = max(map(cell_len, _KEYS[self.kind](self.text)), default=0)
        return min(self.width, max(longest + len(_INDENT), _LEAST_PATH))

    @property
    def wrapped_width(self) -> int:
        """Width that it needs if it is wrapped, but neither keys of paths nor words are broken."""
        if self.kind in _KEYS:
            return self.unbroken_width
        longest = max(map(cell_len, self.text.split()), default=0)
        return min(self.width, max(_LEAST_COLUMN, min(longest + len(_INDENT), _LEAST_PATH)))

    def chosen(self, width: int) -> _Line:
        """Return the longest text that fits; the last one if none fits."""
        if not self.shorter:
            return self
        texts = (self.text, *self.shorter)
        text = next((text for text in texts if cell_len(text) <= width), texts[-1])
        return replace(self, text=text, shorter=())

    def pieces(self, width: int) -> list[_Line]:
        """Return the line in pieces that fit, with the same indent."""
        if self.width <= width:
            return [self]
        words = self.text.strip()
        indent = " " * min(len(self.text) - len(self.text.lstrip()), width // 2)
        room = width - len(indent)
        keys = _KEYS.get(self.kind)
        pieces = path_lines(words, room, keys) if keys else wrapped(words, room)
        return [replace(self, text=indent + piece) for piece in pieces]


_Cell = list[_Line]


@dataclass(frozen=True, slots=True)
class _Content:
    """The columns and cells of one grouping."""

    heads: Sequence[str]
    alignments: Sequence[JustifyMethod]
    sections: Sequence[Sequence[Sequence[_Cell]]]
    left_out: Sequence[str]
    """Heads of the columns of the first grouping that this one has not."""
    is_optional: bool
    """Whether it has columns for which no other one is broken."""

    def widths(
        self, measure: Callable[[_Line], int], measure_head: Callable[[_Line], int] | None = None
    ) -> list[int]:
        """Return the widths of the columns that hold every line, by a measure of lines.

        Args:
            measure: Function that returns the width of a line.
            measure_head: Function that returns the width of a head, if it is another one.
        """
        rows = [row for section in self.sections for row in section]
        heads = map(measure_head or measure, map(_Line, self.heads))
        return [
            max([head, *(measure(line) for row in rows for line in row[number])])
            for number, head in enumerate(heads)
        ]

    def needed(self, wanted: Sequence[int], width: int, breaks: str) -> list[int]:
        """Return the least widths of the columns in a table of a width."""
        if self.is_optional:
            return self.widths(
                lambda line: line.width, lambda head: max(map(cell_len, head.text.split()), default=0)
            )
        if breaks == "first":
            lines = (line for section in self.sections for row in section for line in row[0])
            pieces = (piece for line in lines if line.kind in _KEYS for piece in path_pieces(line.text))
            longest = max(map(cell_len, pieces), default=0)
            return [min(wanted[0], max(_LEAST_PATH, width // 4, min(longest, width // 2))), *wanted[1:]]
        least = self.widths(lambda line: line.unbroken_width)
        if breaks == "paths" or sum(least) + 3 * len(least) < width:
            return least
        return self.widths(lambda line: line.wrapped_width)

    def fitted(self, width: int, breaks: str, *, is_last: bool) -> list[int] | None:
        """Return the widths of the columns in a table of a width; None if a narrower grouping is needed.

        Args:
            width: Width of the table in characters.
            breaks: What may be broken, as in ``Table``.
            is_last: Whether there is no narrower grouping: then anything is broken.
        """
        wanted = self.widths(lambda line: line.width)
        least = self.needed(wanted, width, breaks)
        room = max(width - 3 * len(wanted) - 1, len(wanted))
        widths = fit(wanted, least, room)
        if is_last and widths is None:
            narrow = [min(size, _LEAST_COLUMN) for size in least]
            for least in (self.widths(lambda line: line.wrapped_width), narrow, [1] * len(wanted)):
                widths = widths or fit(wanted, least, room)
            widths = widths or [1] * len(wanted)
        if widths is not None:
            for place, size in enumerate(wanted):  # the room that remains, a character each
                widths[place] += widths[place] < size and sum(widths) < room
        return widths

    def with_cells(self, change: Callable[[_Line, int], Sequence[_Line]], widths: Sequence[int]) -> _Content:
        """Return the content with the lines that a function returns for each line and its column's width."""
        sections = [
            [
                [
                    [piece for line in cell for piece in change(line, width)]
                    for cell, width in zip(row, widths, strict=True)
                ]
                for row in section
            ]
            for section in self.sections
        ]
        return replace(self, sections=sections)


def laid_out(table: Table, width: int, writing: Writing) -> RichTable:
    """Return a table with its first grouping that fits; with the last one, broken up, if none fits.

    Args:
        table: The table.
        width: Maximum line length in characters.
        writing: How texts are written.
    """
    rows = [row for section in table.parts for row in section]
    columns = shown_columns(table, rows, writing)
    groupings = table.groupings or [[[column.name] for column in table.columns]]
    for grouping in groupings[bool(width < table.least_width) :]:
        content = _content(table, columns, groupings[0], grouping, writing)
        widths = content.fitted(width, table.breaks, is_last=grouping is groupings[-1])
        if widths is not None:
            break
    assert widths is not None  # the last grouping is broken up
    content = content.with_cells(lambda line, width: [line.chosen(width)], widths)
    widths = [*map(min, widths, content.widths(lambda line: line.width))]
    return _drawn(table, content.with_cells(_Line.pieces, widths), widths, writing)


def _drawn(table: Table, content: _Content, widths: Sequence[int], writing: Writing) -> RichTable:
    """Return a table of broken cells. A line below it names the columns that its grouping leaves out."""
    missing = f"not shown at this width: {', '.join(content.left_out)}" if content.left_out else ""
    caption = "\n".join(filter(None, (missing, table.caption))) or None
    titles = [writing.safe(title) for title in (table.title, table.subtitle) if title]
    # Rich accepts any renderable as a title
    drawn = RichTable(title=cast(str, style.written(*titles)) if titles else None, caption=caption)
    for head, alignment, size in zip(content.heads, content.alignments, widths, strict=True):
        drawn.add_column(head, justify=alignment, width=size, overflow="fold")
    for section in content.sections:
        drawn.add_row(*map(_text, _joined(section, len(widths))))
        drawn.add_section()
    return drawn


def _content(
    table: Table, columns: Mapping[str, Column], widest: Grouping, grouping: Grouping, writing: Writing
) -> _Content:
    """Return the columns and cells of a grouping.

    Args:
        table: The table.
        columns: Its columns that are shown, by name.
        widest: Its first grouping.
        grouping: The grouping.
        writing: How texts are written.
    """
    groups = [[columns[name] for name in names if name in columns] for names in grouping]
    groups = [group for group in groups if group]
    shown = {name for group in groups for column in group for name in (column.name, *column.replaces)}
    heads = [group if table.joins_heads else group[:1] for group in groups]
    return _Content(
        [writing.safe(", ".join(column.title for column in head)) for head in heads],
        [_ALIGNMENTS.get(group[0].kind, "left") for group in groups],
        [
            [[_cell(group, row, writing, table.is_compact) for group in groups] for row in section]
            for section in table.parts
            if section
        ],
        [
            columns[name].title
            for name in columns
            if any(name in names for names in widest) and name not in shown and not columns[name].is_optional
        ],
        any(column.is_optional for group in groups for column in group),
    )


def shown_columns(table: Table, rows: Sequence[Row], writing: Writing) -> dict[str, Column]:
    """Return the columns that have content in any row, and those that are kept, by name."""
    return {
        column.name: column
        for column in table.columns
        if column.is_kept or any(cell_lines(column, row, writing) for row in rows)
    }


def _cell(group: Sequence[Column], row: Row, writing: Writing, is_compact: bool) -> _Cell:
    """Return the lines of a cell: its own, then those of the columns that are stacked in it."""
    first = group[0]
    lines = cell_lines(first, row, writing) or [_Line("")]
    stacked = [
        replace(
            line,
            text=f"{before}{line.text}{column.after}",
            shorter=[f"{before}{text}{column.after}" for text in line.shorter],
        )
        for column in group[1:]
        for number, line in enumerate(cell_lines(column, row, writing, is_stacked=True))
        for before in (_INDENT if number and column.before else column.before,)
    ]
    if is_compact and first.kind == "path":
        joined = [_Line(_INDENT + ", ".join(line.text for line in stacked))] if stacked else []
        return [*lines[:1], *joined, *lines[1:]]
    if not is_compact and first.kind != "number":
        stacked = [
            replace(line, text=_INDENT + line.text, shorter=[_INDENT + text for text in line.shorter])
            for line in stacked
        ]
    return [*lines, *stacked]


def cell_lines(column: Column, row: Row, writing: Writing, *, is_stacked: bool = False) -> _Cell:
    """Return the lines of a cell; none for one without content. Only the first line of a path is one."""
    cell = row.get(column.name, "")
    notes = [
        entry if isinstance(entry, Note) else Note(entry, column.look)
        for entry in ([cell] if isinstance(cell, (str, Note)) else cell)
    ]
    lines = [
        _Line(
            writing.safe(note.text if not is_stacked or note.stacked is None else note.stacked),
            LOOKS[note.look],
            note.kind or (column.kind if not number or column.kind == "names" else "words"),
            [*map(writing.safe, note.shorter)],
        )
        for number, note in enumerate(notes)
    ]
    return lines if any(line.text for line in lines) else []


def _joined(rows: Sequence[Sequence[_Cell]], column_count: int) -> list[_Cell]:
    """Return several rows as one, with their lines below each other: Rich takes far less time."""
    joined: list[_Cell] = [[] for _ in range(column_count)]
    for row in rows:
        height = max(map(len, row))
        for lines, cell in zip(joined, row, strict=True):
            lines += [*cell, *[_Line("")] * (height - len(cell))]
    return joined


def _text(lines: _Cell) -> Text:
    return Text("\n", overflow="fold").join([Text(line.text, line.style) for line in lines])
