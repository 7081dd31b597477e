"""Fields of a report that refer to others: of a report that was read from JSON, they may not fit together."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..layouts.layout import MAX_DEVICES, ShardingLayout
from ..layouts.spec import MeshAxes, Spec, UnevenAxis
from ..quantities import LARGEST, format_number
from . import Report
from .array import ArrayReport, ShardingDescription
from .changes import TreeDiff
from .checks import CheckReport
from .mesh import MeshReport
from .program import ProgramReport
from .tree import TreeMesh, TreeReport, TreeRow

_PLAIN = frozenset({str, int, float, bool, type(None)})


def contradictions(report: Report) -> Iterator[str]:
    """Yield a description of each field that does not fit another one of the report.

    Totals are not added up again, and numbers have their bounds in the types of the fields.
    """
    for part in _parts(report):
        if isinstance(part, TreeReport | CheckReport) and part.avoidable_nbytes > part.fullest_device_nbytes:
            yield "avoidable_nbytes is more than fullest_device_nbytes"
        match part:
            case Spec():
                for axis in set(part.unconstrained).difference(range(len(part.axes))):
                    yield f"a spec of {len(part.axes)} entries that leaves axis {format_number(axis)} to XLA"
            case MeshAxes():
                yield from _of_mesh(part)
            case ShardingDescription():
                yield from _of_names("a sharding", part.spec, part.mesh)
            case ShardingLayout():
                owned = [device for _, devices in part.processes for device in devices]
                if owned and not np.isin(part.device_ids, owned).all():
                    yield "a layout with devices that belong to no process"
            case ArrayReport() if part.local_part is not None:
                whole = 0 if part.layout is None else math.prod(part.layout.shape)
                if not 0 <= part.local_part.element_count <= whole:
                    yield "a local part larger than the array"
            case MeshReport() if part.axes.sizes != part.layout.shape:
                yield f"a mesh of sizes {part.axes.sizes} with a layout of shape {part.layout.shape}"
            case UnevenAxis():
                if not 0 <= part.axis < len(part.shape) or min(part.count, part.fitting_count) < 1:
                    yield f"an uneven axis {format_number(part.axis)} of shape {part.shape}"
            case TreeMesh():
                yield from _of_tree_mesh(part)
            case TreeRow():
                yield from _of_axes(part)
            case TreeReport():
                yield from _of_paths("leaves", (row.path for row in part.rows))
                yield from _of_meshes(part.rows, part.meshes)
                earlier: set[str] = set()
                for row in part.rows:
                    if row.same_as is not None and row.same_as not in earlier:
                        yield f"{row.path} is the same as {row.same_as!r}, which is not an earlier leaf"
                    earlier.add(row.path)
            case TreeDiff():
                if part.values is not None:
                    yield from _of_paths("leaves", (leaf.path for leaf in part.values.leaves))
                before = [*part.removed, *(change.before for change in part.changed)]
                after = [*part.added, *(change.after for change in part.changed)]
                for rows, meshes in ((before, part.meshes_before), (after, part.meshes_after)):
                    yield from _of_paths("leaves", (row.path for row in rows))
                    yield from _of_meshes(rows, meshes)
            case ProgramReport():
                for what, values in (("arguments", part.arguments), ("outputs", part.outputs)):
                    yield from _of_paths(what, (value.path for value in values))


def _parts(value: Any) -> Iterator[object]:
    """Yield all dataclasses in a value, nested ones first."""
    is_tuple = isinstance(value, tuple)
    if not is_tuple and not dataclasses.is_dataclass(value):
        return
    for entry in value if is_tuple else (getattr(value, field.name) for field in dataclasses.fields(value)):
        if type(entry) not in _PLAIN:
            yield from _parts(entry)
    if not is_tuple:
        yield value


def _of_mesh(mesh: MeshAxes) -> Iterator[str]:
    count = len(mesh.names)
    if len(mesh.sizes) != count or len(mesh.types) not in (0, count):
        yield f"a mesh with {count} names, {len(mesh.sizes)} sizes and {len(mesh.types)} types of axes"
    elif len(set(mesh.names)) < count:
        yield f"a mesh with two axes of the same name: {mesh.names}"
    elif not 1 <= math.prod(mesh.sizes) <= LARGEST:
        yield f"a mesh of sizes {mesh.sizes}"


def _of_names(what: str, spec: Spec | None, mesh: MeshAxes | None) -> Iterator[str]:
    if spec is not None and mesh is not None:
        names = {name for entry in (*spec.axes, spec.unreduced) for name in entry}
        if unknown := sorted(names.difference(mesh.names)):
            yield f"{what}: a spec with {', '.join(map(repr, unknown))} over a mesh with {mesh.names}"


def _of_tree_mesh(mesh: TreeMesh) -> Iterator[str]:
    if mesh.device_count > MAX_DEVICES:
        yield f"{format_number(mesh.device_count)} devices exceed the limit of {MAX_DEVICES}"
    elif mesh.axes is not None and math.prod(mesh.axes.sizes) != mesh.device_count:
        yield f"a mesh of sizes {mesh.axes.sizes} with {mesh.device_count} devices"
    elif mesh.devices is not None and len(set(mesh.devices)) != mesh.device_count:
        yield f"{len(set(mesh.devices))} device ids for {mesh.device_count} devices"


def _of_axes(row: TreeRow) -> Iterator[str]:
    """Yield what does not fit the number of axes of a leaf."""
    shard_shape = row.shape if row.shard_shape is None else row.shard_shape
    spec = row.spec or Spec(())
    used = [name for entry in (*spec.axes, spec.unreduced) for name in entry]
    if list(map(type, shard_shape)) != list(map(type, row.shape)):
        yield f"{row.path}: shards of shape {tuple(shard_shape)} of an array of shape {tuple(row.shape)}"
    elif len(spec.axes) > len(row.shape):
        yield f"{row.path}: a spec with {len(spec.axes)} entries for an array of shape {tuple(row.shape)}"
    elif len(set(used)) < len(used):
        yield f"{row.path}: a spec with the same mesh axis twice"
    elif any(axis.shape != row.shape for axis in row.uneven):
        yield f"{row.path}: an uneven axis of another shape than {tuple(row.shape)}"
    elif not all(0 <= axis < len(row.shape) for axis in row.batched_axes):
        yield f"{row.path}: a batched axis that shape {tuple(row.shape)} does not have"


def _of_meshes(rows: Iterable[TreeRow], meshes: Sequence[TreeMesh]) -> Iterator[str]:
    """Yield what does not fit between leaves and their meshes."""
    for row in rows:
        if row.mesh is None:
            continue
        if not 0 <= row.mesh < len(meshes):
            yield f"{row.path} is on mesh {format_number(row.mesh)} of {len(meshes)} meshes"
            continue
        mesh = meshes[row.mesh]
        yield from _of_names(row.path, row.spec, mesh.axes)
        for number, noun in ((row.replicas, "replicas"), (row.partial_sums, "partial sums")):
            if number > mesh.device_count:
                yield f"{row.path}: {number} {noun} on {mesh.device_count} devices"


def _of_paths(what: str, paths: Iterable[str]) -> Iterator[str]:
    for path, count in Counter(paths).items():
        if count > 1:
            yield f"{count} {what} have the path {path!r}"
