"""What is said above, between and below the grids of a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from jax_array_info_core import Grids, MeshAxes, ShardingLayout, describe_pattern
from jax_array_info_core.text import printable

from .fitting import first_and_last, wrapped
from .labels import listed_devices
from .text_plan import Canvas

MAX_PATTERNS = 6
MAX_PROCESS_LINES = 8
PATTERN_FROM = 256


def heading(layout: ShardingLayout, grids: Grids, canvas: Canvas) -> list[str]:
    """Return the rule that says which axes are shown, where there are others."""
    if len(layout.shape) <= 2:
        return []
    return canvas.rule(f"showing dims {list(grids.axes)} from original shape {layout.shape}")


def mesh_heading(grids: Grids, canvas: Canvas, mesh: MeshAxes, names: Sequence[str]) -> list[str]:
    """Return the axes of a mesh, and which of them go where in the picture."""
    shown = [names[axis] for axis in grids.axes]
    directions = [
        f"{name} {where}" for name, where in zip(shown, ("down", "across")[-len(shown) :], strict=False)
    ]
    return [
        *wrapped(mesh_words(mesh, names), canvas.max_width),
        *canvas.rule(", ".join(directions) or "one device"),
    ]


def mesh_words(mesh: MeshAxes, names: Sequence[str]) -> str:
    """Return the axes of a mesh, their sizes and their types: ``mesh data=4, model=2 (Explicit)``.

    Args:
        mesh: The mesh.
        names: The names of its axes, printable.
    """
    types = map(printable, mesh.types or ("",) * len(names))
    axes = [
        f"{name}={size}" + (f" ({kind})" if kind not in ("", "Auto") else "")
        for name, size, kind in zip(names, mesh.sizes, types, strict=True)
    ]
    return f"mesh {', '.join(axes)}"


def facet_title(
    layout: ShardingLayout, grids: Grids, names: Sequence[str], facet: int, *, is_mesh: bool
) -> list[str]:
    """Return which part of the leading sharded axes a grid shows, a piece for each of them.

    Of an array that is a slice, ``axis 0 = 0:16 (1/2)``; of a mesh a position, ``data = 0``.
    """
    pieces = []
    for axis, count in zip(reversed(grids.facet_axes), reversed(grids.facet_counts), strict=True):
        facet, position = divmod(facet, count)
        piece = layout.axis_slice(axis, position)
        where = str(position) if is_mesh else f"{piece.start}:{piece.stop} ({position + 1}/{count})"
        pieces.append(f"{names[axis]} = {where}")
    return pieces[::-1]


def left_out(grids: Grids, drawn: tuple[int, int, int], names: Sequence[str]) -> Iterator[str]:
    """Yield the line that says how much of the picture is shown, where that is not all.

    Args:
        grids: What there is.
        drawn: How many facets, rows and columns are shown.
        names: What to call the axes.
    """
    facet_count, row_count, column_count, _ = grids.device_ids.shape
    facet_names = f"slices of {', '.join(names[axis] for axis in grids.facet_axes)}"
    thinned = [
        f"{shown} of {count} {name}"
        for shown, count, name in (
            (drawn[0], facet_count, facet_names),
            (drawn[1], row_count, "rows"),
            (drawn[2], column_count, "columns"),
        )
        if shown < count
    ]
    if thinned:
        yield f"showing {', '.join(thinned)}"


def footer(layout: ShardingLayout, max_width: int, names: Sequence[str]) -> list[str]:
    """Return what is said below: the processes where there are several, the pattern of many shards."""
    lines = _process_lines(layout, max_width)
    if math.prod(layout.shard_counts) > PATTERN_FROM:
        patterns = describe_pattern(layout, names)
        lines += patterns[:MAX_PATTERNS]
        if len(patterns) > MAX_PATTERNS:
            lines.append(f"and so on for {len(patterns) - MAX_PATTERNS} more")
    return [piece for line in lines for piece in wrapped(line, max_width)]


def _process_lines(layout: ShardingLayout, width: int) -> list[str]:
    """Return which devices are whose, several processes a line; thinned where that takes many lines."""
    entries = [
        f"process {process}: {listed_devices(layout.platform, ids, width)}"
        for process, ids in layout.processes
    ]
    if not entries:
        return []
    columns = max(1, (width + 2) // (max(map(len, entries)) + 2))
    shown = first_and_last(len(entries), columns * MAX_PROCESS_LINES)
    chosen = [entries[number] for number in shown]
    size = max(map(len, chosen))
    lines = [
        "  ".join(entry.ljust(size) for entry in chosen[start : start + columns]).rstrip()
        for start in range(0, len(chosen), columns)
    ]
    if len(chosen) < len(entries):
        lines.insert(len(lines) // 2, "...")
        lines.append(f"showing {len(chosen)} of {len(entries)} processes")
    return lines
