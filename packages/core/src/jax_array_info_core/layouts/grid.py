"""Two-dimensional grids of shards for pictures of layouts with any number of axes."""

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
    """Shards of a layout in rows and columns, one grid for each facet.

    A facet is one combination of shards along the sharded axes that a grid does not show.
    """

    axes: tuple[int, ...]
    """Array axes of the rows and of the columns; for a 1-D array only the axis of the columns."""

    facet_axes: tuple[int, ...]
    """Sharded axes that the grids do not show."""

    facet_counts: tuple[int, ...]
    """Number of shards along each facet axis; the facets are in row-major order."""

    row_lengths: tuple[int, ...]
    """Number of elements in each row; ``(1,)`` without an axis of rows."""

    column_lengths: tuple[int, ...]
    """Number of elements in each column; ``(1,)`` without an axis of columns."""

    device_ids: NDArray[Any]
    """Device ids, of shape ``(facets, rows, columns, replicas)``."""

    def holders(
        self, facets: Sequence[int], rows: Sequence[int], columns: Sequence[int]
    ) -> list[list[list[tuple[int, ...]]]]:
        """Return the device ids of some cells, as ``result[facet][row][column]``.

        Args:
            facets: Indices of facets.
            rows: Indices of rows.
            columns: Indices of columns.
        """
        cells = self.device_ids[np.ix_(facets, rows, columns)].tolist()
        return [[[tuple(ids) for ids in row] for row in facet] for facet in cells]

    def facet_position(self, facet: int) -> tuple[int, ...]:
        """Return the index of the shard along each facet axis that a facet shows."""
        return tuple(map(int, np.unravel_index(facet, self.facet_counts)))

    def position(self, facet: int, row: int, column: int) -> dict[int, int]:
        """Return the index of the shard that a cell shows, by array axis.

        The axes are those that the grids show, and the facet axes.
        """
        shown = dict(zip(reversed(self.axes), (column, row), strict=False))
        return shown | dict(zip(self.facet_axes, self.facet_position(facet), strict=True))


def flat_grids(layout: ShardingLayout) -> Grids:
    """Return the shards of a layout as grids of rows and columns.

    An array of up to two axes is shown as it is. Of an array with more axes, each grid shows the last two
    sharded axes; if fewer than two are sharded, the first unsharded axes are added. The axes stay in the
    order of the array.

    >>> from jax_array_info_core import spec_layout
    >>> grids = flat_grids(spec_layout((8, 8, 8), {"x": 2, "y": 4, "z": 2}, ("x", "y", "z")))
    >>> grids.axes, grids.facet_axes, grids.device_ids.shape
    ((1, 2), (0,), (2, 4, 2, 1))
    """
    axes = shown_axes(layout)
    facet_axes = tuple(axis for axis in layout.sharded_axes if axis not in axes)
    facet_counts = tuple(layout.shard_counts[axis] for axis in facet_axes)
    down, across = (None, *axes)[-2:] if axes else (None, None)
    row_lengths, column_lengths = _lengths(layout, down), _lengths(layout, across)
    device_ids = np.moveaxis(layout.device_ids, (*facet_axes, *axes), range(len(facet_axes) + len(axes)))
    shape = (math.prod(facet_counts), len(row_lengths), len(column_lengths), -1)
    return Grids(axes, facet_axes, facet_counts, row_lengths, column_lengths, device_ids.reshape(shape))


def shown_axes(layout: ShardingLayout) -> tuple[int, ...]:
    """Return the axes that one grid shows, at most two."""
    axes = range(len(layout.shape))
    if len(axes) <= 2:
        return tuple(axes)
    unsharded = [axis for axis in axes if axis not in layout.sharded_axes]
    return tuple(sorted([*layout.sharded_axes[-2:], *unsharded][:2]))


def _lengths(layout: ShardingLayout, axis: int | None) -> tuple[int, ...]:
    if axis is None:
        return (1,)
    slices = (layout.axis_slice(axis, shard) for shard in range(layout.shard_counts[axis]))
    return tuple(piece.stop - piece.start for piece in slices)
