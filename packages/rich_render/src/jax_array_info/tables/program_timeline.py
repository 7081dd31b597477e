"""Text for ``ProgramTimelineReport``: the peak, and the live bytes along the schedule as stacked areas."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.text import Text

from jax_array_info_core import format_bytes
from jax_array_info_core.quantities import grouped
from jax_array_info_core.reports import ProgramTimelineReport

from .. import style
from ..pictures.areas import Area, AreaChart, areas_picture
from .pages import Page
from .words import origin_words

_SOURCES = {
    "peak": "the peak, arguments and outputs are XLA's figures",
    "sum": "arguments and outputs are XLA's figures",
    "unknown": "the backend reports no bytes of arguments and outputs",
}


def program_timeline_table(
    report: ProgramTimelineReport, *, width: int = 80, use_color: bool = False
) -> RenderableType:
    """Return the peak, the stacked areas, and the sources of the figures.

    Args:
        report: The timeline.
        width: Maximum line length in characters.
        use_color: Whether to fill the areas with colors.
    """

    def picture(console: Console, options: ConsoleOptions) -> Text:
        color = use_color and style.has_many_colors(console)
        most = min(width, options.max_width)
        chart = timeline_chart(report)
        return style.folding(areas_picture(chart, width=most, use_color=color, encoding=options.encoding))

    drawn = [style.ForConsole(picture), timeline_notes(report, width=width)] if report.points else []
    return Group(timeline_head(report, width=width), *drawn)


def timeline_chart(report: ProgramTimelineReport) -> AreaChart:
    """Return the live bytes along the schedule as a chart: lines in colors, the rest in grey."""
    return AreaChart(
        positions=report.points,
        position_words=lambda point: (
            f"operation {report.points[point]} of {report.operation_count}: {report.operations[point]}"
        ),
        tick_words=lambda place: grouped(int(place)),
        areas=[Area(name=one.name, values=one.nbytes, is_rest=one.kind != "line") for one in report.series],
        peak=report.peak,
        peak_words="" if report.peak is None else f"peak {format_bytes(report.total_nbytes[report.peak])}",
    )


def timeline_head(report: ProgramTimelineReport, *, width: int = 80) -> RenderableType:
    """Return the lines above the areas: the peak, and the program."""

    def write(page: Page) -> None:
        if report.out_of_memory is not None:
            page.write(report.out_of_memory.answer, look=f"bold {style.WARNING}")
        if report.peak is not None:
            facts = [report.operations[report.peak], origin_words(report.peak_origin)]
            page.write(f"{report.peak_words}: {', '.join(filter(None, facts))}", look="bold")
        page.write(f"{_title(report)}: live bytes per device along the schedule")

    return _page(write, width)


def timeline_notes(report: ProgramTimelineReport, *, width: int = 80) -> RenderableType:
    """Return the lines below the areas: the sources of the figures."""

    def write(page: Page) -> None:
        source = _SOURCES[report.needed_source]
        loops = "which has the body of a loop once"
        page.write(f"Estimated from the schedule, {loops}; {source}.", look=style.ASIDE)
        if report.excess_nbytes:
            more = format_bytes(report.excess_nbytes)
            page.write(f"The estimate is {more} more than XLA needs.", look=style.ASIDE)
        if report.host_nbytes:
            page.write(f"not shown: {format_bytes(report.host_nbytes)} in host memory")

    return _page(write, width)


def _title(report: ProgramTimelineReport) -> str:
    """Return the name of the program, its line and its platform."""
    platform = report.platform.upper() if report.platform in ("cpu", "gpu", "tpu") else report.platform
    name = report.name if report.origin is None else f"{report.name} ({report.origin.place})"
    return ", ".join(filter(None, (name, report.topology or platform)))


def _page(write: Callable[[Page], None], width: int) -> RenderableType:
    """Return the lines that a function writes."""

    def make(_: Console, options: ConsoleOptions) -> Text:
        page = Page(min(width, options.max_width), options.encoding)
        write(page)
        return page.text()

    return style.ForConsole(make)
