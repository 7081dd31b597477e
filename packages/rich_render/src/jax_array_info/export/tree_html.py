"""Trees of arrays as HTML that folds by prefix, without a script."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult

from jax_array_info.tables.tree_rows import TreeTableRow, TreeTableRows, leaf_sums, tree_table_rows
from jax_array_info_core.pages.folds import path_keys
from jax_array_info_core.reports import TreeReport, TreeRow
from jax_array_info_core.text import printable

from .. import style
from ..svg import COLORS, FONT, GREY
from ..tables.tree_words import Line, answer_words, note_lines, title_words, total_lines
from ..tables.trees import TreeColumn, tree_columns, tree_table

_MOST_ROWS = 5000
"""Maximum number of leaves and folded prefixes. Beyond it, deeper leaves are summed by prefix."""
_OPEN_LINES = 40
"""Number of lines up to which prefixes are open at first."""
_WIDEST_NAME = 60
"""Names that are longer, in characters, have a line of their own."""
_DEEPEST = 100
"""Maximum number of prefixes inside each other."""
_FIRST = ("per device", "replicated over")
"""Columns next to the names, where narrow pages show them."""
_PLAIN = "border:0;margin:0;padding:0;background:none;box-shadow:none;font:inherit;color:inherit"
"""Inline style that removes the decoration that pages give to ``details``."""
_SUMMARY = "display:list-item;list-style-position:outside;min-height:0;overflow:visible;cursor:pointer"
"""Inline style of a prefix, with the triangle of the browser to its left."""


@dataclass(frozen=True, slots=True)
class TreePart:
    """A tree as a part of a document: a table in text and SVG, and folded prefixes in HTML."""

    report: TreeReport
    depth: int | None = None
    """Maximum number of keys in a path; deeper leaves are summed."""
    max_rows: int | None = 100
    """Maximum number of rows of the table."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield tree_table(self.report, depth=self.depth, max_rows=self.max_rows, width=options.max_width)


def tree_html(part: TreePart) -> str:
    """Return a tree as an HTML fragment: nested ``details`` elements with the bytes of each prefix.

    The fragment has no scripts, ids, style sheets or links, and the colors of the page around it.
    """
    report, marks = part.report, style.marks("utf-8")
    rows = _rows(report, part.depth)
    root = _tree(rows)
    columns = tree_columns(report, rows, marks)[1:]
    columns.sort(key=lambda column: column.name not in _FIRST)
    lines = _Lines(report, columns, root)
    title, answer = (html.escape(printable(words)) for words in (title_words(report), answer_words(report)))
    totals = "\n".join(html.escape(printable(line)) for line in total_lines(report, rows.rows, marks))
    looks = (
        f"font-family:{FONT};font-size:13px;line-height:1.4;white-space:pre;padding-left:2ch;color:inherit"
    )
    return (
        f'<div style="{html.escape(looks)}"><div><b>{answer}</b></div><div>{title}</div>'
        f'<div style="color:{GREY}">{lines.head()}</div>'
        f"{''.join(lines.below(root, 0))}{lines.rest(rows)}"
        f'<div style="white-space:pre-wrap;margin-top:0.5em">{totals}</div></div>'
    )


@dataclass(slots=True)
class _Node:
    """A row of the table, or a prefix with everything below it."""

    name: str
    row: TreeTableRow | None = None
    """The row; for a prefix, a row with its sums."""
    children: dict[object, _Node] = field(default_factory=dict)
    is_open: bool = False


def _rows(report: TreeReport, depth: int | None) -> TreeTableRows:
    """Return the rows of the leaves; of their prefixes where there are too many leaves."""
    rows = tree_table_rows(report, depth=depth, max_rows=None)
    if len(rows.rows) <= _MOST_ROWS:
        return rows
    paths = [path_keys(row.path) for row in rows.rows]
    deepest = max(map(len, paths))
    fitting = (
        depth for depth in range(deepest - 1, 0, -1) if len({keys[:depth] for keys in paths}) <= _MOST_ROWS
    )
    return tree_table_rows(report, depth=next(fitting, 1), max_rows=_MOST_ROWS)


def _tree(rows: TreeTableRows) -> _Node:
    """Return the rows as a tree of prefixes."""
    root = _Node("")
    for number, row in enumerate(rows.rows):
        keys = path_keys(row.path)
        prefix, name = keys[:-1][:_DEEPEST], "/".join(keys[_DEEPEST:] if len(keys) > _DEEPEST else keys[-1:])
        node = root
        for key in prefix:
            node = node.children.setdefault(key, _Node(f"{key}/"))
        times = f" ×{row.count}" if row.count > 1 else ""
        node.children[number] = _Node(f"{name or '(root)'}{'/' if row.is_prefix else ''}{times}", row)
    root.children = {key: _joined(node) for key, node in root.children.items()}
    for node in root.children.values():
        _sum(node)
    _open(root)
    return root


