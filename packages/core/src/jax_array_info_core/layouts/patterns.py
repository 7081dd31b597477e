"""Descriptions of the devices that hold the shards of a layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..quantities import format_device_ids, format_number
from .layout import ShardingLayout

_LISTED_PIECES = 8


def describe_pattern(
    layout: ShardingLayout, names: Sequence[str] | None = None, *, copies: str = "replicas"
) -> tuple[str, ...]:
    """Return one line for each sharded axis, for partial sums and for replicas, with their devices.

    ``k`` is the index of a shard along its axis, from 0: ``shard k on devices 0-7 + 8k`` puts shard 2 on
    devices 16 to 23. If the ids form more than 8 ranges, the line has the number of devices, the first four
    ranges and the last two.

    Args:
        layout: The layout to describe.
        names: Name of each array axis. If None, the axes are named ``axis 0``, ``axis 1`` and so on.
        copies: Word for the copies of a shard, such as ``replicas`` or ``manual parts``.

    >>> from jax_array_info_core import spec_layout
    >>> describe_pattern(spec_layout((64, 64), {"data": 64, "model": 8}, ("data", "model")))
    ('axis 0: 64 shards, shard k on devices 0-7 + 8k', 'axis 1: 8 shards, shard k on devices 0-504:8 + k')
    >>> describe_pattern(spec_layout((64,), {"data": 64, "model": 8}, ("data",)))
    ('axis 0: 64 shards, shard k on devices 0-7 + 8k', '8 replicas of each shard, on consecutive devices')
    """
    lines = []
    for axis in layout.sharded_axes:
        shards = np.moveaxis(layout.device_ids, axis, 0).reshape(layout.shard_counts[axis], -1)
        name = names[axis] if names else f"axis {axis}"
        lines.append(f"{name}: {_shards_text(np.sort(shards, axis=1))}")
    holders = layout.device_ids.reshape(*layout.shard_counts, layout.partial_sums, layout.replicas)
    if layout.partial_sums > 1:
        spacing = _spacing_text(np.sort(holders[..., 0], axis=-1))
        lines.append(f"{layout.partial_sums} partial sums of each shard{_over(layout.unreduced)}, {spacing}")
    if layout.replicas > 1:
        spacing = _spacing_text(np.sort(holders, axis=-1))
        of = "shard" if layout.partial_sums == 1 else "partial sum"
        lines.append(f"{layout.replicas} {copies} of each {of}, {spacing}")
    return tuple(lines)


def copies_words(unreduced: Sequence[str], partial_sums: int, replicas: int) -> str:
    """Return ``4 partial sums over model``, ``2 replicas`` or both; empty if one device holds each shard."""
    words = [f"{format_number(partial_sums)} partial sums{_over(unreduced)}"] if partial_sums > 1 else []
    if replicas > 1:
        words.append(f"{format_number(replicas)} replicas{' of each' if words else ''}")
    return ", ".join(words)


def _over(unreduced: Sequence[str]) -> str:
    return f" over {', '.join(unreduced)}" if unreduced else ""


def _shards_text(shards: NDArray[Any]) -> str:
    """Return the devices of the shards along one axis, given as one row of ascending ids a shard."""
    count, size = shards.shape
    stride = int(shards[1, 0] - shards[0, 0])
    if (np.diff(shards, axis=0) != stride).any():
        return f"{count} shards of {size} device{'' if size == 1 else 's'}, not evenly spaced"
    pieces = format_device_ids(shards[0].tolist()).split(",")
    devices = "device" if size == 1 else "devices"
    if len(pieces) > _LISTED_PIECES:
        devices = f"{size} devices"
        pieces[4:-2] = ["..."]
    multiple = "" if abs(stride) == 1 else abs(stride)
    shift = f" {'+' if stride > 0 else '-'} {multiple}k" if stride else ""
    return f"{count} shards, shard k on {devices} {','.join(pieces)}{shift}"


def _spacing_text(replicas: NDArray[Any]) -> str:
    """Return the distance between the devices of each shard, given in ascending order."""
    steps = np.unique(np.diff(replicas, axis=-1)).tolist()
    if steps == [1]:
        return "on consecutive devices"
    return f"{steps[0]} devices apart" if len(steps) == 1 else "not evenly spaced"
