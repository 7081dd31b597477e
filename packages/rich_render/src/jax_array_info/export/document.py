"""SVG and HTML documents that contain reports."""

from __future__ import annotations

import functools
import hashlib
import html
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

from jax_array_info_core import to_json
from jax_array_info_core.base.text import clipped, printable
from jax_array_info_core.facts.pages import page
from jax_array_info_core.facts.pages.blocks import Block, Picture, Sentence, Source, Table
from jax_array_info_core.facts.pages.folds import MaxRows
from jax_array_info_core.reports import (
    ArrayReport,
    ProgramReport,
    ProgramTimelineReport,
    PropagationReport,
    Report,
    TreeReport,
)

from ..engine.html import blocks_html
from ..engine.render import on_console, shown_blocks
from ..pictures.of_reports import figure
from ..pictures.palette import ColorMap
from ..pictures.svg import layout_figures
from ..svg import GREY, Figure, lines_figure, lines_html, side_by_side, stacked, svg
from .source_html import source_html
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


def columns_of(
    columns: Sequence[Sequence[Report]],
    *,
    width: int = 80,
    scale: float = 1.0,
    color_map: ColorMap | None = None,
    has_pointer: bool = True,
    max_rows: MaxRows = "fit",
    **options: Any,
) -> list[list[Part]]:
    """Return the tables, panels and drawings of the reports of one document, in the same columns.

    Args:
        columns: The reports, in columns side by side.
        width: Characters per line.
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
    for block in shown_blocks([*page(report, **options)], most):
        part: Part
        if isinstance(block, Picture):
            part = drawing or figure(block.of)
        elif isinstance(block, Source):
            part = source = source_part(block, most)
            if not source.margin.lines:
                continue
        else:
            texts.append(block)
            continue
        yield from _text_parts(texts)
        texts = []
        yield part
    yield from _text_parts(texts)


def _text_parts(blocks: Sequence[Block]) -> Iterator[TextPart]:
    """Yield blocks as a part, if there are any, without empty lines at the end: a drawing has a margin."""
    count = len(blocks)
    while count and blocks[count - 1] == Sentence(""):
        count -= 1
    if count:
        yield TextPart(blocks[:count])


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
