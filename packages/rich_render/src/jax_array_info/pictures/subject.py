"""A layout that is drawn, and what a picture says of it: a caption, names of axes, titles of cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from jax_array_info_core import (
    ArrayReport,
    Grids,
    MeshAxes,
    MeshReport,
    ShardingLayout,
    Spec,
    XlaReport,
    flat_grids,
    format_bytes,
)
from jax_array_info_core.layouts.dtypes import bits_of_name, packed_nbytes
from jax_array_info_core.quantities import format_device_ids
from jax_array_info_core.reports.mesh_devices import Placed
from jax_array_info_core.text import printable

from .fitting import clipped
from .labels import LISTED_WIDTH, listed_devices
from .palette import Holder


@dataclass(frozen=True)
class Subject:
    """What is drawn, and what is known of it beyond its layout."""

    layout: ShardingLayout
    caption: tuple[str, ...]
    """What it is, the most telling line first."""
    names: tuple[str, ...]
    """What to call the axes."""
    over: tuple[tuple[str, ...], ...] = ()
    """For each axis of an array, the mesh axes over which it is sharded; empty where that is not known."""
    bits: int | None = None
    """Bits of an element; None where there are none, or they cannot be known."""
    is_mesh: bool = False
    """Whether it is a mesh, whose devices have positions instead of slices."""

    @cached_property
    def grids(self) -> Grids:
        """The grids of its cells."""
        return flat_grids(self.layout)

    @cached_property
    def process_of(self) -> dict[int, int]:
        """The process of each device; empty where there is only one process."""
        return {device: process for process, ids in self.layout.processes for device in ids}

    def over_words(self, axis: int) -> str:
        """Return over which mesh axes an axis is sharded, with a blank before; nothing where it is not."""
        over = self.over[axis] if axis < len(self.over) else ()
        return f" over {', '.join(over)}" if over else ""

    def processes(self, holder: Holder) -> list[int]:
        """Return the processes whose devices hold a cell, ascending; none where there is only one."""
        return sorted({self.process_of[device] for device in holder} if self.process_of else ())

    def cell_title(self, facet: int, row: int, column: int, holder: Holder) -> str:
        """Return what is said of a cell of the grids: its devices, processes, slice and bytes, in lines."""
        who = listed_devices(self.layout.platform, holder, LISTED_WIDTH)
        if processes := self.processes(holder):
            who += f", process{'es' if len(processes) > 1 else ''} {format_device_ids(processes)}"
        shards = self.grids.position(facet, row, column)
        position = [shards.get(axis, 0) for axis in range(len(self.layout.shape))]
        if self.is_mesh:
            where = ", ".join(f"{name}={place}" for name, place in zip(self.names, position, strict=True))
            return f"{who}\n{where}" if where else who
        index = self.layout.shard_index(position)
        lines = [who, f"[{', '.join(f'{piece.start}:{piece.stop}' for piece in index)}]"]
        nbytes = packed_nbytes([piece.stop - piece.start for piece in index], self.bits)
        if nbytes is not None:
            lines.append(format_bytes(nbytes) + (" per device" if len(holder) > 1 else ""))
        return "\n".join(lines)


def subject_of(report: Placed) -> Subject | None:
    """Return what there is to draw of a report; None where it is not known which device holds what."""
    layout = report if isinstance(report, ShardingLayout) else report.layout
    if layout is None:
        return None
    match report:
        case MeshReport():
            return mesh_subject(layout, report.axes)
        case ArrayReport():
            sharding = report.sharding
            spec = sharding.spec if sharding else None
            return array_subject(layout, _array_caption(report, layout), spec, bits_of_name(report.dtype))
    return array_subject(
        layout, (_shards_words(layout),), report.spec if isinstance(report, XlaReport) else None
    )


def array_subject(
    layout: ShardingLayout, caption: tuple[str, ...] = (), spec: Spec | None = None, bits: int | None = None
) -> Subject:
    """Return an array as it is drawn."""
    names = tuple(f"axis {axis}" for axis in range(len(layout.shape)))
    over = tuple(tuple(map(printable, axes)) for axes in spec.axes) if spec else ()
    return Subject(layout, caption, names, over, bits)


def mesh_subject(layout: ShardingLayout, mesh: MeshAxes, encoding: str = "utf-8") -> Subject:
    """Return a mesh as it is drawn; its caption has sizes and types: ``mesh data=4, model=2 (Explicit)``."""
    names = tuple(printable(clipped(name), encoding) for name in mesh.names)
    axes = [
        f"{name}={size}" + (f" ({printable(kind, encoding)})" if kind not in ("", "Auto") else "")
        for name, size, kind in zip(names, mesh.sizes, mesh.types or ("",) * len(names), strict=True)
    ]
    return Subject(layout, (f"mesh {', '.join(axes)}",), names, is_mesh=True)


def _array_caption(report: ArrayReport, layout: ShardingLayout) -> tuple[str, ...]:
    """Return an array's name, its shape, dtype and bytes, and its sharding, each a line where it is known."""
    facts = [f"{_shape_words(layout.shape)} {printable(clipped(report.dtype or ''))}".strip()]
    if report.nbytes is not None:
        facts.append(format_bytes(report.nbytes))
    if report.shard_nbytes is not None:
        facts.append(f"{format_bytes(report.shard_nbytes)} per device")
    lines = [] if report.name is None else [printable(clipped(report.name))]
    lines.append(", ".join(facts))
    sharding = report.sharding
    if sharding and (sharding.spec or sharding.text):
        words = str(sharding.spec or sharding.text)
        if sharding.mesh:
            words += f" on {', '.join(f'{name}={size}' for name, size in sharding.mesh.shape.items())}"
        lines.append(printable(clipped(words)))
    return tuple(lines)


def _shape_words(shape: Sequence[int]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _shards_words(layout: ShardingLayout) -> str:
    """Return the shape of a layout, and into how many shards of which shape it is cut."""
    count = math.prod(layout.shard_counts)
    if count == 1:
        devices = layout.device_ids.size
        return f"{_shape_words(layout.shape)} on {devices} device{'' if devices == 1 else 's'}"
    copies = f", {layout.replicas} replicas each" if layout.replicas > 1 else ""
    return f"{_shape_words(layout.shape)} in {count} shards of {_shape_words(layout.shard_shape)}{copies}"
