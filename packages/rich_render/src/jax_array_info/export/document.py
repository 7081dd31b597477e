"""SVG and HTML documents that contain reports, and the user's source with notes in its margin as HTML."""

from __future__ import annotations

import functools
import hashlib
import html
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile
from typing import Any, Literal

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

from jax_array_info_core import to_json
from jax_array_info_core.base.quantities import counted
from jax_array_info_core.base.text import clipped, printable
from jax_array_info_core.facts.pages import page
from jax_array_info_core.facts.pages.blocks import (
    Block,
    Further,
    Listing,
    Picture,
    Sentence,
    Source,
    Table,
    cut,
    left_out,
)
from jax_array_info_core.facts.pages.folds import MaxRows
from jax_array_info_core.facts.pages.program_words import Link, Target, line_target
from jax_array_info_core.reports import (
    ArrayReport,
    ProgramReport,
    ProgramTimelineReport,
    PropagationReport,
    Report,
    TreeReport,
)

from ..engine.html import blocks_html
from ..engine.lines import Writing
from ..engine.render import left_out_lines, on_console
from ..pictures import figure
from ..pictures.palette import ColorMap
from ..pictures.svg import layout_figures
from ..svg import COLORS, FONT, GREY, Figure, lines_figure, lines_html, side_by_side, stacked, svg
from .source_lines import LeafLine, Margin, MarkedLine, Note, SourceFile, SourceRow, source_files
from .source_text import SourcePart, source_part

_MOST_ROWS = 100
Part = Figure | RenderableType
"""A drawing, or a renderable that becomes lines of text."""


@dataclass(frozen=True, slots=True)
class TextPart:
    """Blocks as lines of text; a page with a tree shows it as one that folds."""

    blocks: Sequence[Block]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield on_console(self.blocks, width=options.max_width)


class FoldedPart(TextPart):
    """Blocks that a page has below a line to unfold them; as text, they are lines like others."""


def columns_of(
    columns: Sequence[Sequence[Report]],
    *,
    scale: float = 1.0,
    color_map: ColorMap | None = None,
    has_pointer: bool = True,
    max_rows: MaxRows = "fit",
    **options: Any,
) -> list[list[Part]]:
    """Return the tables, panels and drawings of the reports of one document, in the same columns.

    Args:
        columns: The reports, in columns side by side.
        scale: Factor for the size of the cells of a drawing.
        color_map: Colors of the cells.
        has_pointer: Whether the reader can hover over a cell; a PNG has no tooltips.
        max_rows: Maximum number of rows of each list; None for all, ``"fit"`` for 100.
        **options: Further options of the pages.
    """
    most = _MOST_ROWS if max_rows == "fit" else max_rows
    every = [_drawn_report(report) for reports in columns for report in reports]
    drawings = iter(layout_figures(every, scale=scale, color_map=color_map, has_pointer=has_pointer))
    return [
        [part for report in reports for part in _parts(report, next(drawings), most, options)]
        for reports in columns
    ]


def parts_of(reports: Sequence[Report], **options: Any) -> list[Part]:
    """Return the parts of the reports of one document from top to bottom, with options of their pages."""
    [parts] = columns_of([reports], **options)
    return parts


def _drawn_report(report: Report) -> Report:
    """Return a report without the name of its array, which is already the title of the panel above."""
    return replace(report, name=None) if isinstance(report, ArrayReport) else report


def _parts(
    report: Report, drawing: Figure | None, most: int | None, options: Mapping[str, Any]
) -> Iterator[Part]:
    """Yield the texts of a report's page, and its drawings and sources between them.

    Args:
        report: The report.
        drawing: The drawing of its layout, if it has one.
        most: Maximum number of rows of each list.
        options: Options of its page.
    """
    if drawing and isinstance(report, ArrayReport) and report.name is not None:
        drawing = replace(drawing, title=f"{title_of(report)}: {drawing.title}")
    texts: list[Block] = []
    listings = [*page(report, **options)]
    for block in [*_shown(listings, most), *left_out_lines(left_out(listings, most))]:
        part: Part
        if isinstance(block, Picture):
            part = drawing or figure(block.of)
        elif isinstance(block, Source):
            part = source = source_part(block, most)
            if not source.margin.lines:
                continue
        elif isinstance(block, Further):
            part = FoldedPart([*cut(block.blocks, most)])
        else:
            texts.append(block)
            continue
        yield from _text_parts(texts)
        texts = []
        yield part
    yield from _text_parts(texts)


