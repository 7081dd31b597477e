"""The user's source as HTML, with notes in its margin."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from jax_array_info_core.base.quantities import counted
from jax_array_info_core.facts.pages.program_words import Link, Target, line_target

from ..engine.lines import Writing
from ..svg import COLORS, FONT, GREY
from .source_lines import LeafLine, Margin, MarkedLine, Note, SourceFile, SourceRow, source_files

_WRITING = Writing("utf-8")
_MOST_LINKS = 20
"""Maximum number of lines in the list of the costliest lines."""
_MOST_LINES = 300
"""Maximum number of marked lines in the source."""
_ROW = "display:flex;flex-wrap:wrap;align-items:baseline;border-left:3px solid"
"""Inline style of a line of source: its notes are to its right, or below it on a narrow page."""
_WRAPPED = "white-space:pre-wrap;overflow-wrap:anywhere"
_NUMBER_CELL = "text-align:right;white-space:pre"
_LINE_CELL = "white-space:nowrap;overflow:hidden;text-overflow:ellipsis"
"""Inline styles of the columns of the list of links."""
_LINK = f"color:{COLORS['blue']}"
_UNDERLINE = f"text-decoration:underline wavy {COLORS['red']} 1px;text-underline-offset:3px"


def source_html(margin: Margin, prefix: str) -> str:
    """Return the list of the costliest lines, arguments and outputs, and the source around the marked lines.

    Links lead from the costliest lines to their source, and from notes to what they refer to. The fragment
    has no scripts and no style sheets, and the colors of the page around it.

    Args:
        margin: The lines.
        prefix: Begin of all ids.
    """
    looks = f"font-family:{FONT};font-size:13px;line-height:1.4;color:inherit;margin:1em 0"
    return f'<div style="{html.escape(looks)}">{"".join(_Page(margin, prefix).pieces())}</div>'


class _Page:
    """Marked lines, the source around them, and arguments and outputs."""

    def __init__(self, margin: Margin, prefix: str) -> None:
        lines = margin.lines[:_MOST_LINES]
        self._margin = margin
        self._costly = [line for line in lines if line.weight is not None]
        self._files = source_files(lines)
        self._largest = max((line.weight or 0 for line in self._costly), default=0)
        self._ids = _ids(lines, margin.leaves, prefix)

    def pieces(self) -> Iterator[str]:
        """Yield the elements of the page."""
        if self._costly:
            yield self._links()
        for file in self._files:
            yield from self._file(file)
        if self._margin.leaves:
            yield _head("arguments and outputs")
            yield from map(self._leaf, self._margin.leaves)

    def _links(self) -> str:
        """Return the list of the costliest lines."""
        codes = {id(row.line): row.code.strip() for file in self._files for row in file.rows}
        shown = self._costly[:_MOST_LINKS]
        heads = [head for head in self._margin.heads if any(line.cells.get(head) for line in shown)]
        cells = [_div(f"<b>{head}</b>", _NUMBER_CELL) for head in heads] + [_div("<b>line</b>", _LINE_CELL)]
        for line in shown:
            words = codes[id(line)] or "".join(note.text for note in line.notes[:1])
            link = self._link(Link(line.origin.place, line_target(line.origin)))
            code = f'{link}<span style="margin-left:2ch">{_escaped(words)}</span>'
            cells += [_div(_escaped(line.cells.get(head, "")), _NUMBER_CELL) for head in heads]
            cells.append(_div(code, _LINE_CELL))
        looks = f"display:grid;grid-template-columns:{'auto ' * len(heads)}minmax(0,1fr);gap:0 2ch"
        hidden = len(self._costly) - len(shown)
        ending = _div(f"and {counted(hidden, 'more line', 'more lines')}", f"color:{GREY}") if hidden else ""
        return f"<div><b>{self._margin.title.plain}</b></div>{_div(''.join(cells), looks)}{ending}"

    def _file(self, file: SourceFile) -> Iterator[str]:
        """Yield the elements of a file."""
        note = f'<span style="margin-left:2ch;color:{GREY}">{file.note}</span>' if file.note else ""
        yield _head(_escaped(file.path), note)
        yield from (self._row(row, file.digits) for row in file.rows)

    def _row(self, row: SourceRow, widest: int) -> str:
        """Return a line of source with its notes in the margin, or the number of lines that are left out."""
        indent, line = widest + 2, row.line
        if row.left_out:
            return _div(_escaped(row.left_out), f"color:{GREY};padding-left:{indent}ch")
        color, looks, quiet = "transparent", "", GREY
        if line is not None and line.weight is not None:
            quiet = "inherit"  # grey is not legible on the color of the line
            color, share = COLORS["red"], line.weight / self._largest if self._largest else 0
            looks = f";background:rgba(225,45,45,{0.06 + 0.12 * share:.2f})"
        label = f'<span style="color:{quiet}">{str(row.number).rjust(widest)}</span>'
        code = "".join(
            f'<span style="{_UNDERLINE}">{_escaped(words)}</span>' if is_marked else _escaped(words)
            for is_marked, words in row.runs
        )
        name = "" if line is None else self._ids[line_target(line.origin)]
        notes = () if line is None else line.notes
        return self._noted(name, f"{_ROW} {color}{looks}", f"{label}  {code}", indent, notes)

    def _leaf(self, leaf: LeafLine) -> str:
        """Return an argument or output with its notes in the margin."""
        name = self._ids[leaf.paths[0]]
        return self._noted(name, f"{_ROW} transparent", _escaped(leaf.words), 2, leaf.notes)

    def _noted(self, name: str, looks: str, code: str, indent: int, notes: Iterable[Note]) -> str:
        """Return a row with notes in the margin."""
        anchor = f' id="{name}"' if name else ""
        words = "".join(self._note(note, name) for note in notes)
        margin = f"flex:1 1 44ch;{_WRAPPED};padding-left:{indent + 6}ch;text-indent:-2ch"
        beside = _div(words, margin) if words else ""
        code_looks = f"flex:1 1 56ch;min-width:0;{_WRAPPED};padding-left:{indent}ch;text-indent:-{indent}ch"
        return f'<div{anchor} style="{looks}">{_div(code, code_looks)}{beside}</div>'

    def _note(self, note: Note, row_id: str) -> str:
        """Return a note of the row with an id; the row has no links to itself."""
        words = "".join(
            _escaped(piece) if isinstance(piece, str) else self._link(piece, row_id) for piece in note.pieces
        )
        size = f"<b>{_escaped(note.size)}</b>  " if note.size else ""
        return f"<div>{size}{words}</div>"

    def _link(self, link: Link, row_id: str = "") -> str:
        """Return a link, or its words if the page does not have what it leads to."""
        name, words = self._ids.get(link.target), _escaped(link.words)
        return words if name in (None, row_id) else f'<a href="#{name}" style="{_LINK}">{words}</a>'


def _ids(lines: Sequence[MarkedLine], leaves: Sequence[LeafLine], prefix: str) -> Mapping[Target, str]:
    """Return the id of each line and its place, and of each path."""
    ids: dict[Target, str] = {}
    places = Counter(line.origin.place for line in lines)
    for number, line in enumerate(lines):
        ids[line_target(line.origin)] = f"{prefix}-{number}"
        if places[line.origin.place] == 1:  # files in two folders can have one name
            ids[line.origin.place] = f"{prefix}-{number}"
    for number, leaf in enumerate(leaves):
        ids.update(dict.fromkeys(leaf.paths, f"{prefix}-leaf-{number}"))
    return ids


def _head(words: str, note: str = "") -> str:
    return f'<div style="margin-top:1em;overflow-wrap:anywhere"><b>{words}</b>{note}</div>'


def _div(content: str, looks: str) -> str:
    return f'<div style="{looks}">{content}</div>'


def _escaped(text: str) -> str:
    return html.escape(_WRITING.safe(text))