def _joined(node: _Node) -> _Node:
    """Return a prefix in which each prefix with one child is joined with that child."""
    while len(node.children) == 1:
        [child] = node.children.values()
        node = _Node(node.name + child.name, child.row, child.children)
    node.children = {key: _joined(child) for key, child in node.children.items()}
    return node


def _sum(node: _Node) -> tuple[TreeRow, ...]:
    """Set the sums of each prefix and return all leaves below it."""
    if node.row is None:
        leaves = tuple(leaf for child in node.children.values() for leaf in _sum(child))
        node.row = TreeTableRow(
            path=node.name, leaves=leaves, count=1, is_prefix=True, sums=leaf_sums(leaves)
        )
    return node.row.leaves


def _open(root: _Node) -> None:
    """Open the prefixes of the first levels, as long as the visible lines stay few."""
    level, lines = [root], 0
    while level:
        lines += sum(len(node.children) for node in level)
        if lines > _OPEN_LINES:
            return
        for node in level:
            node.is_open = True
        level = [child for node in level for child in node.children.values() if child.children]


class _Lines:
    """The lines of a tree, with its columns aligned."""

    def __init__(self, report: TreeReport, columns: Sequence[TreeColumn], root: _Node) -> None:
        self.report = report
        self.columns = columns
        self.widths = [cell_len(column.name) for column in columns]
        self.name_width = 4
        self._measure(root, 0)

    def _measure(self, node: _Node, level: int) -> None:
        for child in node.children.values():
            width = 2 * level + cell_len(printable(child.name))
            if width <= _WIDEST_NAME:
                self.name_width = max(self.name_width, width)
            self.widths = list(map(max, self.widths, map(cell_len, self._cells(child))))
            self._measure(child, level + 1)

    def head(self) -> str:
        """Return the heads of the columns."""
        return self._line("", [column.name for column in self.columns], 0)

    def below(self, node: _Node, level: int) -> Iterator[str]:
        """Yield the elements of everything below a node."""
        lines: list[str] = []
        for child in node.children.values():
            text, *notes = self._node_lines(child, level)
            if not child.children:
                lines += [text, *notes]
                continue
            yield from _block(lines)
            lines = []
            is_open = ' open=""' if child.is_open else ""
            yield (
                f'<details{is_open} style="{_PLAIN}">'
                f'<summary style="{_PLAIN};{_SUMMARY}">'
                f"{''.join([text, *notes])}</summary>"
                '<div style="margin:0 0 0 2ch">'
            )
            yield from self.below(child, level + 1)
            yield "</div></details>"
        yield from _block(lines)

    def rest(self, rows: TreeTableRows) -> str:
        """Return the line for the leaves beyond the last row."""
        if rows.rest is None:
            return ""
        cells = [_words(column.rest(rows.rest)) for column in self.columns]
        return f"<div>{self._line(f'{rows.rest.leaf_count} more leaves', cells, 0)}</div>"

    def _node_lines(self, node: _Node, level: int) -> list[str]:
        """Return the line of a node, and its notes."""
        assert node.row is not None
        notes = map(_span, note_lines(node.row, self.report))
        return [self._line(printable(node.name), self._cells(node), level), *notes]

    def _cells(self, node: _Node) -> list[str]:
        assert node.row is not None
        return [_words(column.lines(node.row)) for column in self.columns]

    def _line(self, name: str, cells: Iterable[str], level: int) -> str:
        room = self.name_width - 2 * level
        gap = " " * (room - cell_len(name)) if cell_len(name) <= room else f"\n{' ' * room}"
        padded = [
            cell.rjust(width) if column.is_number else cell + " " * (width - cell_len(cell))
            for cell, width, column in zip(cells, self.widths, self.columns, strict=True)
        ]
        return html.escape(f"{name}{gap}  {'  '.join(padded)}".rstrip())


def _words(lines: Sequence[Line]) -> str:
    return printable(" ".join(line.text for line in lines))


def _span(line: Line) -> str:
    """Return a line of notes, indented."""
    words = f"  {html.escape(printable(line.text))}"
    color = COLORS.get(line.look)
    return f'<span style="color:{color}">{words}</span>' if color else words


def _block(lines: Sequence[str]) -> Iterator[str]:
    """Yield lines as one element: a line break between elements would show as an empty line."""
    if lines:
        yield f"<div>{chr(10).join(lines)}</div>"