def _shown(listings: Iterable[Listing], most: int | None) -> Iterator[Block | Further]:
    """Yield blocks with a number of rows, but for those that are further by default: a page folds them."""
    for listing in listings:
        if not isinstance(listing, Further) or listing.is_if_room:
            yield from cut([listing], most)
        elif any(cut([listing], most)):
            yield listing


def _text_parts(blocks: Sequence[Block]) -> Iterator[TextPart]:
    """Yield blocks as a part, if there are any, without empty lines at the end: a drawing has a margin."""
    kept = [*dropwhile(lambda block: block == Sentence(""), reversed(blocks))]
    if kept:
        yield TextPart(kept[::-1])


def title_of(report: Report) -> str:
    """Return the name of the array, the tree or the program of a report, else the name of its class."""
    named = ArrayReport | ProgramReport | ProgramTimelineReport | PropagationReport | TreeReport
    name = report.name if isinstance(report, named) else None
    return printable(clipped(name or type(report).__name__))


def columns_svg(
    columns: Sequence[Sequence[Part]], title: str = "", width: int = 80, color: str = GREY
) -> str:
    """Return parts as an SVG document, columns side by side; the title is for documents without a drawing."""
    figures = [
        stacked([part if isinstance(part, Figure) else lines_figure(part, width) for part in parts])
        for parts in columns
    ]
    return svg(side_by_side(figures, 32), title=title, color=color)


def parts_html(parts: Iterable[Part], width: int = 80, shown: Counter[str] | None = None) -> str:
    """Return parts as an HTML fragment.

    The ids of a report's source begin with a hash of the report, and with a number if the page has it again.

    Args:
        parts: The parts.
        width: Characters per line.
        shown: How often the page has each source already, by the begin of its ids. None if it has none.
    """
    known = Counter[str]() if shown is None else shown
    pieces = [_part_html(part, width, known) for part in parts]
    # A drawing shrinks to the width of the page; lines of text scroll.
    return f'<div style="max-width:100%;overflow-x:auto">{"".join(pieces)}</div>'


@functools.cache
def shown_in_notebook() -> Counter[str]:
    """Return how often the notebook of this process, whose outputs are one page, has each source."""
    return Counter()


def _part_html(part: Part, width: int, shown: Counter[str]) -> str:
    match part:
        case Figure():
            return svg(part, color=None)
        case FoldedPart(blocks):
            titles = [block.title for block in blocks if isinstance(block, Table)] or ["sums"]
            summary = f'<summary style="cursor:pointer">{_escaped(", ".join(titles))}</summary>'
            return f"<details>{summary}{lines_html(part, width)}</details>"
        case TextPart() if any(isinstance(block, Table) and block.tree for block in part.blocks):
            return blocks_html(part.blocks)
        case SourcePart():
            name = f"jai-{hashlib.sha256(to_json(part.report).encode()).hexdigest()[:12]}"
            shown[name] += 1
            return source_html(part.margin, name if shown[name] == 1 else f"{name}-copy{shown[name]}")
    return lines_html(part, width)


def document_of(columns: Sequence[Sequence[Report]], kind: Literal["svg", "html"], **options: Any) -> str:
    """Return reports as one SVG or HTML document, columns side by side.

    Args:
        columns: The reports.
        kind: Format of the document.
        **options: Options of the pages.
    """
    drawn = columns_of(columns, **options)
    if kind == "svg":
        titles = dict.fromkeys(title_of(report) for reports in columns for report in reports)
        return columns_svg(drawn, ", ".join(titles)) + "\n"
    shown = Counter[str]()
    return html_document((parts_html(parts, shown=shown) for parts in drawn), "jai-cli")


def html_document(fragments: Iterable[str], title: str) -> str:
    """Return a page of HTML fragments that follows the reader's light or dark mode.

    Fragments are side by side where there is room, otherwise one below the other.
    """
    body = "\n".join(f"<div>{fragment}</div>" for fragment in fragments)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8" />\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1" />\n'
        f"<title>{html.escape(printable(title))}</title>\n"
        "<style>:root{color-scheme:light dark}"
        "body{margin:1rem;display:flex;flex-wrap:wrap;gap:2rem}body>div{min-width:0}</style>\n"
        f"</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


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
