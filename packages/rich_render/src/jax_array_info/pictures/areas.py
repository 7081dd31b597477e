"""Memory over time, or along the schedule of a program, as stacked areas of bytes: as text and as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby, pairwise

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from jax_array_info_core import format_bytes
from jax_array_info_core.base.quantities import grouped, time_words
from jax_array_info_core.base.text import clipped, printable
from jax_array_info_core.reports import ProgramTimelineReport, TimelineReport

from ..style import marks, wrapped
from ..svg import STEP, Element, Figure, element, stacked, text, text_width
from .areas_plan import Area, AreaChart, AreaPlan, shortened
from .svg_plan import SIZE

__all__ = ["Area", "AreaChart", "areas_figure", "areas_picture", "timeline_figure", "timeline_picture"]

_DAY = 86_400
_SMALLEST = 1 / 24
"""Areas of text that are never larger than this part of the peak, half a line, are one area."""
_MARK_LENGTH = 20
"""Maximum length of the name of a mark."""


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
        peak_heading="at the peak:" if report.has_peaks else "at the highest sample:",
        marks=marks,
        limit=device.bytes_limit if device else None,
    )


def areas_picture(
    chart: AreaChart, *, width: int, height: int = 12, use_color: bool, encoding: str = "utf-8"
) -> Text:
    """Return a chart as text: the areas in blocks, with axes, marks and a legend.

    Without color, each area is filled with a letter.

    Args:
        chart: The chart.
        width: Maximum line length in characters; at least 20 are used.
        height: Number of lines of the areas; fewer if the labels of the y axis do not divide them.
        use_color: Whether to fill the areas with colors.
        encoding: Encoding of the console. In one that has no blocks, the picture is ASCII.
    """
    has_blocks = encoding.lower().startswith("utf")
    labels = AreaPlan(chart, 1).labels()
    indent = max(map(len, labels))
    plan = AreaPlan(chart, max(width - indent - 2, 8))
    rows = max(height // plan.steps, 1) * plan.steps
    if not plan.points:
        return Text("no points")
    cells = _Cells(plan, rows, use_color=use_color, has_blocks=has_blocks)
    lines = [Text(" " * (indent + 2) + words) for words in _peak_lines(plan, has_blocks)]
    upright, tee, corner, flat, tick = "│┤└─┬" if has_blocks else "|++-+"
    for row in reversed(range(rows)):
        number, is_between = divmod(row + 1, rows // plan.steps)
        label = "" if is_between else labels[number]
        line = Text(f"{label:>{indent}} {upright if is_between else tee}")
        lines.append(line.append_text(cells.line(row)))
    room = max(cell_len(words) for _, words in plan.ticks(2)) + 4
    ticks = plan.ticks(max(plan.columns // max(room, 12), 1))
    lines.append(Text(f"{labels[0]:>{indent}} {corner}{_tick_line(ticks, plan.columns, flat, tick)}"))
    safe = [(column, printable(words, encoding)) for column, words in ticks]
    below = filter(None, (_words_at(safe, plan.columns), _mark_line(plan, encoding)))
    lines += [Text(" " * (indent + 2) + words) for words in below]
    return Text("\n").join([*lines, *cells.legend(width, encoding)])


class _Cells:
    """Characters and styles of the areas and of their legend."""

    _EIGHTHS = 8

    def __init__(self, plan: AreaPlan, rows: int, *, use_color: bool, has_blocks: bool) -> None:
        self.plan = plan
        self.colors = plan.colors() if use_color else {}
        self.letters = plan.letters()
        self.has_blocks = has_blocks
        self.edges = [plan.edges(point, rows * self._EIGHTHS) for point in plan.points]
        limit = plan.chart.limit if plan.shows_limit else None
        self.limit_row = None if limit is None else min(limit * rows // plan.top, rows - 1)

    def line(self, row: int) -> Text:
        """Return a line of all columns, without spaces at its end."""
        cells = [self._cell(edges, row) for edges in self.edges]
        groups = groupby(cells, lambda cell: cell[1])
        line = Text.assemble(
            *(("".join(character for character, _ in group), style) for style, group in groups)
        )
        line.rstrip()
        return line

    def _cell(self, edges: Sequence[int], row: int) -> tuple[str, Style]:
        """Return the character of a cell and its style."""
        low, high = row * self._EIGHTHS, (row + 1) * self._EIGHTHS
        total = edges[-1] if edges else 0
        if total <= low:
            return self._empty(row, is_base=row == 0), Style()
        shares = [
            (min(above, high) - max(below, low), area)
            for (below, above), area in zip(pairwise((0, *edges)), self.plan.areas, strict=True)
        ]
        seen = [(share, area) for share, area in shares if share > 0]
        share, most = max(seen)
        if not self.colors:
            is_half = 2 * (min(total, high) - low) >= self._EIGHTHS or row == 0
            return self.letters[most] if is_half else self._empty(row), Style()
        if total < high:
            return self._block(total - low), Style(color=self.colors[most])
        if share == self._EIGHTHS:
            return self._block(share), Style(color=self.colors[most])
        # A cell has two colors: those of the two largest areas in it.
        lower, upper = sorted(sorted(seen)[-2:], key=lambda piece: self.plan.areas.index(piece[1]))
        eighths = round(self._EIGHTHS * lower[0] / (lower[0] + upper[0]))
        return self._block(eighths), Style(color=self.colors[lower[1]], bgcolor=self.colors[upper[1]])

    def _block(self, eighths: int) -> str:
        if self.has_blocks:
            return " ▁▂▃▄▅▆▇█"[eighths]
        return "#" if 2 * eighths >= self._EIGHTHS else "_"

    def _empty(self, row: int, *, is_base: bool = False) -> str:
        """Return an empty cell: a part of the line of the limit, or a space."""
        return ("┄" if self.has_blocks else "-") if row == self.limit_row and not is_base else " "

    def legend(self, width: int, encoding: str) -> Iterator[Text]:
        """Yield what the areas are, and the limit."""
        names = self.plan.names(10_000, encoding)
        size = max((len(nbytes) for _, nbytes, _ in names), default=0)
        dots = marks(encoding).skipped_columns
        if limit := self.plan.limit_words():
            dash = "" if self.limit_row is None else f" ({'┄┄' if self.has_blocks else '--'})"
            yield Text(limit + dash)
        if names:
            yield Text(self.plan.legend_title())
        for area, nbytes, name in names:
            line = Text("  ")
            if self.colors:
                line.append("██" if self.has_blocks else "##", Style(color=self.colors[area]))
            else:
                line.append(self.letters[area])
            room = max(width - line.cell_len - size - 3, 8)
            yield line.append(f" {nbytes:>{size}}  {shortened(name, room, dots)}")


def _peak_lines(plan: AreaPlan, has_blocks: bool) -> list[str]:
    """Return the label of the peak above its column."""
    column, words = plan.peak_column, printable(clipped(plan.chart.peak_words))
    if column is None:
        return []
    mark, length = "▼" if has_blocks else "v", cell_len(words) + 1
    if column + 1 + length <= plan.columns:
        return [f"{' ' * column}{mark} {words}"]
    if length <= column:
        return [f"{' ' * (column - length)}{words} {mark}"]
    return [*wrapped(words, plan.columns), " " * column + mark]


def _tick_line(ticks: Sequence[tuple[float, str]], columns: int, flat: str, tick: str) -> str:
    places = {int(column) for column, _ in ticks}
    return "".join(tick if column in places else flat for column in range(columns))


def _words_at(places: Sequence[tuple[float, str]], columns: int) -> str:
    """Return words in one line at their columns, without those that have no room."""
    line = ""
    for column, words in places:
        start = int(column)
        if cell_len(line) < start + (not line) and start + cell_len(words) <= columns:
            line += " " * (start - cell_len(line)) + words
    return line


def _mark_line(plan: AreaPlan, encoding: str) -> str:
    """Return the marks below their columns, with names where there is room."""
    sign, dots = "▲" if encoding.lower().startswith("utf") else "^", marks(encoding).skipped_columns
    line = ""
    for place, name in sorted(plan.chart.marks):
        column = int(plan.column(place))
        free = column - cell_len(line)
        if not 0 <= column < plan.columns or free < 0:
            continue
        words = shortened(printable(clipped(name), encoding), _MARK_LENGTH, dots)
        length = cell_len(words)
        if column + 1 + length <= plan.columns:
            line += " " * free + sign + words
        elif free > length:
            line += " " * (free - length) + words + sign
        else:
            line += " " * free + sign
    return line


_WIDTH, _HEIGHT = 560, 216
"""Size of the areas in pixels."""
_TOOLTIP_STEP = 2
"""Least width of a tooltip's column in pixels."""
_MOST_TOOLTIP_NBYTES = 80_000
"""Maximum size of all tooltips, so that a figure takes less than 200 kB."""
_TOOLTIP_AREAS = 3
_TOOLTIP_LENGTH = 40
_LABEL = 16
"""Height of a line of labels."""


