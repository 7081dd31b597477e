"""The part of a layout's grids that an SVG draws, its size in pixels, and the labels of its cells.

An array is drawn with its true proportions, up to 5 to 1. Beyond, a ratio r is drawn as 5 + log₁₀(r / 5) / 2:
a hundred times as extreme is one more, so that there is room for labels. A drawing is as large as its labels
want it, up to 720 pixels; what has no room there, or would make it too large a file, is thinned. Arrays of
one shape are as large as each other in all drawings of a document.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from jax_array_info_core import Grids

from .fitting import compressed, first_and_last
from .labels import LISTED_WIDTH, Labels, label_ways
from .palette import Holder
from .subject import Subject
from .svg_labels import fitting_labels, room_for

MAX_FACETS = 16
EXTREME = 5.0
"""Ratios of length and width beyond this one are compressed: ten times as extreme is half of one more."""
_DOUBLING = math.log10(2) / 2
USUAL = 280
"""How long the longer side of a drawing is, in pixels, where its labels need no more."""
MOST = 720
"""How long it is at most, that of all facets together: of their cells, without the numbers at the axes."""
STRIP = 44
"""How high an array of one axis is."""
LEAST_CELL = 4
GAP = 1
GAP_OF_OMITTED = 14
"""Between cells that have others between them, which are not drawn: wide enough for a mark."""


@dataclass(frozen=True, slots=True)
class Span:
    """A row or a column that is drawn."""

    shard: int
    """Which of the shards along its axis."""
    start: float
    """Where it begins, in pixels."""
    size: float

    @property
    def middle(self) -> float:
        """Where its middle is."""
        return self.start + self.size / 2

    @property
    def end(self) -> float:
        """Where it ends."""
        return self.start + self.size


@dataclass(frozen=True, slots=True)
class SvgPlan:
    """What is drawn of the grids, and how large."""

    facets: list[int]
    rows: tuple[Span, ...]
    columns: tuple[Span, ...]
    holders: list[list[list[Holder]]]
    """Who holds each cell: by facet, row and column."""
    facets_across: int
    """How many facets stand beside each other."""
    labels: Labels | None
    """What stands in the cells where there is room for it; None where there is none in any."""
    font_size: float
    """That of the labels, in pixels."""
    proportions: str | None
    """Which ratio is drawn as which, where that is not the true one."""

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
        """How many facets, rows and columns are drawn."""
        return len(self.facets), len(self.rows), len(self.columns)


def between(spans: Sequence[Span]) -> list[tuple[Span, Span, float]]:
    """Return each two neighbours of some rows or columns, and the middle between them."""
    return [(one, other, (one.end + other.start) / 2) for one, other in pairwise(spans)]


def gaps(spans: Sequence[Span]) -> list[float]:
    """Return where rows or columns are left out: the middles of the gaps."""
    return [middle for one, other, middle in between(spans) if other.shard > one.shard + 1]


def plan_alike(subjects: Sequence[Subject], scale: float, most_cells: int) -> list[SvgPlan]:
    """Return what is drawn of some layouts: arrays of one shape in one size.

    Args:
        subjects: The layouts.
        scale: Factor for the size of the cells.
        most_cells: How many cells there may be of each.
    """
    alone = [_plan(subject, scale, most_cells) for subject in subjects]
    sizes: dict[Hashable, tuple[float, float]] = {}
    kinds = []
    for subject, plan in zip(subjects, alone, strict=True):
        kinds.append((subject.layout.shape, subject.grids.axes, plan.facets_across))
        width, height = sizes.get(kinds[-1], (0.0, 0.0))
        sizes[kinds[-1]] = max(width, plan.width), max(height, plan.height)
    return [
        plan if (plan.width, plan.height) == sizes[kind] else _plan(subject, scale, most_cells, sizes[kind])
        for subject, kind, plan in zip(subjects, kinds, alone, strict=True)
    ]


def _plan(
    subject: Subject, scale: float, most_cells: int, size: tuple[float, float] | None = None
) -> SvgPlan:
    """Return what is drawn of a layout's grids, each of this size if one is given."""
    grids = subject.grids
    facet_count, row_count, column_count, _ = grids.device_ids.shape
    facets = first_and_last(facet_count, min(MAX_FACETS, max(most_cells // 4, 1)))
    true = _ratio(grids)
    drawn = compressed(true, EXTREME, _DOUBLING)
    across = _facets_across(len(facets), drawn)
    # No drawing is so small that all its cells could not be seen.
    room = MOST * max(scale, 1) / across
    row_room, column_room = room / max(drawn, 1), room * min(drawn, 1)
    most_rows, most_columns = _thinned(
        _with_room(row_count, row_room), _with_room(column_count, column_room), most_cells // len(facets)
    )
    rows, columns = first_and_last(row_count, most_rows), first_and_last(column_count, most_columns)
    holders = grids.holders(facets, rows, columns)
    every = list(dict.fromkeys(holder for facet in holders for row in facet for holder in row))
    ways = label_ways(subject.layout.platform, subject.process_of, LISTED_WIDTH)
    if size is None:
        ratio = drawn if len(grids.axes) == 2 else None
        label_room = room_for(map(ways[0].write, every))
        size = _size(ratio, rows, columns, label_room, scale, MOST * scale / across)
    row_spans = _spans([grids.row_lengths[row] for row in rows], rows, size[1])
    column_spans = _spans([grids.column_lengths[column] for column in columns], columns, size[0])
    largest = max(span.size for span in column_spans), max(span.size for span in row_spans)
    labels, font_size = fitting_labels(ways, every, *largest)
    return SvgPlan(
        facets,
        row_spans,
        column_spans,
        holders,
        across,
        labels,
        font_size,
        None if drawn == true else f"aspect ratio {_words(true)}, drawn as {_words(size[0] / size[1])}",
    )


def _with_room(count: int, room: float) -> int:
    """Return how many rows or columns of so many have room, in pixels, in their least size."""
    if LEAST_CELL * count + GAP * (count - 1) <= room:
        return count
    return min(count, max(int((room + 2 * GAP - GAP_OF_OMITTED) / (LEAST_CELL + GAP)), 2))


def _thinned(rows: int, columns: int, most: int) -> tuple[int, int]:
    """Return how many rows and columns are drawn, so that there are only so many cells."""
    if rows * columns > most:
        side = max(math.isqrt(most), 2)
        return min(rows, max(side, most // columns)), min(columns, max(side, most // rows))
    return rows, columns


def _ratio(grids: Grids) -> float:
    """Return how many times as wide as high the array is; 1 where it has one axis or none."""
    if len(grids.axes) < 2:
        return 1.0
    return max(sum(grids.column_lengths), 1) / max(sum(grids.row_lengths), 1)


def _words(ratio: float) -> str:
    """Return a ratio as text, such as ``8:1`` or ``1:6.5``."""
    larger = max(ratio, 1 / ratio)
    words = f"{larger:.0f}" if larger >= 100 else f"{larger:.3g}"
    return f"{words}:1" if ratio >= 1 else f"1:{words}"


def _facets_across(count: int, ratio: float) -> int:
    """Return how many facets stand beside each other: as many as make the whole about square."""
    return min(count, 4, max(1, math.ceil(math.sqrt(count / ratio))))


def _size(
    ratio: float | None,
    rows: Sequence[int],
    columns: Sequence[int],
    room: tuple[float, float],
    scale: float,
    most: float,
) -> tuple[float, float]:
    """Return the size of a facet: such that cells of average size have room for a label, if it may be.

    Args:
        ratio: How many times as wide as high it is drawn; None of one axis or none.
        rows: Which rows are drawn.
        columns: Which columns.
        room: How large a cell must be for its label.
        scale: Factor for the size of the cells.
        most: How long its longer side may be.
    """
    needed = _extent(columns, LEAST_CELL), _extent(rows, LEAST_CELL)
    wanted = _extent(columns, room[0]), _extent(rows, room[1])
    if ratio is None:
        return max(min(max(USUAL / 2 * scale, wanted[0]), most), needed[0]), STRIP * scale
    wished = max(USUAL * scale * min(ratio, 1), wanted[0], wanted[1] * ratio)
    width = max(min(wished, most * min(ratio, 1)), needed[0], needed[1] * ratio)
    return width, width / ratio


def _distances(shards: Sequence[int]) -> list[int]:
    """Return how far rows or columns are apart."""
    return [GAP if after == before + 1 else GAP_OF_OMITTED for before, after in pairwise(shards)]


def _extent(shards: Sequence[int], each: float) -> float:
    """Return how much rows or columns of one size take together."""
    return len(shards) * each + sum(_distances(shards))


def _spans(lengths: Sequence[int], shards: Sequence[int], size: float) -> tuple[Span, ...]:
    """Return rows or columns as large as they are long, none so small that it is not seen."""
    distances = _distances(shards)
    room = size - sum(distances)
    total = sum(lengths) or len(lengths)
    sizes = [max(room * (length if sum(lengths) else 1) / total, LEAST_CELL) for length in lengths]
    starts = accumulate(
        (size + distance for size, distance in zip(sizes, distances, strict=False)), initial=0.0
    )
    return tuple(map(Span, shards, starts, sizes))
