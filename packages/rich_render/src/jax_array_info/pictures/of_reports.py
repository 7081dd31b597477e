"""The drawing of each report that has one: as text, and as a figure of a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from jax_array_info_core import ShardingLayout
from jax_array_info_core.reports import (
    ArrayReport,
    HostsReport,
    MeshReport,
    ProgramTimelineReport,
    TimelineReport,
    XlaReport,
)

from .. import style

if TYPE_CHECKING:
    from jax_array_info_core.reports import Report

    from ..svg import Figure


def picture(report: Report, console: Console, *, width: int, encoding: str, use_color: bool) -> Text:
    """Return the drawing of a report as text.

    Args:
        report: A report with a drawing.
        console: The console, for its number of colors.
        width: Maximum line length in characters. Layouts are at least 20 characters wide.
        encoding: Encoding of the console.
        use_color: Whether to fill cells and areas with colors.

    Raises:
        TypeError: If the report has no drawing.
    """
    areas_color = use_color and style.has_many_colors(console)
    match report:
        case HostsReport():
            from .hosts import hosts_picture

            drawn = hosts_picture(report, width=width, use_color=use_color)
        case ArrayReport() | MeshReport() | ShardingLayout() | XlaReport():
            from .text import LEAST_WIDTH, array_picture, mesh_picture

            draw: Any = mesh_picture if isinstance(report, MeshReport) else array_picture
            drawn = draw(report, max_width=max(width, LEAST_WIDTH), encoding=encoding, use_color=use_color)
        case TimelineReport() | ProgramTimelineReport():
            from .timeline import timeline_picture

            drawn = timeline_picture(report, width=width, use_color=areas_color, encoding=encoding)
        case _:
            raise TypeError(f"a {type(report).__name__} has no drawing")
    return style.folding(drawn)


def figure(report: Report) -> Figure:
    """Return the drawing of a report as a figure, unless it is that of a layout.

    Raises:
        TypeError: If the report has no such drawing.
    """
    match report:
        case HostsReport():
            from .hosts import hosts_figure

            return hosts_figure(report)
        case TimelineReport() | ProgramTimelineReport():
            from .timeline import timeline_figure

            return timeline_figure(report)
    raise TypeError(f"a {type(report).__name__} has no figure")
