"""Titles above and notes below the grids of a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from jax_array_info_core import ShardingLayout, describe_pattern

from .fitting import first_and_last, wrapped
from .labels import listed_devices
from .subject import Subject, held_words

MAX_PATTERNS = 6
MAX_PROCESS_LINES = 8
PATTERN_FROM = 256


def facet_title(subject: Subject, facet: int, names: Sequence[str]) -> list[str]:
    """Return the title of a grid: the slices or positions of the leading sharded axes that it shows.

    For an array, a slice, such as ``axis 0 = 0:16 (1/2)``; for a mesh, a position, such as ``data = 0``.

    Args:
        subject: The layout that is drawn.
        facet: Index of the grid.
        names: Names of the axes.
    """
    grids = subject.grids
    pieces = []
    for axis, shard in zip(grids.facet_axes, grids.facet_position(facet), strict=True):
        piece = subject.layout.axis_slice(axis, shard)
        where = f"{piece.start}:{piece.stop} ({shard + 1}/{subject.layout.shard_counts[axis]})"
        pieces.append(f"{names[axis]} = {shard if subject.is_mesh else where}")
    return pieces


def left_out(subject: Subject, drawn: Sequence[int]) -> Iterator[str]:
    """Yield the note on how many facets, rows and columns a thinned picture shows.

    Args:
        subject: The layout that is drawn.
        drawn: Number of facets, rows and columns that are shown.
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
    """Return the notes below a picture: the devices of each process, and the pattern of many shards."""
    layout = subject.layout
    lines = _process_lines(layout, max_width)
    if layout.partial_sums > 1:
        lines.insert(0, f"each cell: {held_words(layout)}")
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
    """Return the devices of each process, several processes per line, thinned to a few lines."""
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
