"""Contradictions between the fields of a report.

Only a report that was read from JSON can have contradictions.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..layouts.layout import MAX_DEVICES, ShardingLayout
from ..layouts.spec import MeshAxes, Spec, UnevenAxis
from ..quantities import LARGEST, MAX_DIGITS, format_number
from . import Report
from .array import ArrayReport, ShardingDescription
from .changes import (
    DonationChange,
    FigureChange,
    ProgramDiff,
    ReshardReport,
    ReshardRow,
    SentChange,
    TemporaryChange,
    TreeDiff,
)
from .checks import CheckReport, Finding, FindingLeaf
from .compiles import LogReport, UnusableDonation
from .live import LiveArrayTotal
from .mesh import MeshReport
from .origin import SourceLine
from .program import (
    Collective,
    Constraint,
    Donation,
    ProgramReport,
    ProgramValue,
    Rematerialization,
    SentBytes,
    SentTotals,
)
from .program_memory import LargeBuffer, OutOfMemory, ProgramMemory, Temporary
from .tree import ExcessBytes, LeafStatistics, TreeMesh, TreeReport, TreeRow

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
            yield from _of_tree_mesh(part)
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


def _of_tree_mesh(mesh: TreeMesh) -> Iterator[str]:
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


_PROGRAM_COUNTS: dict[type, tuple[str, ...]] = {
    ProgramValue: ("nbytes",),
    Donation: ("nbytes",),
    Collective: ("sent_nbytes", "times", "at_most"),
    SentBytes: ("nbytes", "unknown_count"),
    SentTotals: ("nbytes", "unknown_count"),
    Rematerialization: ("nbytes",),
    Temporary: ("nbytes",),
    ProgramMemory: (
        "argument_nbytes",
        "output_nbytes",
        "alias_nbytes",
        "temporary_nbytes",
        "code_nbytes",
        "peak_nbytes",
        "live_nbytes",
        "required_nbytes",
        "available_nbytes",
        "host_argument_nbytes",
        "host_output_nbytes",
        "host_alias_nbytes",
        "host_temporary_nbytes",
    ),
    LargeBuffer: ("nbytes",),
    OutOfMemory: ("required_nbytes", "available_nbytes"),
    ProgramReport: ("dot_flops", "known_dot_flops"),
    SentChange: ("before", "after"),
    TemporaryChange: ("before", "after"),
    FigureChange: ("before", "after"),
    ProgramDiff: ("sent_nbytes_before", "sent_nbytes_after"),
    LogReport: ("line_count",),
    UnusableDonation: ("nbytes",),
}
"""Fields that are at least 0."""

_PROGRAM_PARTS: dict[type, tuple[str, ...]] = {
    Constraint: ("count",),
    Collective: ("count", "group_size"),
    Rematerialization: ("count",),
    Temporary: ("count",),
    ProgramReport: ("device_count",),
    UnusableDonation: ("count",),
}
"""Fields that are at least 1."""

_TOTALS = {
    "by_kind": ("kind",),
    "by_axes": ("axes",),
    "by_kind_and_axes": ("kind", "axes"),
    "by_line": ("origin",),
    "by_phase": ("phase",),
}
"""Fields of a collective that the parts of each total have in common."""


def contradictions_of_programs(part: Any) -> Iterator[str]:
    """Yield the contradictions within one part of a report on a program, not of the parts in it."""
    for least, fields in ((0, _PROGRAM_COUNTS), (1, _PROGRAM_PARTS)):
        for name in fields.get(type(part), ()):
            number = getattr(part, name)
            if number is not None and number < least:
                yield f"{name} is {format_number(number)}, less than {least}"
    match part:
        case ProgramValue():
            yield from contradictions_of_shape(part.path, part.shape)
            if bool(part.lost_axes) != (part.like is not None):
                yield f"{part.path}: lost axes without an argument to compare with, or the reverse"
        case Constraint() | Rematerialization() | Temporary() | LargeBuffer() | UnusableDonation():
            yield from contradictions_of_shape(part.dtype, part.shape)
        case Collective():
            yield from contradictions_of_shape(part.kind, part.shape)
            if part.times is not None and part.at_most is not None:
                yield f"{part.kind}: at_most with a known number of executions"
            if part.times is not None and part.depends_on_data:
                yield f"{part.kind}: known bytes that depend on data"
        case Donation() if part.output is not None and part.reason is not None:
            yield f"{part.path}: a donation that is reused, with a reason why not"
        case SourceLine() if part.cell is not None and part.cell < 0:
            yield f"a cell with the number {format_number(part.cell)}"
        case DonationChange():
            if (part.before and part.is_absent_before) or (part.after and part.is_absent_after):
                yield f"{part.path}: a donation of an argument that is absent"
        case TemporaryChange() if part.before == part.after:
            yield f"{format_number(part.after)} temporary values before and after, as a difference"
        case ProgramReport():
            yield from _of_program(part)
        case ProgramDiff():
            yield from _of_program_paths("leaves", (change.path for change in part.shardings))
            yield from _of_program_paths("donations", (change.path for change in part.donations))


def _of_program(report: ProgramReport) -> Iterator[str]:
    yield from _of_program_paths("arguments", (value.path for value in report.arguments))
    yield from _of_program_paths("outputs", (value.path for value in report.outputs))
    yield from _of_program_paths("donations", (donation.path for donation in report.donations))
    arguments = {value.path for value in report.arguments}
    outputs = {value.path for value in report.outputs}
    for value in (*report.arguments, *report.outputs):
        if value.like is not None and value.like not in arguments:
            yield f"{value.path} is like {value.like!r}, which is not an argument"
        if value.replaces is not None and value.replaces not in arguments:
            yield f"{value.path} replaces {value.replaces!r}, which is not an argument"
    yield from _of_program_paths("donatable arguments", (donation.path for donation in report.donatable))
    for donation in (*report.donations, *report.donatable):
        if donation.path not in arguments:
            yield f"the donation {donation.path!r} is not an argument"
        if donation.output is not None and donation.output not in outputs:
            yield f"{donation.path}: {donation.output!r} is not an output"
    # The compiler for GPUs refuses no program.
    if report.memory is not None and report.out_of_memory is not None and report.platform != "gpu":
        yield "the memory of a program that does not fit"
    if not set(report.unread_local) <= set(report.unread):
        yield "unread lines that send nothing, which are not among the unread lines"
    if report.dot_flops is not None and report.uncounted_flops:
        yield "dot_flops without operations that are not counted"
    yield from _of_program_axes(report)
    yield from _of_totals(report)


def _of_program_axes(report: ProgramReport) -> Iterator[str]:
    """Yield the mesh axes of collectives and values that the mesh does not have."""
    names = () if report.mesh is None else report.mesh.names
    used = [name for collective in report.collectives for name in collective.axes or ()]
    used += [name for value in report.outputs for name in value.lost_axes]
    for name in dict.fromkeys(used):
        # A part of an axis is written as ``tensor:(2)4``.
        if name not in names and name.rpartition(":(")[0] not in names:
            yield f"the mesh axis {name!r} over a mesh with {names}"


def _of_totals(report: ProgramReport) -> Iterator[str]:
    """Yield the totals that are not the sums of the collectives."""
    sent, rows = report.sent, report.collectives
    known = sum(row.total_nbytes or 0 for row in rows)
    unknown = sum(row.count for row in rows if row.times is None)
    if (sent.nbytes, sent.unknown_count) != (known, unknown):
        yield (
            f"{format_number(sent.nbytes)} bytes sent and {format_number(sent.unknown_count)} unknown, "
            f"but collectives with {format_number(known)} and {format_number(unknown)}"
        )
    for field, names in _TOTALS.items():
        sums: dict[tuple[object, ...], tuple[int, int]] = {}
        for row in rows:
            key = tuple(getattr(row, name) for name in names)
            nbytes, count = sums.get(key, (0, 0))
            more = row.count if row.times is None else 0
            sums[key] = (nbytes + (row.total_nbytes or 0), count + more)
        given = {
            tuple(getattr(part, name) for name in names): (part.nbytes, part.unknown_count)
            for part in getattr(sent, field)
        }
        if given != sums or len(given) != len(getattr(sent, field)):
            yield f"sent.{field} is not the sum of the collectives"


def _of_program_paths(what: str, paths: Iterable[str]) -> Iterator[str]:
    for path, count in Counter(paths).items():
        if count > 1:
            yield f"{count} {what} have the path {path!r}"


_PLAIN = frozenset({str, int, float, bool, type(None)})


def contradictions(report: Report) -> Iterator[str]:
    """Yield a description of each contradiction within a report."""
    for part in _parts(report):
        match part:
            case Spec():
                for axis in set(part.unconstrained).difference(range(len(part.axes))):
                    yield f"a spec of {len(part.axes)} entries that leaves axis {format_number(axis)} to XLA"
            case MeshAxes():
                yield from _of_mesh(part)
            case ShardingDescription():
                yield from _of_sharding(part)
            case ShardingLayout():
                yield from _of_layout(part)
            case ArrayReport():
                yield from _of_array(part)
            case LiveArrayTotal() if max(abs(part.nbytes), abs(part.total_nbytes)) >= 10**MAX_DIGITS:
                yield f"live arrays whose total has more than {MAX_DIGITS} digits"
            case MeshReport() if part.axes.sizes != part.layout.shape:
                yield f"a mesh of sizes {part.axes.sizes} with a layout of shape {part.layout.shape}"
            case _:
                yield from contradictions_of_trees(part)
                yield from contradictions_of_programs(part)


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
    elif min(mesh.sizes, default=1) < 1:
        yield f"a mesh without devices: its sizes are {mesh.sizes}"
    elif math.prod(mesh.sizes) >= 10**MAX_DIGITS:
        yield f"a mesh whose number of devices has more than {MAX_DIGITS} digits"


def _of_sharding(sharding: ShardingDescription) -> Iterator[str]:
    if sharding.spec is not None and sharding.mesh is not None:
        names = {name for entry in (*sharding.spec.axes, sharding.spec.unreduced) for name in entry}
        unknown = sorted(names.difference(sharding.mesh.names))
        if unknown:
            yield f"a spec with {', '.join(map(repr, unknown))} over a mesh with {sharding.mesh.names}"


def _of_layout(layout: ShardingLayout) -> Iterator[str]:
    owned = [device for _, devices in layout.processes for device in devices]
    if owned and not np.isin(layout.device_ids, owned).all():
        yield "a layout with devices that belong to no process"


def _of_array(report: ArrayReport) -> Iterator[str]:
    if report.local_part is None:
        return
    if report.layout is None:
        yield "a local part of an array without a layout"
    elif not 0 <= report.local_part.element_count <= math.prod(report.layout.shape):
        yield "a local part larger than the array"
