"""Titles and notes above and below the grids of a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from jax_array_info_core import ShardingLayout, describe_pattern

from .fitting import first_and_last, wrapped
from .labels import listed_devices
from .subject import Subject

MAX_PATTERNS = 6
MAX_PROCESS_LINES = 8
PATTERN_FROM = 256


def facet_title(subject: Subject, facet: int, names: Sequence[str]) -> list[str]:
    """Return which part of the leading sharded axes a grid shows, a piece for each of them.

    Of an array that is a slice, ``axis 0 = 0:16 (1/2)``; of a mesh a position, ``data = 0``.

    Args:
        subject: What is drawn.
        facet: The number of the grid.
        names: What to call the axes.
    """
    grids = subject.grids
    pieces = []
    for axis, shard in zip(grids.facet_axes, grids.facet_position(facet), strict=True):
        piece = subject.layout.axis_slice(axis, shard)
        where = f"{piece.start}:{piece.stop} ({shard + 1}/{subject.layout.shard_counts[axis]})"
        pieces.append(f"{names[axis]} = {shard if subject.is_mesh else where}")
    return pieces


def left_out(subject: Subject, drawn: Sequence[int]) -> Iterator[str]:
    """Yield the line that says how much of the picture is shown, where that is not all.

    Args:
        subject: What is drawn.
        drawn: How many facets, rows and columns are shown.
    """
    facets = f"slices of {', '.join(subject.names[axis] for axis in subject.grids.facet_axes)}"
    thinned = [
        f"{shown} of {count} {name}"
        for shown, count, name in zip(
            drawn, subject.grids.device_ids.shape, (facets, "rows", "columns"), strict=False
        )
        if shown < count
    ]
    if thinned:
        yield f"showing {', '.join(thinned)}"


def footer(subject: Subject, max_width: int) -> list[str]:
    """Return what is said below: the processes where there are several, the pattern of many shards."""
    layout = subject.layout
    lines = _process_lines(layout, max_width)
    if math.prod(layout.shard_counts) > PATTERN_FROM:
        patterns = describe_pattern(layout, subject.names)
        axes = len(layout.sharded_axes)
        shown = min(axes, MAX_PATTERNS)
        lines += patterns[:shown]
        if axes > shown:
            lines.append(f"and {axes - shown} more {'axis' if axes == shown + 1 else 'axes'}")
        lines += patterns[axes:]
    return [piece for line in lines for piece in wrapped(line, max_width)]


def _process_lines(layout: ShardingLayout, width: int) -> list[str]:
    """Return which devices are whose, several processes a line; thinned where that takes many lines."""
    if not layout.processes:
        return []
    entries = [
        f"process {process}: {listed_devices(layout.platform, ids, width)}"
        for process, ids in layout.processes
    ]
    columns = max(1, (width + 2) // (max(map(len, entries)) + 2))
    chosen = [entries[number] for number in first_and_last(len(entries), columns * MAX_PROCESS_LINES)]
    size = max(map(len, chosen))
    lines = [
        "  ".join(entry.ljust(size) for entry in chosen[start : start + columns]).rstrip()
        for start in range(0, len(chosen), columns)
    ]
    if len(chosen) < len(entries):
        lines.insert(len(lines) // 2, "...")
        lines.append(f"showing {len(chosen)} of {len(entries)} processes")
    return lines
