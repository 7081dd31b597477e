"""SVG and HTML documents that contain reports."""

from __future__ import annotations

import functools
import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult

from jax_array_info_core import ShardingLayout
from jax_array_info_core.pages import page
from jax_array_info_core.pages.blocks import Block, Picture, Sentence, Table
from jax_array_info_core.reports import (
    ArrayReport,
    HostsReport,
    MeshReport,
    ProgramReport,
    ProgramTimelineReport,
    PropagationReport,
    Report,
    TimelineReport,
    TreeReport,
    XlaReport,
)
from jax_array_info_core.text import clipped, printable

from ..engine.console import on_console
from ..engine.html import blocks_html
from ..pictures.hosts import hosts_figure
from ..pictures.of_reports import figure
from ..pictures.palette import ColorMap
from ..pictures.svg import layout_figures
from ..pictures.timeline import timeline_figure
from ..render import _TABLES, render
from ..svg import GREY, Figure, lines_figure, lines_html, side_by_side, stacked, svg
from ..tables.array import xla_lines
from ..tables.hosts import hosts_answer, hosts_details
from ..tables.timeline import timeline_answer, timeline_details
from .annotated import Annotated, Prefixes, annotated_html
from .program_lines import program_parts, timeline_parts
from .propagation_lines import propagation_part

Part = Figure | RenderableType
"""A drawing, or a renderable that becomes lines of text."""


@dataclass(frozen=True, slots=True)
class Folding:
    """Blocks of which a page shows the tables as trees that fold; elsewhere, they are lines of text."""

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
    options: Mapping[str, Any] | None = None,
) -> list[list[Part]]:
    """Return the tables, panels and drawings of the reports of one document, in the same columns.

    Args:
        columns: The reports, in columns side by side.
        width: Characters per line.
        scale: Factor for the size of the cells of a drawing.
        color_map: Colors of the cells.
        has_pointer: Whether the reader can hover over a cell; a PNG has no tooltips.
        options: Options of the pages, such as ``max_rows``.
    """
    every = [_drawn_report(report) for reports in columns for report in reports]
    drawings = iter(layout_figures(every, scale=scale, color_map=color_map, has_pointer=has_pointer))
    return [
        [part for report in reports for part in _parts(report, next(drawings), width, options or {})]
        for reports in columns
    ]


def parts_of(reports: Sequence[Report], **options: Any) -> list[Part]:
    """Return the tables, panels and drawings of the reports of one document, from top to bottom.

    Args:
        reports: The reports.
        **options: Options of their pages, such as ``max_rows``.
    """
    [parts] = columns_of([reports], options=options)
    return parts


def _drawn_report(report: Report) -> Report:
    """Return a report without the name of its array, which is already the title of the panel above."""
    return replace(report, name=None) if isinstance(report, ArrayReport) else report


def _parts(report: Report, drawing: Figure | None, width: int, options: Mapping[str, Any]) -> Iterator[Part]:
    """Yield a report's table or panel and its drawing, whose accessible title includes the array's name."""
    match report:
        case ShardingLayout() | MeshReport():
            pass
        case XlaReport():
            yield Group(*xla_lines(report))
        case ProgramReport():
            yield from program_parts(report)
        case ProgramTimelineReport():
            yield from timeline_parts(report, width)
        case PropagationReport():
            yield propagation_part(report)
        case HostsReport():
            yield hosts_answer(report)
            if report.process_count > 1:
                yield hosts_figure(report)
            yield hosts_details(report, width=width)
        case TimelineReport() if report.times:
            yield timeline_answer(report)
            yield timeline_figure(report)
            yield timeline_details(report)
        case _ if type(report).__name__ in _TABLES:
            yield render(report, width=width)
        case _:
            yield from _page_parts(page(report, **options), drawing, width)
    if drawing and isinstance(report, ArrayReport) and report.name is not None:
        yield replace(drawing, title=f"{title_of(report)}: {drawing.title}")
    elif drawing:
        yield drawing


def _page_parts(blocks: Iterable[Block], drawing: Figure | None, width: int) -> Iterator[Part]:
    """Yield the texts of a page, and its drawings and sources between them.

    Args:
        blocks: The page.
        drawing: The drawing of its layout, if it has one.
        width: Characters per line.
    """
    texts: list[Block] = []
    for block in (*blocks, None):
        if block is not None and not isinstance(block, Picture):
            texts.append(block)
            continue
        if any(text != Sentence("") for text in texts):
            has_tree = any(isinstance(text, Table) and text.tree for text in texts)
            yield Folding(texts) if has_tree else on_console(texts, width=width)
        texts = []
        if isinstance(block, Picture):
            yield drawing or figure(block.of)


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


def parts_html(parts: Iterable[Part], width: int = 80, prefixes: Prefixes | None = None) -> str:
    """Return parts as an HTML fragment.

    Args:
        parts: The parts.
        width: Characters per line.
        prefixes: Begins of the ids that the page has already. None for a page of its own.
    """
    known = prefixes or Prefixes()
    pieces = [_part_html(part, width, known) for part in parts]
    # A drawing shrinks to the width of the page; lines of text scroll.
    return f'<div style="max-width:100%;overflow-x:auto">{"".join(pieces)}</div>'


@functools.cache
def page_prefixes() -> Prefixes:
    """Return the begins of the ids in the notebook of this process, whose outputs are one page."""
    return Prefixes()


def _part_html(part: Part, width: int, prefixes: Prefixes) -> str:
    match part:
        case Figure():
            return svg(part, color=None)
        case Folding():
            return blocks_html(part.blocks)
        case Annotated():
            return annotated_html(part, width, prefixes)
    return lines_html(part, width)


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
