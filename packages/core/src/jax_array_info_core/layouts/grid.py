"""An N-D layout → the 2-D grids of cells that a flat picture shows: one for each facet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .layout import ShardingLayout


@dataclass(frozen=True, slots=True, eq=False)
class Grids:
    """Rows and columns of shards, once for each shard of the leading sharded axes."""

    axes: tuple[int, ...]
    """The axes of the array that are shown, down and across; only one, across, of a 1-D array."""

    facet_axes: tuple[int, ...]
    """Sharded axes beyond two: there is a grid for each of their shards."""

    facet_counts: tuple[int, ...]
    """Number of shards along each of the facet axes; their grids are in the order of numpy's prints."""

    row_lengths: tuple[int, ...]
    """Length of each row in elements of the axis shown down; ``(1,)`` where there is none."""

    column_lengths: tuple[int, ...]
    """Length of each column in elements of the axis shown across; ``(1,)`` where there is none."""

    device_ids: NDArray[Any]
    """Ids of the devices, of shape ``(facets, rows, columns, copies)``."""

    def holders(
        self, facets: Sequence[int], rows: Sequence[int], columns: Sequence[int]
    ) -> list[list[list[tuple[int, ...]]]]:
        """Return the ids of the devices that hold each of some cells, by facet, row and column."""
        some = self.device_ids[np.ix_(facets, rows, columns)].tolist()
        return [[[tuple(ids) for ids in row] for row in facet] for facet in some]

    def facet_position(self, facet: int) -> tuple[int, ...]:
        """Return which shard along each of the facet axes a facet shows."""
        return tuple(map(int, np.unravel_index(facet, self.facet_counts)))

    def position(self, facet: int, row: int, column: int) -> dict[int, int]:
        """Return which shard a cell shows along each axis that a grid shows or that is sharded."""
        shown = dict(zip(reversed(self.axes), (column, row), strict=False))
        return shown | dict(zip(self.facet_axes, self.facet_position(facet), strict=True))


def flat_grids(layout: ShardingLayout) -> Grids:
    """Return the grids of a layout.

    Up to two axes are shown as they are. Of more, the last two sharded ones are shown; where fewer
    are sharded, the first of the others join them; always in the array's order.
    """
    axes = shown_axes(layout)
    facet_axes = tuple(axis for axis in layout.sharded_axes if axis not in axes)
    facet_counts = tuple(layout.shard_counts[axis] for axis in facet_axes)
    down, across = (None, *axes)[-2:] if axes else (None, None)
    row_lengths, column_lengths = _lengths(layout, down), _lengths(layout, across)
    placed = np.moveaxis(layout.device_ids, (*facet_axes, *axes), range(len(facet_axes) + len(axes)))
    shape = (math.prod(facet_counts), len(row_lengths), len(column_lengths), -1)
    return Grids(axes, facet_axes, facet_counts, row_lengths, column_lengths, placed.reshape(shape))


def shown_axes(layout: ShardingLayout) -> tuple[int, ...]:
    """Return the at most two axes of an array that one grid shows."""
    every = range(len(layout.shape))
    if len(every) <= 2:
        return tuple(every)
    sharded = layout.sharded_axes[-2:]
    others = [axis for axis in every if axis not in layout.sharded_axes]
    return tuple(sorted([*sharded, *others][:2]))


def _lengths(layout: ShardingLayout, axis: int | None) -> tuple[int, ...]:
    if axis is None:
        return (1,)
    slices = (layout.axis_slice(axis, shard) for shard in range(layout.shard_counts[axis]))
    return tuple(piece.stop - piece.start for piece in slices)
