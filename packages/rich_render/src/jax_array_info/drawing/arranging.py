"""What of a layout's grids is drawn, how large in pixels, and what stands in the cells.

An array is drawn with its true proportions, up to 5 to 1; beyond, its ratio counts by its logarithm. A
drawing is as large as its labels want it, up to 720 pixels; what would make it too large a file is thinned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from jax_array_info_core import Grids, ShardingLayout

from ..arrangement import Arrangement
from ..fitting import spread
from .labelling import Holder, fitting_labels, label_styles, room_for

MAX_ALONG = 120
"""How many rows or columns are drawn, of all facets that stand beside each other."""
MAX_FACETS = 16
EXTREME = 5.0
BEFORE_CELLS = 280
"""How long the longer side of a drawing is where its labels need no more."""
MOST = 720
STRIP = 44
"""How high an array of one axis is."""
LEAST_CELL = 4
GAP = 1
GAP_OF_OMITTED = 4


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
    labels: dict[Holder, str]
    """What stands in the cells where there is room for it; empty where there is none in any."""
    label_size: float
    compressed: str | None
    """Which ratio is drawn as which, where that is not the true one."""

    @property
    def width(self) -> float:
        """Width of one facet."""
        return self.columns[-1].start + self.columns[-1].size

    @property
    def height(self) -> float:
        """Height of one facet."""
        return self.rows[-1].start + self.rows[-1].size

    def arrangement(self) -> Arrangement:
        """Return what is drawn as the pictures of characters say it."""
        rows, columns = ([(span.shard, 0) for span in spans] for spans in (self.rows, self.columns))
        return Arrangement(list(self.facets), rows, columns, [], [])


def plan(layout: ShardingLayout, grids: Grids, scale: float, most_cells: int) -> Plan:
    """Return what is drawn of a layout's grids.

    Args:
        layout: The layout, whose platform and processes the labels name.
        grids: Its grids.
        scale: Factor for the size of the cells.
        most_cells: How many cells there may be.
    """
    facet_count, row_count, column_count, _ = grids.device_ids.shape
    facets = spread(facet_count, min(MAX_FACETS, max(most_cells // 4, 1)))
    true = _ratio(grids)
    across = _facets_across(len(facets), _compressed(true))
    rows, columns = _thinned(row_count, column_count, most_cells // len(facets), MAX_ALONG // across)
    ids = grids.device_ids[facets][:, rows][:, :, columns].tolist()
    holders = tuple(tuple(tuple(map(tuple, row)) for row in facet) for facet in ids)

    most = MOST * scale / across
    every = dict.fromkeys(holder for facet in holders for row in facet for holder in row)
    styles = label_styles(layout, every)
    width, height = _size(grids, true, (len(rows), len(columns)), room_for(styles[0]), scale, most)
    row_spans = _spans([grids.row_lengths[row] for row in rows], rows, height)
    column_spans = _spans([grids.column_lengths[column] for column in columns], columns, width)
    largest = max(span.size for span in column_spans), max(span.size for span in row_spans)
    labels, size = fitting_labels(styles, *largest)
    return Plan(
        tuple(facets),
        row_spans,
        column_spans,
        holders,
        across,
        labels,
        size,
        None
        if _compressed(true) == true
        else f"proportions {_words(true)}, drawn as {_words(width / height)}",
    )


def _thinned(row_count: int, column_count: int, most: int, most_along: int) -> tuple[list[int], list[int]]:
    """Return which rows and columns are drawn, so that there are only so many cells."""
    rows, columns = min(row_count, most_along), min(column_count, most_along)
    if rows * columns > most:
        side = max(math.isqrt(most), 2)
        rows = min(rows, max(side, most // columns))
        columns = min(columns, max(most // rows, 2))
    return spread(row_count, rows), spread(column_count, columns)


def _ratio(grids: Grids) -> float:
    """Return how many times as wide as high the array is; 1 where it has one axis or none."""
    if len(grids.axes) < 2:
        return 1.0
    return max(sum(grids.column_lengths), 1) / max(sum(grids.row_lengths), 1)


def _compressed(ratio: float) -> float:
    """Return a ratio of lengths, compressed by its logarithm where it is extreme."""
    if ratio < 1:
        return 1 / _compressed(1 / ratio)
    return ratio if ratio <= EXTREME else EXTREME + math.log10(ratio / EXTREME)


def _words(ratio: float) -> str:
    """Return ``8 to 1``, ``1 to 6.5``."""
    if ratio < 1:
        return " to ".join(reversed(_words(1 / ratio).split(" to ")))
    return f"{ratio:.0f} to 1" if ratio >= 100 else f"{ratio:.3g} to 1"


def _facets_across(count: int, ratio: float) -> int:
    """Return how many facets stand beside each other: as many as make the whole about square."""
    return min(count, 4, max(1, math.ceil(math.sqrt(count / ratio))))


def _size(
    grids: Grids,
    ratio: float,
    counts: tuple[int, int],
    room: tuple[float, float],
    scale: float,
    most: float,
) -> tuple[float, float]:
    """Return the size of a facet: such that cells of average size have room for a label, if it may be."""
    wanted = counts[1] * room[0], counts[0] * room[1]
    if len(grids.axes) < 2:
        return min(max(BEFORE_CELLS / 2 * scale, wanted[0]), most), STRIP * scale
    drawn = _compressed(ratio)
    width = max(BEFORE_CELLS * scale * min(drawn, 1), wanted[0], wanted[1] * drawn)
    width = min(width, most * min(drawn, 1))
    height = width / drawn
    # What is not drawn true anyway may have more room for its labels.
    if drawn > EXTREME:
        height = max(height, min(wanted[1], width / EXTREME))
    elif drawn < 1 / EXTREME:
        width = max(width, min(wanted[0], height / EXTREME))
    return width, height


def _spans(lengths: Sequence[int], shards: Sequence[int], size: float) -> tuple[Span, ...]:
    """Return rows or columns as large as they are long, none so small that it is not seen."""
    total = sum(lengths) or len(lengths)
    sizes = [max(size * (length if sum(lengths) else 1) / total, LEAST_CELL) for length in lengths]
    gaps = [GAP if after == before + 1 else GAP_OF_OMITTED for before, after in pairwise(shards)]
    starts = accumulate((size + gap for size, gap in zip(sizes, gaps, strict=False)), initial=0.0)
    return tuple(map(Span, shards, starts, sizes))
