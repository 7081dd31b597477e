"""Contradictions between the fields of reports on trees."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..layouts.layout import MAX_DEVICES
from ..layouts.spec import Spec, UnevenAxis
from ..quantities import LARGEST, MAX_DIGITS, format_number
from .checks import CheckReport, Finding, FindingLeaf
from .tree import ExcessBytes, LeafStatistics, TreeMesh, TreeReport, TreeRow
from .tree_changes import ReshardReport, ReshardRow, TreeDiff

_COUNTS: dict[type, tuple[str, ...]] = {
    TreeRow: ("nbytes", "shard_nbytes", "avoidable_nbytes"),
    LeafStatistics: ("zeros", "nans", "infinities"),
    ExcessBytes: ("leaf_count",),
    TreeReport: (
        "others",
        "elements",
        "parameters",
        "nbytes",
        "fullest_device_nbytes",
        "emptiest_device_nbytes",
        "ideal_nbytes",
        "avoidable_nbytes",
        "numpy_nbytes",
        "host_nbytes",
        "unknown_count",
    ),
    CheckReport: (
        "leaf_count",
        "ignored_count",
        "numpy_count",
        "unsharded_count",
        "unknown_count",
        "other_count",
        "fullest_device_nbytes",
        "avoidable_nbytes",
        "optimizer_nbytes",
        "required_nbytes",
        "hbm_nbytes",
    ),
    Finding: ("nbytes_after",),
    FindingLeaf: ("nbytes_after",),
    TreeDiff: (
        "unchanged_count",
        "nbytes_before",
        "nbytes_after",
        "device_nbytes_before",
        "device_nbytes_after",
    ),
    ReshardRow: ("device_nbytes", "nbytes", "process_nbytes"),
    ReshardReport: ("unmoved_count", "skipped_count", "device_nbytes", "nbytes", "process_nbytes"),
}
"""Fields that are at least 0."""

_PARTS: dict[type, tuple[str, ...]] = {
    TreeMesh: ("device_count", "process_count"),
    TreeRow: ("replicas", "partial_sums"),
    TreeReport: ("device_count",),
    CheckReport: ("device_count",),
    ReshardReport: ("device_count",),
}
"""Fields that are at least 1."""


def contradictions_of_trees(part: Any) -> Iterator[str]:
    """Yield the contradictions within one part of a report on trees, not of the parts in it."""
    for least, fields in ((0, _COUNTS), (1, _PARTS)):
        for name in fields.get(type(part), ()):
            number = getattr(part, name)
            if number is not None and number < least:
                yield f"{name} is {format_number(number)}, less than {least}"
    if isinstance(part, TreeReport | CheckReport) and part.avoidable_nbytes > part.fullest_device_nbytes:
        yield "avoidable_nbytes is more than fullest_device_nbytes"
    match part:
        case TreeRow():
            yield from contradictions_of_shape(part.path, part.shape)
            yield from _of_axes(part)
        case UnevenAxis():
            yield from _of_uneven(part)
        case TreeMesh():
            yield from _of_mesh(part)
        case FindingLeaf() | ReshardRow():
            yield from contradictions_of_shape(part.path, part.shape)
        case TreeReport():
            yield from _of_leaves(part.rows, part.meshes)
        case TreeDiff():
            yield from _of_diff(part)
        case ReshardReport():
            yield from _of_paths(row.path for row in part.rows)


def _of_uneven(axis: UnevenAxis) -> Iterator[str]:
    if not 0 <= axis.axis < len(axis.shape):
        yield f"an uneven axis {format_number(axis.axis)} of shape {axis.shape}"
    elif axis.count < 1 or axis.fitting_count < 1:
        yield "an uneven axis with less than 1 shard"
    elif axis.shape[axis.axis] * axis.count >= LARGEST:
        yield f"an uneven axis of more than {MAX_DIGITS} digits"


def _of_mesh(mesh: TreeMesh) -> Iterator[str]:
    if mesh.device_count > MAX_DEVICES:
        yield f"{format_number(mesh.device_count)} devices exceed the limit of {MAX_DEVICES}"
    elif mesh.axes is not None and math.prod(mesh.axes.sizes) != mesh.device_count:
        yield f"a mesh of sizes {mesh.axes.sizes} with {mesh.device_count} devices"
    elif mesh.devices is not None and len(set(mesh.devices)) != mesh.device_count:
        yield f"{len(set(mesh.devices))} device ids for {mesh.device_count} devices"


def contradictions_of_shape(path: str, shape: Sequence[int | str]) -> Iterator[str]:
    """Yield the contradictions within the shape of an array at a path."""
    lengths = [dim for dim in shape if isinstance(dim, int)]
    if min(lengths, default=0) < 0:
        yield f"{path}: shape {tuple(shape)} has an axis of negative length"
    elif math.prod(lengths) >= LARGEST:
        yield f"{path}: the number of elements has more than {MAX_DIGITS} digits"


def _of_leaves(rows: Sequence[TreeRow], meshes: Sequence[TreeMesh]) -> Iterator[str]:
    """Yield the contradictions between the leaves of one tree, and with its meshes."""
    yield from _of_paths(row.path for row in rows)
    for row in rows:
        yield from _of_place(row, meshes)
        if row.nbytes is not None and not all(isinstance(dim, int) for dim in row.shape):
            yield f"{row.path}: shape {tuple(row.shape)} with {format_number(row.nbytes)} bytes"
    known: set[str] = set()
    for row in rows:
        if row.same_as is not None and row.same_as not in known:
            yield f"{row.path} is the same as {row.same_as!r}, which is not an earlier leaf"
        known.add(row.path)


def _of_axes(row: TreeRow) -> Iterator[str]:
    """Yield the contradictions between the shape of a leaf and the facts about its axes."""
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


def _of_place(row: TreeRow, meshes: Sequence[TreeMesh]) -> Iterator[str]:
    """Yield the contradictions between a leaf and its mesh."""
    if row.mesh is None:
        return
    if not 0 <= row.mesh < len(meshes):
        yield f"{row.path} is on mesh {format_number(row.mesh)} of {len(meshes)} meshes"
        return
    axes = meshes[row.mesh].axes
    if row.spec is not None and axes is not None:
        names = {name for entry in (*row.spec.axes, row.spec.unreduced) for name in entry}
        if unknown := sorted(names.difference(axes.names)):
            yield f"{row.path}: a spec with {', '.join(map(repr, unknown))} over a mesh with {axes.names}"
    for number, noun in ((row.replicas, "replicas"), (row.partial_sums, "partial sums")):
        if number > meshes[row.mesh].device_count:
            yield f"{row.path}: {number} {noun} on {meshes[row.mesh].device_count} devices"


def _of_diff(diff: TreeDiff) -> Iterator[str]:
    before = [*diff.removed, *(change.before for change in diff.changed)]
    after = [*diff.added, *(change.after for change in diff.changed)]
    for rows, meshes in ((before, diff.meshes_before), (after, diff.meshes_after)):
        yield from _of_paths(row.path for row in rows)
        for row in rows:
            yield from _of_place(row, meshes)
    for change in diff.changed:
        if change.before.path != change.after.path:
            yield f"a change of {change.before.path!r} to {change.after.path!r}"
        if not change.fields:
            yield f"{change.before.path}: a change without changed fields"
    for path in {row.path for row in diff.added} & {row.path for row in before}:
        yield f"{path} is added, and in the first tree"


def _of_paths(paths: Iterable[str]) -> Iterator[str]:
    for path, count in Counter(paths).items():
        if count > 1:
            yield f"{count} leaves have the path {path!r}"