def areas_figure(chart: AreaChart) -> Figure:
    """Return a chart as SVG, legible on white and on black pages.

    A tooltip of each column names its point, the total and the largest areas. A figure of 14 areas takes less
    than 200 kB, for any number of points.
    """
    plan = AreaPlan(chart, _WIDTH)
    if not plan.points:
        return Figure(0, 0, ())
    labels = plan.labels()
    indent = max(text_width(label, SIZE) for label in labels) + 8
    top = _LABEL + 6 if plan.peak_column is not None else 4
    parts = [*_grid(plan, labels), *_fills(plan), *_lines(plan), *_tooltips(plan), *_axis_words(plan)]
    bottom = _LABEL * (1 + bool(chart.marks)) + 4
    place = f"translate({indent:.0f} {top})"
    plot = Figure(indent + _WIDTH + 2, top + _HEIGHT + bottom, (element("g", *parts, transform=place),))
    figure = stacked([plot, _legend(plan)])
    return Figure(figure.width, figure.height, figure.parts, printable(clipped(chart.peak_words)) or "bytes")


def _grid(plan: AreaPlan, labels: Sequence[str]) -> Iterator[Element]:
    """Yield the lines of the y axis with their labels."""
    places = [_HEIGHT - _HEIGHT * number // plan.steps for number in range(plan.steps + 1)]
    lines = "".join(f"M0 {y}H{_WIDTH}" for y in places)
    yield element("path", d=lines, stroke="currentColor", stroke_opacity="0.35", shape_rendering="crispEdges")
    for y, label in zip(places, labels, strict=True):
        yield text(-6, y + SIZE / 3, label, font_size=SIZE, text_anchor="end")
    for column, words in plan.ticks(_WIDTH // 90):
        yield element("path", d=f"M{column:.0f} {_HEIGHT}v4", stroke="currentColor")
        yield text(column, _HEIGHT + _LABEL, shortened(words, 12, "⋯"), font_size=SIZE)


def _fills(plan: AreaPlan) -> Iterator[Element]:
    """Yield each area from the axis up, the highest first: a lower one covers its lower part."""
    colors = plan.colors()
    edges = [plan.edges(point, _HEIGHT) for point in plan.points]
    for number, area in reversed(list(enumerate(plan.areas))):
        outline = f"M0 {_HEIGHT}"
        for height, columns in groupby(edge[number] for edge in edges):
            outline += f"V{_HEIGHT - height}h{sum(1 for _ in columns)}"
        fill = colors[area].get_truecolor().hex
        yield element("path", d=f"{outline}V{_HEIGHT}z", fill=fill, shape_rendering="crispEdges")


def _lines(plan: AreaPlan) -> Iterator[Element]:
    """Yield the lines of the marks, the limit and the peak."""
    columns = sorted({int(plan.column(place)) for place, _ in plan.chart.marks})
    looks: dict[str, str] = {"stroke": "currentColor", "shape_rendering": "crispEdges"}
    if inside := [column for column in columns if 0 <= column <= _WIDTH]:
        lines = "".join(f"M{column} 0V{_HEIGHT}" for column in inside)
        yield element("path", d=lines, stroke_dasharray="3 3", **looks)
    if plan.chart.limit is not None and plan.shows_limit:
        y = _HEIGHT - round(plan.chart.limit * _HEIGHT / plan.top)
        yield element("path", d=f"M0 {y}H{_WIDTH}", stroke_dasharray="8 3", stroke_width=2, **looks)
    if plan.peak_column is not None:
        y = _HEIGHT - round(plan.most * _HEIGHT / plan.top)
        yield element("path", d=f"M{plan.peak_column + 0.5} {y - 1}l-4 -7h8z", fill="currentColor")


def _axis_words(plan: AreaPlan) -> Iterator[Element]:
    """Yield the label of the peak and the names of the marks."""
    looks: dict[str, float | str] = {"font_size": SIZE}
    if plan.peak_column is not None:
        words = shortened(printable(clipped(plan.chart.peak_words)), int(_WIDTH / STEP), "⋯")
        start = min(plan.peak_column, _WIDTH - text_width(words, SIZE))
        yield text(max(start, 0), -8, words, font_weight="bold", **looks)
    end = -math.inf
    for place, name in sorted(plan.chart.marks):
        words, x = shortened(printable(clipped(name)), _MARK_LENGTH, "⋯"), plan.column(place)
        x = min(x, _WIDTH - text_width(words, SIZE))
        if x >= end and 0 <= plan.column(place) <= _WIDTH:
            yield text(x, _HEIGHT + 2 * _LABEL, words, font_style="italic", **looks)
            end = x + text_width(words, SIZE) + 8


def _tooltips(plan: AreaPlan) -> Iterator[Element]:
    """Yield a transparent rectangle with a tooltip for each point that is shown.

    The columns are as narrow as the size of the figure allows.
    """
    step, columns = _TOOLTIP_STEP, list[tuple[str, int]]()
    while not columns or sum(len(escape(words).encode()) for words, _ in columns) > _MOST_TOOLTIP_NBYTES:
        points = groupby(AreaPlan(plan.chart, _WIDTH // step).points)
        columns = [(_tooltip(plan, point), step * len(list(group))) for point, group in points]
        step *= 2
    x = 0
    for words, width in columns:
        title = element("title", words=words)
        yield element("rect", title, x=x, y=0, width=width, height=_HEIGHT, fill="transparent")
        x += width


def _tooltip(plan: AreaPlan, point: int) -> str:
    chart = plan.chart
    ranked = sorted(plan.areas, key=lambda area: -chart.areas[area].values[point])
    shown = [area for area in ranked[:_TOOLTIP_AREAS] if chart.areas[area].values[point]]
    where = shortened(printable(clipped(chart.position_words(point))), 2 * _TOOLTIP_LENGTH, "⋯")
    return "\n".join(
        [
            f"{where}: {format_bytes(plan.totals[point])}",
            *(
                f"{format_bytes(chart.areas[area].values[point])}"
                f" {shortened(printable(clipped(chart.areas[area].name)), _TOOLTIP_LENGTH, '⋯')}"
                for area in shown
            ),
        ]
    )


def _legend(plan: AreaPlan) -> Figure:
    """Return the colors of the areas with bytes and names, and the limit."""
    names = plan.names(int(_WIDTH / STEP))
    colors = plan.colors()
    size = max((len(nbytes) for _, nbytes, _ in names), default=0)
    limit = plan.limit_words()
    if limit and plan.shows_limit:
        limit += " (dashed line)"
    heads = [words for words in (limit, plan.legend_title() if names else "") if words]
    parts = [text(0, _LABEL * (row + 1) - 4, words, font_size=SIZE) for row, words in enumerate(heads)]
    for row, (area, nbytes, name) in enumerate(names, len(heads)):
        y = _LABEL * row
        fill = colors[area].get_truecolor().hex
        parts.append(element("rect", x=8, y=y + 2, width=11, height=11, fill=fill))
        words = f"{nbytes:>{size}}  {name}"
        parts.append(text(26, y + 12, words, font_size=SIZE))
    width = max(text_width(f"{'':{size}}  {name}", SIZE) for _, _, name in names) if names else 0
    return Figure(26 + width, _LABEL * (len(heads) + len(names)), tuple(parts))
