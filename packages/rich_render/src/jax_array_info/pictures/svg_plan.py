"""What of a layout's grids is drawn, how large in pixels, and what stands in the cells.

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

from jax_array_info_core import Grids, ShardingLayout

from .fitting import first_and_last
from .palette import Holder
from .svg_labels import Labelling, fitting_labelling, labellings, room_for

MAX_FACETS = 16
EXTREME = 5.0
"""Ratios of length and width beyond this one are compressed."""
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


@dataclass(frozen=True, slots=True)
class Plan:
    """What is drawn of the grids, and how large."""

    facets: tuple[int, ...]
    rows: tuple[Span, ...]
    columns: tuple[Span, ...]
    holders: tuple[tuple[tuple[Holder, ...], ...], ...]
    """Who holds each cell: by facet, row and column."""
    facets_across: int
    """How many facets stand beside each other."""
    labelling: Labelling
    """What stands in the cells where there is room for it; nothing where there is none in any."""
    compressed: str | None
    """Which ratio is drawn as which, where that is not the true one."""

    @property
    def row_gaps(self) -> tuple[float, ...]:
        """Where rows are left out: the middles of the gaps."""
        return _middles(self.rows)

    @property
    def column_gaps(self) -> tuple[float, ...]:
        """Where columns are left out."""
        return _middles(self.columns)

    @property
    def width(self) -> float:
        """Width of one facet."""
        return self.columns[-1].start + self.columns[-1].size

    @property
    def height(self) -> float:
        """Height of one facet."""
        return self.rows[-1].start + self.rows[-1].size

    @property
    def shown(self) -> tuple[int, int, int]:
        """How many facets, rows and columns are drawn."""
        return len(self.facets), len(self.rows), len(self.columns)


def _middles(spans: Sequence[Span]) -> tuple[float, ...]:
    return tuple(
        (one.start + one.size + other.start) / 2
        for one, other in pairwise(spans)
        if other.shard > one.shard + 1
    )


def plan_alike(layouts: Sequence[tuple[ShardingLayout, Grids]], scale: float, most_cells: int) -> list[Plan]:
    """Return what is drawn of some layouts, each with its grids: arrays of one shape in one size.

    Args:
        layouts: The layouts, whose platforms and processes the labels name, each with its grids.
        scale: Factor for the size of the cells.
        most_cells: How many cells there may be of each.
    """
    alone = [_plan(layout, grids, scale, most_cells) for layout, grids in layouts]
    kinds = [
        (layout.shape, grids.axes, planned.facets_across)
        for (layout, grids), planned in zip(layouts, alone, strict=True)
    ]
    sizes: dict[Hashable, tuple[float, float]] = {}
    for kind, planned in zip(kinds, alone, strict=True):
        width, height = sizes.get(kind, (0.0, 0.0))
        sizes[kind] = max(width, planned.width), max(height, planned.height)
    return [
        planned
        if (planned.width, planned.height) == sizes[kind]
        else _plan(*layout, scale, most_cells, sizes[kind])
        for layout, kind, planned in zip(layouts, kinds, alone, strict=True)
    ]


def _plan(
    layout: ShardingLayout,
    grids: Grids,
    scale: float,
    most_cells: int,
    size: tuple[float, float] | None = None,
) -> Plan:
    """Return what is drawn of a layout's grids, each of this size if one is given."""
    facet_count, row_count, column_count, _ = grids.device_ids.shape
    facets = first_and_last(facet_count, min(MAX_FACETS, max(most_cells // 4, 1)))
    true = _ratio(grids)
    drawn = _compressed(true)
    across = _facets_across(len(facets), drawn)
    # No drawing is so small that all its cells could not be seen.
    room = MOST * max(scale, 1) / across
    rows, columns = _thinned(
        _with_room(row_count, room / max(drawn, 1)),
        _with_room(column_count, room * min(drawn, 1)),
        most_cells // len(facets),
    )
    shown_rows, shown_columns = first_and_last(row_count, rows), first_and_last(column_count, columns)
    ids = grids.device_ids[facets][:, shown_rows][:, :, shown_columns].tolist()
    holders = tuple(tuple(tuple(map(tuple, row)) for row in facet) for facet in ids)

    every = dict.fromkeys(holder for facet in holders for row in facet for holder in row)
    ways = labellings(layout, every)
    if size is None:
        ratio = drawn if len(grids.axes) == 2 else None
        size = _size(ratio, shown_rows, shown_columns, room_for(ways[0].names), scale, MOST * scale / across)
    row_spans = _spans([grids.row_lengths[row] for row in shown_rows], shown_rows, size[1])
    column_spans = _spans([grids.column_lengths[column] for column in shown_columns], shown_columns, size[0])
    largest = max(span.size for span in column_spans), max(span.size for span in row_spans)
    return Plan(
        tuple(facets),
        row_spans,
        column_spans,
        holders,
        across,
        fitting_labelling(ways, *largest),
        None if drawn == true else f"proportions {_words(true)}, drawn as {_words(size[0] / size[1])}",
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


def _compressed(ratio: float) -> float:
    """Return a ratio of lengths, compressed by its logarithm where it is extreme."""
    if ratio < 1:
        return 1 / _compressed(1 / ratio)
    return ratio if ratio <= EXTREME else EXTREME + math.log10(ratio / EXTREME) / 2


def _words(ratio: float) -> str:
    """Return ``8 to 1``, ``1 to 6.5``."""
    if ratio < 1:
        return " to ".join(reversed(_words(1 / ratio).split(" to ")))
    return f"{ratio:.0f} to 1" if ratio >= 100 else f"{ratio:.3g} to 1"


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


def _gaps(shards: Sequence[int]) -> list[int]:
    """Return how far rows or columns are apart."""
    return [GAP if after == before + 1 else GAP_OF_OMITTED for before, after in pairwise(shards)]


def _extent(shards: Sequence[int], each: float) -> float:
    """Return how much rows or columns of one size take together."""
    return len(shards) * each + sum(_gaps(shards))


def _spans(lengths: Sequence[int], shards: Sequence[int], size: float) -> tuple[Span, ...]:
    """Return rows or columns as large as they are long, none so small that it is not seen."""
    gaps = _gaps(shards)
    room = size - sum(gaps)
    total = sum(lengths) or len(lengths)
    sizes = [max(room * (length if sum(lengths) else 1) / total, LEAST_CELL) for length in lengths]
    starts = accumulate((size + gap for size, gap in zip(sizes, gaps, strict=False)), initial=0.0)
    return tuple(map(Span, shards, starts, sizes))
