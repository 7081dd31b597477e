"""The memory of a device over time, or of a program along its schedule, as areas by line."""

from __future__ import annotations

from rich.text import Text

from jax_array_info_core import format_bytes
from jax_array_info_core.base.quantities import grouped, time_words
from jax_array_info_core.reports import ProgramTimelineReport, TimelineReport

from ..svg import Figure
from .areas import Area, AreaChart, areas_figure, areas_picture

_DAY = 86_400
_SMALLEST = 1 / 24
"""Areas of text that are never larger than this part of the peak, half a line, are one area."""


def timeline_picture(
    report: TimelineReport | ProgramTimelineReport, *, width: int, use_color: bool, encoding: str = "utf-8"
) -> Text:
    """Return the bytes in use as text, by allocation site or by line of the program.

    Args:
        report: The timeline.
        width: Maximum line length in characters.
        use_color: Whether to fill the areas with colors.
        encoding: Encoding of the console.
    """
    return areas_picture(_chart(report, _SMALLEST), width=width, use_color=use_color, encoding=encoding)


def timeline_figure(report: TimelineReport | ProgramTimelineReport) -> Figure:
    """Return the bytes in use as SVG, by allocation site or by line of the program."""
    return areas_figure(_chart(report, _SMALLEST / 4))


def _areas(report: TimelineReport, smallest: float) -> list[Area]:
    """Return the areas. Allocation sites that never have this part of the peak are together."""
    large = [
        series
        for series in report.series
        if series.kind != "origin" or max(series.nbytes) >= smallest * max(report.in_use)
    ]
    small = [series.nbytes for series in report.series if series not in large]
    others = [series for series in large if series.kind == "other arrays"]
    together = [sum(values) for values in zip(*small, *(series.nbytes for series in others), strict=True)]
    return [
        *(Area(name=series.name, values=series.nbytes) for series in large if series.kind == "origin"),
        *([Area(name="other arrays", values=together, is_rest=True)] if together else []),
        *(
            Area(name=series.name, values=series.nbytes, is_rest=True)
            for series in large
            if series.kind == "not arrays"
        ),
    ]


def _program_chart(report: ProgramTimelineReport) -> AreaChart:
    """Return the live bytes along the schedule as a chart: lines in colors, the rest in grey."""
    return AreaChart(
        positions=report.points,
        position_words=lambda point: (
            f"operation {report.points[point]} of {report.operation_count}: {report.operations[point]}"
        ),
        tick_words=lambda place: grouped(int(place)),
        areas=[
            Area(name=series.name, values=series.nbytes, is_rest=series.kind != "line")
            for series in report.series
        ],
        peak=report.peak,
        peak_words="" if report.peak is None else f"peak {format_bytes(report.total_nbytes[report.peak])}",
    )


def _chart(report: TimelineReport | ProgramTimelineReport, smallest: float) -> AreaChart:
    if isinstance(report, ProgramTimelineReport):
        return _program_chart(report)
    device = report.chosen_device
    spread = report.times[-1] - report.times[0]
    marks = sorted((time, mark.name) for mark in report.marks for time in mark.times)
    fullest = max(range(len(report.in_use)), key=report.in_use.__getitem__)
    moment = report.moment_words(report.times[fullest], report.steps[fullest])

    def tick_words(time: float) -> str:
        if spread < 10:
            return f"{time - report.times[0]:.1f} s"
        words = time_words(time, has_date=spread > _DAY)
        return words[5:-3] if spread > _DAY else words if spread < 600 else words[:-3]

    def position_words(point: int) -> str:
        return report.moment_words(report.times[point], report.steps[point]).removeprefix("at ")

    return AreaChart(
        positions=report.times,
        position_words=position_words,
        tick_words=tick_words,
        areas=_areas(report, smallest),
        peak=fullest,
        peak_words=f"{format_bytes(report.in_use[fullest])} {moment}",
        marks=marks,
        limit=device.bytes_limit if device else None,
    )
