"""What is said of a layout that is drawn: under the drawing, at its axes, and of each cell."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from jax_array_info_core import (
    ArrayReport,
    Grids,
    MeshAxes,
    MeshReport,
    ShardingLayout,
    Spec,
    SpecError,
    XlaReport,
    dtype_bits,
    format_bytes,
)
from jax_array_info_core.layouts.dtypes import packed_nbytes
from jax_array_info_core.quantities import format_device_ids
from jax_array_info_core.text import printable

from .captions import mesh_words
from .fitting import clipped
from .labels import listed_devices
from .palette import Holder
from .svg_labels import LISTED_WIDTH


@dataclass(frozen=True, slots=True)
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

    def over_words(self, axis: int) -> str:
        """Return over which mesh axes an axis is sharded, with a blank before; nothing where it is not."""
        over = self.over[axis] if axis < len(self.over) else ()
        return f" over {', '.join(over)}" if over else ""


Drawn = ArrayReport | MeshReport | ShardingLayout | XlaReport
"""The reports that there is a drawing of, where they know which device holds what."""


def subject_of(report: Drawn) -> Subject | None:
    """Return what there is to draw of a report; None where it is not known which device holds what."""
    match report:
        case ShardingLayout():
            return _array_subject(report, (_cut_words(report),))
        case MeshReport():
            names = tuple(printable(clipped(name)) for name in report.axes.names)
            return Subject(report.layout, (mesh_words(report.axes, names),), names, is_mesh=True)
        case XlaReport():
            layout = report.layout
            return None if layout is None else _array_subject(layout, (_cut_words(layout),), report.spec)
    if report.layout is None:
        return None
    facts = [f"{_shape_words(report.layout.shape)} {printable(clipped(report.dtype or ''))}".strip()]
    if report.nbytes is not None:
        facts.append(format_bytes(report.nbytes))
    if report.shard_nbytes is not None:
        facts.append(f"{format_bytes(report.shard_nbytes)} on each device")
    lines = [] if report.name is None else [printable(clipped(report.name))]
    lines.append(", ".join(facts))
    if report.sharding and (report.sharding.spec or report.sharding.text):
        words = str(report.sharding.spec or report.sharding.text)
        mesh = f" on {_mesh_sizes(report.sharding.mesh)}" if report.sharding.mesh else ""
        lines.append(printable(clipped(f"{words}{mesh}")))
    bits = None
    with contextlib.suppress(SpecError):
        # PRNG keys have a dtype that only jax knows.
        bits = dtype_bits(report.dtype or "")
    spec = report.sharding.spec if report.sharding else None
    return _array_subject(report.layout, tuple(lines), spec, bits)


def _array_subject(
    layout: ShardingLayout, caption: tuple[str, ...], spec: Spec | None = None, bits: int | None = None
) -> Subject:
    names = tuple(f"axis {axis}" for axis in range(len(layout.shape)))
    over = tuple(tuple(map(printable, axes)) for axes in spec.axes) if spec else ()
    return Subject(layout, caption, names, over, bits)


def _shape_words(shape: Sequence[int]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _mesh_sizes(mesh: MeshAxes) -> str:
    return ", ".join(f"{name}={size}" for name, size in mesh.shape.items())


def _cut_words(layout: ShardingLayout) -> str:
    """Return into what an array is cut of which only the layout is known."""
    count = math.prod(layout.shard_counts)
    copies = f", {layout.replicas} copies of each" if layout.replicas > 1 else ""
    if count == 1:
        return f"{_shape_words(layout.shape)} on {format_count(layout.device_ids.size, 'device')}"
    return f"{_shape_words(layout.shape)} in {count} shards of {_shape_words(layout.shard_shape)}{copies}"


def format_count(count: int, thing: str) -> str:
    """Return ``1 device``, ``2 devices``."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


class CellTeller:
    """Says of a cell which devices hold it, of which processes, which slice it is and how many bytes."""

    def __init__(self, subject: Subject, grids: Grids) -> None:
        self.subject = subject
        self.grids = grids
        self._owners = {device: process for process, ids in subject.layout.processes for device in ids}

    def __call__(self, facet: int, row: int, column: int, holder: Holder) -> str:
        """Return what is said of the cell at this place of the grids, in lines."""
        layout, names = self.subject.layout, self.subject.names
        position = self._position(facet, row, column)
        who = [listed_devices(layout.platform, holder, LISTED_WIDTH)]
        processes = self.processes(holder)
        if processes:
            plural = "es" if len(processes) > 1 else ""
            who.append(f"process{plural} {format_device_ids(processes)}")
        lines = [", ".join(who)]
        if self.subject.is_mesh:
            lines += [", ".join(f"{name}={place}" for name, place in zip(names, position, strict=True))]
            return "\n".join(filter(None, lines))
        index = layout.shard_index(position)
        lines.append(f"[{', '.join(f'{piece.start}:{piece.stop}' for piece in index)}]")
        nbytes = packed_nbytes([piece.stop - piece.start for piece in index], self.subject.bits)
        if nbytes is not None:
            lines.append(format_bytes(nbytes) + (" each" if len(holder) > 1 else ""))
        return "\n".join(lines)

    def processes(self, holder: Holder) -> list[int]:
        """Return the processes whose devices hold a cell, ascending; none where there is only one."""
        return sorted({self._owners[device] for device in holder} if self._owners else ())

    def _position(self, facet: int, row: int, column: int) -> tuple[int, ...]:
        """Return the place of a cell in the grid of shards."""
        grids = self.grids
        places = (
            dict(zip(grids.axes[-2:], (row, column)[-len(grids.axes) :], strict=True)) if grids.axes else {}
        )
        for axis, count in zip(reversed(grids.facet_axes), reversed(grids.facet_counts), strict=True):
            facet, places[axis] = divmod(facet, count)
        return tuple(places.get(axis, 0) for axis in range(len(self.subject.layout.shape)))
