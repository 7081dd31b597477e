"""Data and geometry of stacked areas of bytes.

A value holds from its point to the next. A picture has columns of equal width, and each column shows the
point of the most bytes that holds in it, so the peak is never lost.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby

from rich.cells import cell_len, set_cell_size
from rich.color import Color

from jax_array_info_core import format_bytes
from jax_array_info_core.base.text import clipped, printable

from ..style import marks
from ..svg import GREY
from .palette import place_color


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """One series of bytes."""

    name: str
    """Name in the legend. It is escaped."""

    values: Sequence[int]
    """Bytes at each point."""

    is_rest: bool = False
    """Whether it is drawn in grey, as what has no name of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AreaChart:
    """Bytes of several series at the same points."""

    positions: Sequence[float]
    """Place of each point on the x axis, ascending."""

    position_words: Callable[[int], str]
    """Function from the index of a point to its name, such as ``12:03:07, step 1200``."""

    tick_words: Callable[[float], str]
    """Function from a place on the x axis to its short name, such as ``12:03``."""

    areas: Sequence[Area]
    """Series, the lowest first."""

    peak: int | None
    """Index of the point that is labeled; None for no label."""

    peak_words: str
    """Label of this point, such as ``peak 12.0 GiB at 12:03:07``."""

    peak_heading: str = "at the peak:"
    """Heading of the areas at this point."""

    marks: Sequence[tuple[float, str]] = ()
    """Places of vertical lines with their names. Names without room are left out."""

    limit: int | None = None
    """Bytes of a horizontal line. It is drawn if it is less than twice the most bytes, and always said."""


