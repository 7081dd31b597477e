"""An N-D layout → the 2-D grid of cells that a flat picture shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .layout import ShardingLayout


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Rows and columns of shards, with every device that holds a part of each."""

    axes: tuple[int, ...]
    """The axes of the array that are shown, down and across; only one, across, of a 1-D array."""

    hidden_axes: tuple[int, ...]
    """Sharded axes that found no place: a cell's devices are those of all shards along them."""

    row_lengths: tuple[int, ...]
    """Length of each row in elements of the axis shown down; ``(1,)`` where there is none."""

    column_lengths: tuple[int, ...]
    """Length of each column in elements of the axis shown across; ``(1,)`` where there is none."""

    device_ids: NDArray[Any]
    """Ids of the devices, ascending within a cell, of shape ``(rows, columns, devices)``."""


def flat_grid(layout: ShardingLayout) -> Grid:
    """Return the grid of a layout.

    Up to two axes are shown as they are. Of more, the sharded ones are shown, then the first of the
    others until there are two, in the array's order; of more than two sharded ones the first two.
    """
    axes = shown_axes(layout)
    down, across = (None, *axes)[-2:] if axes else (None, None)
    by_cell = np.moveaxis(layout.device_ids, axes, range(len(axes)))
    rows = 1 if down is None else layout.shard_counts[down]
    columns = 1 if across is None else layout.shard_counts[across]
    return Grid(
        axes,
        tuple(axis for axis in layout.sharded_axes if axis not in axes),
        _lengths(layout, down),
        _lengths(layout, across),
        np.sort(by_cell.reshape(rows, columns, -1), axis=-1),
    )


def shown_axes(layout: ShardingLayout) -> tuple[int, ...]:
    """Return the at most two axes of an array that a flat picture of it shows."""
    every = range(len(layout.shape))
    if len(every) <= 2:
        return tuple(every)
    sharded = layout.sharded_axes
    others = [axis for axis in every if axis not in sharded]
    return tuple(sorted([*sharded, *others][:2]))


def _lengths(layout: ShardingLayout, axis: int | None) -> tuple[int, ...]:
    if axis is None:
        return (1,)
    slices = (layout.axis_slice(axis, shard) for shard in range(layout.shard_counts[axis]))
    return tuple(piece.stop - piece.start for piece in slices)
