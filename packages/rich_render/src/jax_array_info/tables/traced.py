"""Words about traced values whose sharding is not known."""

from __future__ import annotations

import math

from rich.console import RenderableType

from jax_array_info_core import (
    ArrayReport,
    MeshAxes,
)

from .. import style

_KINDS = {
    "replicated": "replicated: every device holds all of it",
    "manual": "manual: inside shard_map, where the program itself places the data",
    "unknown": "unknown: the compiler has not decided",
    "maximal": "maximal: one device holds all of it",
}


def unknown_words(report: ArrayReport) -> str:
    """Return that the sharding of a traced value is unknown, and why."""
    return f"sharding unknown: {report.unknown_because}"


def manual_words(axes: MeshAxes) -> str:
    """Return into how many shards manual mesh axes cut what is one of them."""
    return f"manual: {math.prod(axes.sizes)} shards over ({','.join(map(repr, axes.names))})"


def open_axes(report: ArrayReport) -> tuple[str, ...]:
    """Return the mesh axes about which the type of a traced value says nothing, as the compiler decides."""
    mesh = report.sharding.mesh if report.sharding and report.source == "type" else None
    if mesh is None:
        return ()
    return tuple(name for name, kind in zip(mesh.names, mesh.types, strict=True) if kind == "Auto")


def undrawn_line(report: ArrayReport) -> RenderableType:
    """Return why there is no picture of a traced value."""
    if report.manual_axes is not None:
        words = f"{manual_words(report.manual_axes)}, of which this is one"
    elif open_axes(report):
        words = f"{report.sharding.spec if report.sharding else ''}, the rest left to the compiler: "
        words += ", ".join(map(repr, open_axes(report)))
    elif report.sharding is not None:
        words = f"{report.sharding.type}: {report.sharding.text}"
    else:
        words = unknown_words(report)
    return style.written(words)
