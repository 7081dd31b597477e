"""Tables that fit: columns are stacked or left out until the others need no break, then broken."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

from rich.cells import cell_len
from rich.console import JustifyMethod
from rich.table import Table as RichTable
from rich.text import Text

from jax_array_info_core.facts.pages.blocks import Column, Kind, Note, Row, Table

from .. import style
from ..pictures.fitting import fit, path_lines, path_pieces
from ..style import wrapped
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
        widths = [(measure_head or measure)(_Line(head)) for head in self.heads]
        for section in self.sections:
            for row in section:
                for number, cell in enumerate(row):
                    widths[number] = max(widths[number], *map(measure, cell), 0)
        return widths

    def chosen(self, widths: Sequence[int]) -> _Content:
        """Return the content with the texts that fit the columns."""
        sections = [
            [
                [[line.chosen(width) for line in cell] for cell, width in zip(row, widths, strict=True)]
                for row in section
            ]
            for section in self.sections
        ]
        return replace(self, sections=sections)

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


def drawn_table(table: Table, width: int, writing: Writing) -> RichTable:
    """Return a table with its first grouping that fits; with the last one, broken up, if none fits.

    A line below the table names the columns that this grouping leaves out.

    Args:
        table: The table.
        width: Maximum line length in characters.
        writing: How texts are written.
    """
    for content in _contents(table, width, writing):
        wanted = content.widths(lambda line: line.width)
        least = content.needed(wanted, width, table.breaks)
        room = max(width - 3 * len(wanted) - 1, len(wanted))
        widths = fit(wanted, least, room)
        if widths is not None:
            break
    else:
        narrow = [min(size, _LEAST_COLUMN) for size in least]
        for least in (content.widths(lambda line: line.wrapped_width), narrow, [1] * len(wanted)):
            widths = widths or fit(wanted, least, room)
        widths = widths or [1] * len(wanted)
    for place, size in enumerate(wanted):  # the rest of the room, a character each
        widths[place] += widths[place] < size and sum(widths) < room
    content = content.chosen(widths)
    widths = [*map(min, widths, content.widths(lambda line: line.width))]
    missing = f"not shown at this width: {', '.join(content.left_out)}" if content.left_out else ""
    caption = "\n".join(filter(None, (missing, table.caption))) or None
    title = style.written(*map(writing.safe, filter(None, (table.title, table.subtitle))))
    # Rich accepts any renderable as a title
    drawn = RichTable(title=cast(str, title), caption=caption)
    for head, alignment, size in zip(content.heads, content.alignments, widths, strict=True):
        drawn.add_column(head, justify=alignment, width=size, overflow="fold")
    for section in content.sections:
        drawn.add_row(*map(_text, _joined(section, widths)))
        drawn.add_section()
    return drawn


def _contents(table: Table, width: int, writing: Writing) -> Iterator[_Content]:
    """Yield the columns and cells of each grouping."""
    named = shown_columns(table, [row for section in table.parts for row in section], writing)
    groupings = table.groupings or [[[one.name] for one in table.columns]]
    widest = {name for names in groupings[0] for name in names}
    for grouping in groupings[bool(width < table.least_width) :]:
        groups = [[named[name] for name in names if name in named] for names in grouping]
        groups = [group for group in groups if group]
        shown = {name for group in groups for one in group for name in (one.name, *one.replaces)}
        heads = [group if table.joins_heads else group[:1] for group in groups]
        yield _Content(
            [writing.safe(", ".join(one.title for one in head)) for head in heads],
            [_ALIGNMENTS.get(group[0].kind, "left") for group in groups],
            [
                [[_cell(group, row, writing, table.is_compact) for group in groups] for row in section]
                for section in table.parts
                if section
            ],
            [
                one.title
                for name, one in named.items()
                if name in widest and name not in shown and not one.is_optional
            ],
            any(one.is_optional for group in groups for one in group),
        )


def shown_columns(table: Table, rows: Sequence[Row], writing: Writing) -> dict[str, Column]:
    """Return the columns that have content in any row, and those that are kept, by name."""
    return {
        one.name: one
        for one in table.columns
        if one.is_kept or any(cell_lines(one, row, writing) for row in rows)
    }


def _cell(group: Sequence[Column], row: Row, writing: Writing, is_compact: bool) -> _Cell:
    """Return the lines of a cell: its own, then those of the columns that are stacked in it."""
    first = group[0]
    own = cell_lines(first, row, writing) or [_Line("")]
    stacked = [
        replace(
            line,
            text=f"{before}{line.text}{one.after}",
            shorter=[f"{before}{text}{one.after}" for text in line.shorter],
        )
        for one in group[1:]
        for number, line in enumerate(cell_lines(one, row, writing, is_stacked=True))
        for before in (_INDENT if number and one.before else one.before,)
    ]
    if is_compact and first.kind == "path":
        joined = [_Line(_INDENT + ", ".join(line.text for line in stacked))] if stacked else []
        return [*own[:1], *joined, *own[1:]]
    if not is_compact and first.kind != "number":
        stacked = [
            replace(line, text=_INDENT + line.text, shorter=[_INDENT + text for text in line.shorter])
            for line in stacked
        ]
    return [*own, *stacked]


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


def _joined(rows: Sequence[Sequence[_Cell]], widths: Sequence[int]) -> list[_Cell]:
    """Return several rows as one, with their lines wrapped and below each other: Rich takes far less time."""
    joined: list[_Cell] = [[] for _ in widths]
    for row in rows:
        cells = [
            [piece for line in cell for piece in line.pieces(width)]
            for cell, width in zip(row, widths, strict=True)
        ]
        height = max(map(len, cells))
        for lines, cell in zip(joined, cells, strict=True):
            lines += [*cell, *[_Line("")] * (height - len(cell))]
    return joined


def _text(lines: _Cell) -> Text:
    return Text("\n", overflow="fold").join([Text(line.text, line.style) for line in lines])
