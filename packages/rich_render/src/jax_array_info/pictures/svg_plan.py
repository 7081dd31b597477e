"""Sizes, labels and axes of an SVG picture."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from rich.cells import cell_len

from jax_array_info_core.layouts import Grids

from ..style import wrapped
from ..svg import CHARACTER, Element, text, text_width
from .fitting import LISTED_WIDTH, Labels, compressed, first_and_last, label_formats
from .palette import DeviceGroup
from .subject import Subject

SIZES = (12, 11, 10, 9, 8)
LINE = 1.2
"""Line height of a label, relative to its font size."""
_ONE_LINE = 16


def room_for(labels: Iterable[str]) -> tuple[float, float]:
    """Return the width and height of a cell for the longest label, which may take several lines."""
    longest = max(map(cell_len, labels), default=0)
    lines = -(-longest // _ONE_LINE)
    return min(longest, _ONE_LINE) * CHARACTER * SIZES[0] + 12, lines * LINE * SIZES[0] + 8


def fitting_labels(
    formats: Sequence[Labels], groups: Sequence[DeviceGroup], width: float, height: float
) -> tuple[Labels | None, float]:
    """Return the first label format that fits the cells, and its font size; None if no format fits.

    A format that fits in one line is preferred to one that needs several.
    """
    for most_lines in (1, height):
        for labels in formats:
            for size in SIZES:
                lines = (label_lines(labels.write(group), width, height, size) for group in groups)
                if all(0 < len(label) <= most_lines for label in lines):
                    return labels, size
    return None, SIZES[-1]


def label_lines(label: str, width: float, height: float, size: float) -> list[str]:
    """Return a label in lines that fit a cell; an empty list if they do not fit."""
    characters = int((width - 4) / (CHARACTER * size))
    words = re.findall(r"[^\s,]+,?", label)
    if not words or max(map(cell_len, words)) > characters:
        return []
    lines = wrapped(label, characters)
    return lines if len(lines) * LINE * size <= height - 2 else []


MAX_FACETS = 16
EXTREME = 5.0
"""Largest true aspect ratio; beyond it, a factor of ten adds a half."""
_DOUBLING = math.log10(2) / 2
USUAL = 280
"""Default length of the longer side of a drawing, in pixels; labels may need more."""
MOST = 720
"""Maximum length of the longer side of all facets together, in pixels, without axes."""
STRIP = 44
"""Height of an array with one axis, in pixels."""
LEAST_CELL = 4
GAP = 1
GAP_OF_OMITTED = 14
"""Gap in place of cells that are left out, in pixels: wide enough for a mark."""


@dataclass(frozen=True, slots=True)
class Span:
    """A row or a column that is drawn."""

    shard: int
    """Index of the shard along its axis."""
    start: float
    """Start position, in pixels."""
    size: float

    @property
    def middle(self) -> float:
        """Position of the middle, in pixels."""
        return self.start + self.size / 2

    @property
    def end(self) -> float:
        """End position, in pixels."""
        return self.start + self.size


@dataclass(frozen=True, slots=True)
class SvgPlan:
    """The part of the grids that is drawn, with sizes and labels."""

    facets: list[int]
    rows: tuple[Span, ...]
    columns: tuple[Span, ...]
    groups: list[list[list[DeviceGroup]]]
    """Devices of each cell, by facet, row and column."""
    facets_across: int
    """Number of facets per row."""
    labels: Labels | None
    """Label format of the cells; None if no format fits."""
    font_size: float
    """Font size of the labels, in pixels."""
    ratio_note: str | None
    """Note on a compressed aspect ratio."""

    @property
    def width(self) -> float:
        """Width of one facet."""
        return self.columns[-1].end

    @property
    def height(self) -> float:
        """Height of one facet."""
        return self.rows[-1].end

    @property
    def shown(self) -> tuple[int, int, int]:
        """Number of facets, rows and columns that are drawn."""
        return len(self.facets), len(self.rows), len(self.columns)


def between(spans: Sequence[Span]) -> list[tuple[Span, Span, float]]:
    """Return each pair of adjacent rows or columns, and the middle between them."""
    return [(span, other, (span.end + other.start) / 2) for span, other in pairwise(spans)]


def gaps(spans: Sequence[Span]) -> list[float]:
    """Return the middles of the gaps between rows or columns."""
    return [middle for span, other, middle in between(spans) if other.shard > span.shard + 1]


def plan_alike(subjects: Sequence[Subject], scale: float, most_cells: int) -> list[SvgPlan]:
    """Return the plans of some layouts, with the same size for arrays of one shape.

    Args:
        subjects: The layouts.
        scale: Factor for the size of the cells.
        most_cells: Maximum number of cells per drawing.
    """
    alone = [_plan(subject, scale, most_cells) for subject in subjects]
    sizes: dict[Hashable, tuple[float, float]] = {}
    keys = []
    for subject, plan in zip(subjects, alone, strict=True):
        keys.append((subject.layout.shape, subject.grids.axes, plan.facets_across))
        width, height = sizes.get(keys[-1], (0.0, 0.0))
        sizes[keys[-1]] = max(width, plan.width), max(height, plan.height)
    return [
        plan if (plan.width, plan.height) == sizes[key] else _plan(subject, scale, most_cells, sizes[key])
        for subject, key, plan in zip(subjects, keys, alone, strict=True)
    ]


def _plan(
    subject: Subject, scale: float, most_cells: int, size: tuple[float, float] | None = None
) -> SvgPlan:
    """Return the plan of one layout, with facets of the given size if there is one."""
    grids = subject.grids
    facet_count, row_count, column_count, _ = grids.device_ids.shape
    facets = first_and_last(facet_count, min(MAX_FACETS, max(most_cells // 4, 1)))
    true = _ratio(grids)
    drawn = compressed(true, EXTREME, _DOUBLING)
    across = _facets_across(len(facets), drawn)
    # A scale below 1 does not reduce the number of cells.
    room = MOST * max(scale, 1) / across
    row_room, column_room = room / max(drawn, 1), room * min(drawn, 1)
    most_rows, most_columns = _thinned(
        _with_room(row_count, row_room), _with_room(column_count, column_room), most_cells // len(facets)
    )
    rows, columns = first_and_last(row_count, most_rows), first_and_last(column_count, most_columns)
    groups = grids.holders(facets, rows, columns)
    every = list(dict.fromkeys(group for facet in groups for row in facet for group in row))
    formats = label_formats(subject.layout.platform, subject.process_of, LISTED_WIDTH)
    if size is None:
        ratio = drawn if len(grids.axes) == 2 else None
        label_room = room_for(map(formats[0].write, every))
        size = _size(ratio, rows, columns, label_room, scale, MOST * scale / across)
    row_spans = _spans([grids.row_lengths[row] for row in rows], rows, size[1])
    column_spans = _spans([grids.column_lengths[column] for column in columns], columns, size[0])
    largest = max(span.size for span in column_spans), max(span.size for span in row_spans)
    labels, font_size = fitting_labels(formats, every, *largest)
    return SvgPlan(
        facets,
        row_spans,
        column_spans,
        groups,
        across,
        labels,
        font_size,
        None if drawn == true else f"aspect ratio {_words(true)}, drawn as {_words(size[0] / size[1])}",
    )


def _with_room(count: int, room: float) -> int:
    """Return how many of ``count`` rows or columns of minimum size fit, in pixels."""
    if LEAST_CELL * count + GAP * (count - 1) <= room:
        return count
    return min(count, max(int((room + 2 * GAP - GAP_OF_OMITTED) / (LEAST_CELL + GAP)), 2))


def _thinned(rows: int, columns: int, most: int) -> tuple[int, int]:
    """Return the number of rows and columns that make at most ``most`` cells."""
    if rows * columns > most:
        side = max(math.isqrt(most), 2)
        return min(rows, max(side, most // columns)), min(columns, max(side, most // rows))
    return rows, columns


def _ratio(grids: Grids) -> float:
    """Return width / height of the array; 1 with fewer than two axes."""
    return 1.0 if len(grids.axes) < 2 else max(sum(grids.column_lengths), 1) / max(sum(grids.row_lengths), 1)


def _words(ratio: float) -> str:
    """Return a ratio as text, such as ``8:1`` or ``1:6.5``."""
    larger = max(ratio, 1 / ratio)
    words = f"{larger:.0f}" if larger >= 100 else f"{larger:.3g}"
    return f"{words}:1" if ratio >= 1 else f"1:{words}"


def _facets_across(count: int, ratio: float) -> int:
    """Return the number of facets per row that makes the drawing about square."""
    return min(count, 4, max(1, math.ceil(math.sqrt(count / ratio))))


def _size(
    ratio: float | None,
    rows: Sequence[int],
    columns: Sequence[int],
    room: tuple[float, float],
    scale: float,
    most: float,
) -> tuple[float, float]:
    """Return the width and height of a facet, large enough for labels in average cells if possible.

    Args:
        ratio: Width / height of the drawing; None with fewer than two axes.
        rows: Indices of the rows that are drawn.
        columns: Indices of the columns that are drawn.
        room: Width and height of a cell that fits its label.
        scale: Factor for the size of the cells.
        most: Maximum length of the longer side.
    """
    needed = _extent(columns, LEAST_CELL), _extent(rows, LEAST_CELL)
    wanted = _extent(columns, room[0]), _extent(rows, room[1])
    if ratio is None:
        return max(min(max(USUAL / 2 * scale, wanted[0]), most), needed[0]), STRIP * scale
    wished = max(USUAL * scale * min(ratio, 1), wanted[0], wanted[1] * ratio)
    width = max(min(wished, most * min(ratio, 1)), needed[0], needed[1] * ratio)
    return width, width / ratio


def _distances(shards: Sequence[int]) -> list[int]:
    """Return the distances between adjacent rows or columns."""
    return [GAP if after == before + 1 else GAP_OF_OMITTED for before, after in pairwise(shards)]


def _extent(shards: Sequence[int], size: float) -> float:
    """Return the total length of rows or columns of one size, with their gaps."""
    return len(shards) * size + sum(_distances(shards))


def _spans(lengths: Sequence[int], shards: Sequence[int], size: float) -> tuple[Span, ...]:
    """Return rows or columns in proportion to their lengths, none below the minimum size."""
    distances = _distances(shards)
    room = size - sum(distances)
    total = sum(lengths) or len(lengths)
    sizes = [max(room * (length if sum(lengths) else 1) / total, LEAST_CELL) for length in lengths]
    starts = accumulate(
        (size + distance for size, distance in zip(sizes, distances, strict=False)), initial=0.0
    )
    return tuple(map(Span, shards, starts, sizes))


SIZE = 10
"""Font size, in pixels."""
AXIS_LINE = 1.5 * SIZE
NEAR = 0.4 * SIZE
"""Distance between the numbers and the cells."""
ROOM_ACROSS = 2 * AXIS_LINE + NEAR
"""Height of an axis above the cells."""


class Axis(NamedTuple):
    """An axis above or to the left of the cells, whose corner is at (0, 0)."""

    elements: list[Element]
    margin: float
    """Extent to the left of the cells, in pixels."""
    length: float
    """Distance from the corner of the cells to the end of the axis, in pixels."""


def axis_across(subject: Subject, axis: int, spans: Sequence[Span]) -> Axis:
    """Return an axis above the columns that are drawn."""
    title, numbers = _axis_words(subject, axis, spans)
    end = max(spans[-1].end, text_width(title, SIZE))
    places = spaced([(words, at, text_width(words, SIZE) + SIZE / 2) for words, at in numbers])
    elements = [text(at, -NEAR, words, font_size=SIZE, text_anchor="middle") for words, at in places]
    elements.append(text(end / 2, -NEAR - AXIS_LINE, title, font_size=SIZE, text_anchor="middle"))
    # The first and last numbers are centered on the edges of the cells, and so extend beyond them.
    (first, start), (last, stop) = numbers[0], numbers[-1]
    margin = max(text_width(first, SIZE) / 2 - start, 0)
    return Axis(elements, margin, max(end, stop + text_width(last, SIZE) / 2))


def axis_down(subject: Subject, axis: int, spans: Sequence[Span]) -> Axis:
    """Return an axis to the left of the rows that are drawn."""
    title, numbers = _axis_words(subject, axis, spans)
    end = max(spans[-1].end, text_width(title, SIZE))
    margin = AXIS_LINE + 2 * NEAR + max(text_width(words, SIZE) for words, _ in numbers)
    places = spaced([(words, at, 1.1 * SIZE) for words, at in numbers])
    elements = [
        text(-NEAR, at + 0.35 * SIZE, words, font_size=SIZE, text_anchor="end") for words, at in places
    ]
    # Left of the numbers, turned by 90°.
    turned = f"translate({NEAR - margin:.1f} {end / 2:.1f}) rotate(-90)"
    elements.append(text(0, 0.75 * SIZE, title, font_size=SIZE, text_anchor="middle", transform=turned))
    return Axis(elements, margin, end)


def _axis_words(subject: Subject, axis: int, spans: Sequence[Span]) -> tuple[str, list[tuple[str, float]]]:
    """Return the title of an axis, and its numbers with their positions in pixels.

    The axis of an array has a number at each shard bound, the axis of a mesh one for each device.
    """
    title = f"{subject.names[axis]}: {subject.layout.shape[axis]}{subject.over_words(axis)}"
    if subject.is_mesh:
        return title, [(str(span.shard), span.middle) for span in spans]
    slices = [subject.layout.axis_slice(axis, span.shard) for span in spans]
    bounds = [(str(piece.start), span.start) for piece, span in zip(slices, spans, strict=True)]
    return title, [*bounds, (str(slices[-1].stop), spans[-1].end)]


def spaced(numbers: Sequence[tuple[str, float, float]]) -> list[tuple[str, float]]:
    """Return the first and last numbers and as many others as fit, with their positions.

    Args:
        numbers: Text, position and size along the axis of each number.
    """
    chosen = [numbers[0]]
    *between, last = numbers[1:] or numbers
    for number in between:
        if _apart(chosen[-1], number) and _apart(number, last):
            chosen.append(number)
    if _apart(chosen[-1], last):
        chosen.append(last)
    return [(words, at) for words, at, _ in chosen]


def _apart(number: tuple[str, float, float], other: tuple[str, float, float]) -> bool:
    return other[1] - number[1] >= (number[2] + other[2]) / 2
