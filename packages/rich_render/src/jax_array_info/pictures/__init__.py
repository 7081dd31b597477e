"""Pictures: the drawing of each report that has one, as text, and as a figure of a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from ..svg import Figure


def picture(report: Any, console: Console, *, width: int, encoding: str, use_color: bool) -> Text:
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
    from .. import style  # the modules of this package do not all need it

    areas_color = use_color and style.has_many_colors(console)
    match type(report).__name__:  # the classes of the others are not imported for one
        case "ArrayReport" | "MeshReport" | "ShardingLayout" | "XlaReport" as name:
            from .text import array_picture

            drawn = array_picture(
                report.layout if name == "MeshReport" else report,
                use_color=use_color,
                max_width=max(width, style.LEAST_WIDTH),
                encoding=encoding,
                mesh=report if name == "MeshReport" else None,
            )
        case "TimelineReport" | "ProgramTimelineReport":
            from .areas import timeline_picture

            drawn = timeline_picture(report, width=width, use_color=areas_color, encoding=encoding)
        case _:
            raise TypeError(f"a {type(report).__name__} has no drawing")
    return style.folding(drawn)


def figure(report: Any) -> Figure:
    """Return the drawing of a report as a figure, unless it is that of a layout.

    Raises:
        TypeError: If the report has no such drawing.
    """
    match type(report).__name__:
        case "TimelineReport" | "ProgramTimelineReport":
            from .areas import timeline_figure

            return timeline_figure(report)
    raise TypeError(f"a {type(report).__name__} has no figure")
