"""Words about meshes, slices, and traced values whose sharding is not known."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import RenderableType

from jax_array_info_core import (
    ArrayReport,
    MeshAxes,
)

from .. import style


def mesh_words(mesh: MeshAxes) -> str:
    """Return the axes of a mesh as ``data=4, model=2``."""
    return ", ".join(f"{name}={size}" for name, size in mesh.shape.items())


def index_words(index: Sequence[tuple[int, int]]) -> str:
    """Return a slice of an array as ``[0:4, 8:16]``."""
    return f"[{', '.join(f'{start}:{stop}' for start, stop in index)}]"


def unknown_words(report: ArrayReport) -> str:
    """Return that the sharding of a traced value is unknown, and why."""
    return f"sharding unknown: {report.unknown_because}"


def manual_words(axes: MeshAxes) -> str:
    """Return into how many shards manual mesh axes cut what is one of them."""
    return f"manual: {math.prod(axes.sizes)} shards over ({','.join(map(repr, axes.names))})"


def undrawn_line(report: ArrayReport) -> RenderableType:
    """Return why there is no picture of a traced value."""
    if report.manual_axes is not None:
        words = f"{manual_words(report.manual_axes)}, of which this is one"
    elif report.open_axes and report.sharding:
        axes = ", ".join(map(repr, report.open_axes))
        words = f"{report.sharding.spec}, the rest left to the compiler: {axes}"
    elif report.sharding is not None:
        words = f"{report.sharding.type}: {report.sharding.text}"
    else:
        words = unknown_words(report)
    return style.written(words)
