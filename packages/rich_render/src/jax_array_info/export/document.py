"""Any report → SVG and HTML."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rich.console import Group, RenderableType

from jax_array_info_core import ArrayReport, MeshReport, Report, ShardingLayout, XlaReport
from jax_array_info_core.text import printable

from ..pictures.fitting import clipped
from ..pictures.palette import ColorMap
from ..pictures.svg import layout_figures
from ..render import render
from ..svg.figure import Figure, above, beside, svg
from ..svg.page_colors import GREY
from ..svg.rich_lines import lines_figure, lines_html
from ..tables.explain import xla_lines

Part = Figure | RenderableType
"""A drawing, or what rich draws as lines of characters."""


def columns_of(
    columns: Sequence[Sequence[Report]],
    *,
    width: int = 80,
    scale: float = 1.0,
    color_map: ColorMap | None = None,
    has_pointer: bool = True,
) -> list[list[Part]]:
    """Return what shows the reports of one document: what the verbs print, with drawings for pictures.

    Args:
        columns: The reports, in columns beside each other.
        width: Number of characters a line may have.
        scale: Factor for the size of the cells of a drawing.
        color_map: Colours to fill them with.
        has_pointer: Whether a pointer can rest on what is shown, to be told more.
    """
    every = [_drawn_report(report) for reports in columns for report in reports]
    drawings = iter(layout_figures(every, scale=scale, color_map=color_map, has_pointer=has_pointer))
    return [
        [part for report in reports for part in _parts(report, next(drawings), width)] for reports in columns
    ]


def parts_of(reports: Sequence[Report]) -> list[Part]:
    """Return what shows the reports of one document, each under the one before."""
    [parts] = columns_of([reports])
    return parts


def _drawn_report(report: Report) -> Report:
    """Return a report as it is drawn: the panel over an array has its name in the title."""
    return replace(report, name=None) if isinstance(report, ArrayReport) else report


def _parts(report: Report, drawing: Figure | None, width: int) -> Iterator[Part]:
    """Yield a report's lines and its drawing, which tells those who do not see it the array's name, too."""
    match report:
        case ShardingLayout() | MeshReport():
            pass
        case XlaReport():
            yield Group(*xla_lines(report))
        case _:
            yield render(report, width=width)
    if drawing and isinstance(report, ArrayReport) and report.name is not None:
        yield replace(drawing, title=f"{title_of(report)}: {drawing.title}")
    elif drawing:
        yield drawing


def title_of(report: Report) -> str:
    """Return the name of what a report is about, or of the kind of report."""
    name = report.name if isinstance(report, ArrayReport) else None
    return printable(clipped(name or type(report).__name__))


def columns_svg(
    columns: Sequence[Sequence[Part]], title: str = "", width: int = 80, color: str = GREY
) -> str:
    """Return parts as an SVG document: columns beside each other, with a title for lines alone."""
    figures = [
        above([part if isinstance(part, Figure) else lines_figure(part, width) for part in parts])
        for parts in columns
    ]
    return svg(beside(figures, 32), title=title, color=color)


def parts_html(parts: Iterable[Part], width: int = 80) -> str:
    """Return parts as an HTML fragment."""
    pieces = [
        svg(part, color=None) if isinstance(part, Figure) else lines_html(part, width) for part in parts
    ]
    # A drawing is as wide as the page allows, lines of characters can be moved sideways.
    return f'<div style="max-width:100%;overflow-x:auto">{"".join(pieces)}</div>'


def html_document(fragments: Iterable[str], title: str) -> str:
    """Return HTML fragments as a page of its own, light or dark as its reader wishes.

    They stand beside each other where there is room, below each other elsewhere.
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
