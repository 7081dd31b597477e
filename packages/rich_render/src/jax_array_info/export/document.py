"""Any report → SVG and HTML."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich.console import Group, RenderableType

from jax_array_info_core import ArrayReport, MeshReport, Report, ShardingLayout, XlaReport
from jax_array_info_core.text import printable

from ..pictures.fitting import clipped
from ..pictures.palette import ColorMap
from ..pictures.svg import layout_figures
from ..render import render
from ..svg.figure import Figure, above, beside, svg
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
    shown: list[list[Part]] = []
    for reports in columns:
        shown.append([])
        for report in reports:
            shown[-1] += _lines(report, width)
            if drawing := next(drawings):
                shown[-1].append(_named(drawing, report))
    return shown


def parts_of(
    report: Report,
    *,
    width: int = 80,
    scale: float = 1.0,
    color_map: ColorMap | None = None,
    has_pointer: bool = True,
) -> list[Part]:
    """Return what shows a report that is alone in its document; the arguments are those of ``columns_of``."""
    [parts] = columns_of([[report]], width=width, scale=scale, color_map=color_map, has_pointer=has_pointer)
    return parts


def _drawn_report(report: Report) -> Report:
    """Return a report as it is drawn: the panel over an array has its name in the title."""
    return replace(report, name=None) if isinstance(report, ArrayReport) else report


def _named(drawing: Figure, report: Report) -> Figure:
    """Return the drawing of a report, which tells those who do not see it the name of its array, too."""
    is_named = isinstance(report, ArrayReport) and report.name is not None
    return replace(drawing, title=f"{title_of(report)}: {drawing.title}") if is_named else drawing


def _lines(report: Report, width: int) -> list[Part]:
    """Return what stands over the drawing of a report, or is shown where there is none."""
    match report:
        case ShardingLayout() | MeshReport():
            return []
        case XlaReport():
            return [Group(*xla_lines(report))]
    return [render(report, width=width)]


def title_of(report: Report) -> str:
    """Return the name of what a report is about, or of the kind of report."""
    name = report.name if isinstance(report, ArrayReport) else None
    return printable(clipped(name or type(report).__name__))


def figure_of(parts: Iterable[Part], width: int) -> Figure:
    """Return parts as one figure, each under the one before."""
    return above([part if isinstance(part, Figure) else lines_figure(part, width) for part in parts])


def columns_svg(columns: Sequence[Sequence[Part]], title: str, width: int = 80) -> str:
    """Return parts as an SVG document: columns beside each other, with a title for lines alone."""
    return svg(beside([figure_of(parts, width) for parts in columns], 32), title=title)


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