_STEPS = (3, 4, 6)
"""Possible numbers of parts of the y axis."""
_NICE = [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 15, 16, 20, 25, 30, 32, 40, 50, 60, 64, 80, 100, 128, 150]
_NICE += [160, 200, 250, 256, 512]
"""Numbers of bytes, KiB and so on between two labels."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_RESTS = ".:-=+"
_GREYS = (GREY, "#9a9a9a", "#5c5c5c")


def axis_steps(most: int) -> tuple[int, int]:
    """Return the bytes between two labels of the y axis and their number, for values of at most ``most``.

    All multiples are written exactly with one decimal.

    >>> axis_steps(3 * 2**30), axis_steps(1000 * 2**20)  # 3 times 1 GiB, 4 times 256 MiB
    ((1073741824, 3), (268435456, 4))
    """
    unit = 1
    while most > 3072 * unit:
        unit *= 1024
    scales = [
        (number * count, count, number)
        for number in map(float, _NICE)
        for count in _STEPS
        if number * count * unit >= most and (number * count <= 1024 or number in (256, 512))
        if unit > 1 or number.is_integer()
    ]
    _, count, number = min(scales)
    return int(number * unit), count


class AreaPlan:
    """Geometry of a chart with a number of columns."""

    def __init__(self, chart: AreaChart, columns: int) -> None:
        self.chart = chart
        self.columns = columns
        nothing = [0] * len(chart.positions)
        self.totals = [
            sum(values) for values in zip(nothing, *(area.values for area in chart.areas), strict=True)
        ]
        self.most = max(self.totals, default=0)
        self.shows_limit = chart.limit is not None and chart.limit < 2 * max(self.most, 1)
        limit = chart.limit if chart.limit is not None and self.shows_limit else 0
        self.step, self.steps = axis_steps(max(self.most, limit))
        self.top = self.step * self.steps
        first, last = (chart.positions[0], chart.positions[-1]) if chart.positions else (0.0, 0.0)
        # The last point holds as long as the others do on average.
        self.start = first
        self.extent = (last - first) * len(chart.positions) / max(len(chart.positions) - 1, 1) or 1.0

    @cached_property
    def points(self) -> list[int]:
        """Index of the point that each column shows; empty without points."""
        positions = self.chart.positions
        if not positions:
            return []
        indices = []
        for column in range(self.columns):
            # Of several points at one place, the last holds to the next place.
            first = max(bisect_left(positions, self.place(column) + 1e-9 * self.extent) - 1, 0)
            stop = max(bisect_left(positions, self.place(column + 1)), first + 1)
            indices.append(max(range(first, stop), key=self.totals.__getitem__))
        return indices

    def labels(self) -> list[str]:
        """Return the labels of the y axis, from zero."""
        return [format_bytes(self.step * number) for number in range(self.steps + 1)]

    @cached_property
    def areas(self) -> list[int]:
        """Indices of the areas that have bytes at some point."""
        return [number for number, area in enumerate(self.chart.areas) if any(area.values)]

    def place(self, column: float) -> float:
        """Return the place on the x axis where a column begins."""
        return self.start + self.extent * column / self.columns

    def column(self, place: float) -> float:
        """Return where a place is, in columns."""
        return (place - self.start) / self.extent * self.columns

    def edges(self, point: int, height: int) -> list[int]:
        """Return the upper edge of each area at a point, for an axis of a height."""
        sums = accumulate(self.chart.areas[number].values[point] for number in self.areas)
        return [round(nbytes * height / self.top) for nbytes in sums]

    @cached_property
    def peak_column(self) -> int | None:
        """Column of the peak."""
        peak = self.chart.peak
        if peak is None or not self.points:
            return None
        if peak in self.points:
            return self.points.index(peak)
        return min(int(self.column(self.chart.positions[peak])), self.columns - 1)

    def ticks(self, count: int) -> list[tuple[float, str]]:
        """Return columns and words of the labels of the x axis, without repetitions."""
        columns = [self.columns * number / count for number in range(count)] if self.points else []
        named = [
            (column, printable(clipped(self.chart.tick_words(self.place(column))))) for column in columns
        ]
        return [next(group) for _, group in groupby(named, lambda tick: tick[1])]

    def bytes_words(self, area: int) -> str:
        """Return the bytes of an area at the peak; without one, the most that it has."""
        values, peak = self.chart.areas[area].values, self.chart.peak
        return format_bytes(max(values) if peak is None else values[peak])

    def names(self, room: int, encoding: str = "utf-8") -> list[tuple[int, str, str]]:
        """Return index, bytes and name of each area in the legend, the highest first."""
        areas = [
            (area, self.bytes_words(area), printable(clipped(self.chart.areas[area].name), encoding))
            for area in reversed(self.areas)
        ]
        dots = marks(encoding).skipped_columns
        return [(area, nbytes, shortened(name, room, dots)) for area, nbytes, name in areas]

    def legend_title(self) -> str:
        """Return what the bytes of the legend are."""
        return "most of each:" if self.chart.peak is None else self.chart.peak_heading

    def limit_words(self) -> str:
        """Return the limit in words; empty without one."""
        return "" if self.chart.limit is None else f"limit {format_bytes(self.chart.limit)}"

    def colors(self) -> dict[int, Color]:
        """Return the color of each area. Neighbors differ in hue and lightness."""
        named = [area for area in self.areas if not self.chart.areas[area].is_rest]
        rests = [area for area in self.areas if self.chart.areas[area].is_rest]
        colors = {
            area: place_color((number + 0.5) / len(named), number % 2) for number, area in enumerate(named)
        }
        return colors | {area: Color.parse(_GREYS[number % len(_GREYS)]) for number, area in enumerate(rests)}

    def letters(self) -> dict[int, str]:
        """Return the character of each area in a picture without color."""
        named = [area for area in self.areas if not self.chart.areas[area].is_rest]
        rests = [area for area in self.areas if self.chart.areas[area].is_rest]
        letters = {area: _LETTERS[number % len(_LETTERS)] for number, area in enumerate(named)}
        return letters | {area: _RESTS[number % len(_RESTS)] for number, area in enumerate(rests)}


def shortened(words: str, room: int, dots: str) -> str:
    """Return words without their end, if they have no room. Names of lines begin with file and number."""
    if cell_len(words) <= room:
        return words
    return set_cell_size(words, max(room - cell_len(dots), 1)).rstrip() + dots
