"""Blocks as HTML: tables of real cells, and trees that fold by prefix, without a script."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from rich.cells import cell_len
from rich.style import Style

from jax_array_info_core.facts.pages.blocks import (
    Block,
    Branch,
    Column,
    Entries,
    Note,
    Panel,
    Row,
    Rule,
    Sentence,
    Table,
)

from ..svg import FONT, GREY, css
from .lines import LOOKS, Writing
from .tables import cell_lines, shown_columns

_OPEN_LINES = 40
"""Number of lines up to which prefixes are open at first."""
_WIDEST = 40
"""Maximum width of a column of a tree, in characters; longer texts are wrapped."""
_WRITING = Writing("utf-8")

# ``all:revert`` removes what the style sheet of the page around the fragment says about such elements.
_TABLE = "all:revert;border-spacing:2ch 0;margin:0 0 0 -2ch"
_ROW = "all:revert;vertical-align:top"
_HEAD = f"all:revert;font:inherit;text-align:left;color:{GREY}"
_CELL = "all:revert"
_IN_SUMMARY = ";display:inline-table;vertical-align:top"
_DETAILS = "all:revert"
_SUMMARY = "all:revert;list-style-position:outside;cursor:pointer"
"""Style of a prefix, with the triangle of the browser to its left."""


def blocks_html(blocks: Iterable[Block]) -> str:
    """Return blocks as an HTML fragment. Tables have cells, and those with a tree fold by prefix.

    The fragment has no scripts, ids, style sheets or links, and the colors of the page around it.
    """
    look = f"font-family:{FONT};font-size:13px;line-height:1.4;color:inherit"
    look += ";text-align:left;white-space:pre-wrap;overflow-wrap:anywhere"
    return f'<div style="{html.escape(look)}">{"".join(map(_element, blocks))}</div>'


def _element(block: Block) -> str:
    """Return a block as an element; pictures and sources have elements of their own."""
    match block:
        case Sentence(text, look, indent):
            return _line(Note(text + block.end, look), f"margin-left:{indent}ch" if indent else "")
        case Rule(title):
            return _line(Note(title, "alarm"), "margin-top:1em;border-bottom:1px solid")
        case Entries(rows):
            names = [str(place) for place in range(max(map(len, rows), default=0))]
            columns = [Column(name, "number" if name == "0" else "words") for name in names]
            return _table(_rows(columns, (dict(zip(names, row, strict=False)) for row in rows)))
        case Panel(title, lines):
            texts = [Note(title, "answer"), *lines] if title else lines
            return f'<div style="border:1px solid;padding:0 1ch">{"".join(map(_line, texts))}</div>'
        case Table(title):
            branches = block.tree() if block.tree else ()
            table = _Tree.of(block, branches).html(branches) if branches else _flat(block)
            return f"{_line(Note(title))}{table}{_line(Note(block.caption, 'aside'))}"
    return ""


def _line(line: str | Note | Sequence[Note], style: str = "") -> str:
    """Return a line of text as an element; nothing without text."""
    notes = [Note(line)] if isinstance(line, str) else [line] if isinstance(line, Note) else line
    spans = "".join(_span(_WRITING.safe(note.text), LOOKS[note.look]) for note in notes if note.text)
    attribute = f' style="{style}"' if style else ""
    return f"<div{attribute}>{spans}</div>" if spans else ""


def _span(text: str, look: str = "", *, is_path: bool = False) -> str:
    """Return a printable text in a style of Rich. Paths may be broken after a slash."""
    words = html.escape(text).replace("/", "/<wbr />" if is_path else "/")
    style = ";".join(f"{name}:{value}" for name, value in css(Style.parse(look)).items())
    return f'<span style="{style}">{words}</span>' if style else words


def _table(rows: str, style: str = "") -> str:
    """Return rows as one element."""
    return f'<table style="{_TABLE}{style}">{rows}</table>'


def _flat(table: Table) -> str:
    """Return a table that does not fold."""
    rows = [row for section in table.parts for row in section]
    columns = _columns(table, rows)
    return _table(_heads(columns) + _rows(columns, rows))


def _columns(table: Table, rows: Sequence[Row]) -> list[Column]:
    """Return the columns with content; first those that stay in the narrowest table, for narrow pages."""
    named = shown_columns(table, rows, _WRITING)
    groupings = table.groupings or [[[column.name] for column in table.columns]]
    first = [names[0] for names in groupings[-1]]
    widest = [name for names in groupings[0] for name in names if name in named]
    return [named[name] for name in sorted(widest, key=lambda name: name not in first)]


def _heads(columns: Sequence[Column]) -> str:
    """Return the row with the heads of columns, whose tooltips say what the cells are."""
    return _rows(columns, [{column.name: Note(column.title) for column in columns}], "th", _HEAD)


def _rows(columns: Sequence[Column], rows: Iterable[Row], tag: str = "td", style: str = _CELL) -> str:
    """Return the cells of rows, each line of a cell below the other."""

    def cell(column: Column, row: Row) -> str:
        lines = cell_lines(column, row, _WRITING)
        spans = [_span(line.text, line.style, is_path=line.kind == "path") for line in lines]
        aligned = f"{style};text-align:right" if column.kind == "number" else style
        tooltip = f' title="{html.escape(column.meaning)}"' if tag == "th" and column.meaning else ""
        return f'<{tag} style="{aligned}"{tooltip}>{"<br />".join(spans)}</{tag}>'

    cells = ("".join(cell(column, row) for column in columns) for row in rows)
    return "".join(f'<tr style="{_ROW}">{words}</tr>' for words in cells)


@dataclass(frozen=True, slots=True)
class _Tree:
    """A table that folds: its rows are in several elements, whose columns have the same widths."""

    columns: Sequence[Column]
    widths: Sequence[int]
    """Widths of the columns, in characters."""
    open_levels: int
    """Number of levels that are visible at first."""

    @classmethod
    def of(cls, table: Table, branches: Sequence[Branch]) -> _Tree:
        """Return the columns of a table for all branches, and the first levels that have few lines."""
        levels: list[Sequence[Branch]] = [branches]
        while levels[-1]:
            levels.append([below for branch in levels[-1] for below in branch.below])
        lines = accumulate(map(len, levels[:-1]))
        columns = _columns(table, [branch.row for level in levels for branch in level])
        widths = [cell_len(column.title) for column in columns]
        for level, siblings in enumerate(levels):
            for branch in siblings:
                for place, column in enumerate(columns):
                    texts = (line.text for line in cell_lines(column, branch.row, _WRITING))
                    longest = min(_WIDEST, max(map(cell_len, texts), default=0))
                    widths[place] = max(widths[place], longest + (0 if place else 2 * level))
        return cls(columns, [width + 1 for width in widths], sum(count <= _OPEN_LINES for count in lines))

    def html(self, branches: Sequence[Branch]) -> str:
        """Return the heads and all branches."""
        below = "".join(self._below(branches, 0))
        return f'<div style="margin:0.5em 0 0.5em 2ch">{self._table(_heads(self.columns), 0)}{below}</div>'

    def _below(self, branches: Sequence[Branch], level: int) -> Iterator[str]:
        """Yield the elements of branches: tables of leaves, and prefixes that unfold."""
        is_open = ' open=""' if level + 1 < self.open_levels else ""
        for is_prefix, group in groupby(branches, lambda branch: bool(branch.below)):
            if not is_prefix:
                yield self._table(_rows(self.columns, (branch.row for branch in group)), level)
                continue
            for branch in group:
                sums = self._table(_rows(self.columns, [branch.row]), level, _IN_SUMMARY)
                yield (
                    f'<details style="{_DETAILS}"{is_open}><summary style="{_SUMMARY}">{sums}</summary>'
                    f'<div style="margin-left:2ch">{"".join(self._below(branch.below, level + 1))}</div>'
                    "</details>"
                )

    def _table(self, rows: str, level: int, style: str = "") -> str:
        """Return rows inside a number of prefixes, which make the first column narrower."""
        # Half the width of a narrow page is left for the numbers next to the names.
        first = f"max(2ch,min({self.widths[0]}ch,50vw) - {2 * level}ch)"
        others = self.widths[1:]
        size = f"table-layout:fixed;width:calc({first} + {sum(others) + 2 * len(others) + 4}ch)"
        widths = [first, *(f"{width}ch" for width in others)]
        columns = "".join(f'<col style="width:{width}" />' for width in widths)
        return _table(columns + rows, f";{size}{style}")
