"""What the pattern of a layout is, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .layout import ShardingLayout


def describe_pattern(
    layout: ShardingLayout, names: Sequence[str] | None = None, *, copies: str = "copies"
) -> tuple[str, ...]:
    """Return in words, for each sharded axis and for the copies, which devices hold its parts.

    Args:
        layout: Which device holds which slice.
        names: What to call the axes; ``axis 0``, … when None.
        copies: What several devices hold of one shard: copies, or partial sums.

    >>> from jax_array_info_core import spec_layout
    >>> describe_pattern(spec_layout((64, 64), {"data": 64, "model": 8}, ("data", "model")))
    ('axis 0 in 64 runs of 8 devices, stride 8', 'axis 1 in 8 sets of 64 devices 8 apart, stride 1')
    """
    words = []
    for axis in layout.sharded_axes:
        parts = np.moveaxis(layout.device_ids, axis, 0).reshape(layout.shard_counts[axis], -1)
        starts = np.unique(np.diff(parts.min(axis=1)))
        stride = f"stride {starts[0]}" if len(starts) == 1 else "in no regular order"
        name = names[axis] if names else f"axis {axis}"
        words.append(f"{name} in {len(parts)} {_sets(parts)}, {stride}")
    if layout.replicas > 1:
        words.append(f"{copies} on {_sets(layout.device_ids.reshape(-1, layout.replicas))}")
    return tuple(words)


def _sets(parts: NDArray[Any]) -> str:
    """Return how the devices of each part lie: one part a row."""
    steps = np.unique(np.diff(np.sort(parts, axis=1), axis=1))
    size = parts.shape[1]
    if size == 1:
        return "single devices"
    if len(steps) == 1:
        return f"runs of {size} devices" if steps[0] == 1 else f"sets of {size} devices {steps[0]} apart"
    return f"sets of {size} devices"
