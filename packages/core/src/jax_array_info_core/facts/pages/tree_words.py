"""Words and totals of pages of trees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import TypeAlias

from ...base.quantities import LARGEST, counted, format_bytes, format_devices, format_number, grouped
from ...base.text import clipped, that_apply
from ...geometry.layouts import MeshAxes, Spec, UnevenAxis
from ...geometry.layouts.dtypes import type_text
from ...geometry.layouts.spec import effective_spec
from ..reports import (
    ExcessBytes,
    ReshardReport,
    TreeDiff,
    TreeMesh,
    TreeReport,
    TreeRow,
    UnmatchedAxes,
    UnmatchedName,
)
from ..reports.tree import both_memories, other_leaves_words, shorter_leaves_words
from .blocks import AT_MOST, TIMES, Note, counted_path, more, some
from .tree_rows import LeafGroup, LeafSums, is_counted, is_finite
from .words import copies_words, mesh_words, reason_words

_MOST_PATHS = 3
"""Maximum number of other paths of an array that are listed."""
_FEW_ROWS = 4
"""Number of rows of a table that can be read at a glance."""
_MOST_NAMES_OF_TOTALS = 6
"""Maximum number of logical axis names in a line."""


def spec_words(leaf: TreeRow, report: TreeReport) -> str:
    """Return the spec of a leaf, without mesh axes of size 1, else its sharding or its logical axes."""
    if leaf.spec is not None:
        return str(effective_spec(leaf.spec, _sizes_of(leaf, report)))
    if leaf.sharding is not None:
        return leaf.sharding
    if leaf.logical is not None:
        return f"logical {leaf.logical}"
    return "no sharding" if leaf.kind in ("abstract", "planned") and leaf.unknown_because is None else ""


def bytes_lines(group: LeafGroup) -> list[str]:
    """Return the bytes per device of a row, for a prefix with those in host memory apart.

    Empty for an array that counts at another path or elsewhere.
    """
    leaf, sums = group.leaves[0], group.sums
    if group.is_prefix:
        bound = f"{AT_MOST} " if sums.is_bound else ""
        on_host = [f"+ {format_bytes(sums.host_nbytes)} host"] if sums.host_nbytes else []
        return [f"{bound}{format_bytes(sums.nbytes)}", *on_host]
    if leaf.same_as is not None or leaf.is_deleted:
        return []
    if sums.unknown_count:
        return ["?"]
    return [] if leaf.elsewhere else [format_bytes(sums.nbytes + sums.host_nbytes)]


def shard_words(leaf: TreeRow) -> str:
    """Return the shape of a leaf's shards: ``[512,28672]``."""
    is_known = leaf.mesh is not None and leaf.shard_shape is not None
    return f"[{','.join(map(str, leaf.shard_shape or ()))}]" if is_known else ""


def replicas_words(leaf: TreeRow, report: TreeReport) -> Note:
    """Return the mesh axes over which a leaf is replicated, and the number of replicas: ``data (4)``."""
    if leaf.mesh is None or leaf.replicas < 2:
        return Note("")
    unreduced = leaf.spec.unreduced if leaf.spec else ()
    over = ", ".join(
        name
        for name, size in _sizes_of(leaf, report).items()
        if size > 1 and name not in _axes_of(leaf.spec) and name not in unreduced
    )
    number = format_number(leaf.replicas)
    if leaf.spec is None or leaf.spec.unconstrained or not over:
        return Note(f"{number} replicas")
    return Note(f"{over} ({number})", stacked=f"replicated over {over} ({number} replicas)")


def _sizes_of(leaf: TreeRow, report: TreeReport) -> dict[str, int]:
    """Return the sizes of the mesh axes of a leaf by name; empty without a mesh."""
    axes = report.meshes[leaf.mesh].axes if leaf.mesh is not None else None
    return axes.shape if axes else {}


def _axes_of(spec: Spec | None) -> list[str]:
    """Return the mesh axes that a spec names."""
    return [name for names in (spec.axes if spec else ()) for name in names]


def note_lines(group: LeafGroup, report: TreeReport, main: int | None) -> Iterator[Note]:
    """Yield what is unusual about the leaves of a row, indented.

    Args:
        group: The leaves.
        report: Their tree.
        main: Index of the mesh of most leaves, which is not named.
    """
    if group.is_prefix:
        yield from _sums_notes(group.sums)
        return
    leaf, sizes, names = group.leaves[0], _sizes_of(group.leaves[0], report), _axes_of(group.leaves[0].spec)
    warnings = (
        leaf.statistics.not_finite_words if leaf.statistics else "",
        "deleted" if leaf.is_deleted else "",
        *map(uneven_words, leaf.uneven),
    )
    yield from _indented(warnings, has_warning=True)
    are_ones = names and all(sizes.get(name) == 1 for name in names)
    batched = "axis" if len(leaf.batched_axes) == 1 else "axes"
    facts = (
        f"{leaf.spec}: mesh {'axis' if len(names) == 1 else 'axes'} of size 1" if are_ones else "",
        f"on {_mesh_label(leaf.mesh, report)}" if leaf.mesh is not None and leaf.mesh != main else "",
        copies_words(leaf.unreduced, leaf.partial_sums, 1) if leaf.partial_sums > 1 else "",
        f"vmap: {batched} {', '.join(map(str, leaf.batched_axes))}" if leaf.batched_axes else "",
        f"sharding unknown: {reason_words(leaf.unknown_because)}" if leaf.unknown_because else "",
        "PRNG keys" if leaf.is_key else "",
        "weakly typed" if leaf.weak_type else "",
        (leaf.elsewhere if leaf.same_as else str(group.sums.elsewhere[0])) if leaf.elsewhere else "",
        f"in {leaf.memory_kind}" if leaf.is_in_host_memory else "",
        f"same as {some(group.same_as, _MOST_PATHS)}" if group.same_as else "",
    )
    yield from _indented(facts)


def _sums_notes(sums: LeafSums) -> Iterator[Note]:
    """Return what is unusual about leaves that are summed, indented."""
    warnings = that_apply(
        (sums.infinite_count, f"NaN or infinities in {counted(sums.infinite_count, 'leaf', 'leaves')}"),
        (sums.deleted_count, f"{sums.deleted_count} deleted"),
        (sums.padded_count, f"{sums.padded_count} padded"),
    )
    unknown = that_apply(
        (sums.unknown_count, f"{counted(sums.unknown_count, 'leaf', 'leaves')} of unknown size")
    )
    return chain(
        _indented(map(str, sums.elsewhere)),
        _indented(warnings, has_warning=True),
        _indented(unknown),
    )


def _indented(lines: Iterable[str], *, has_warning: bool = False) -> Iterator[Note]:
    return (Note(f"  {line}", "warning" if has_warning else "") for line in lines if line)


def uneven_words(axis: UnevenAxis) -> str:
    """Return the padding of an array axis: ``axis 0, 17 % 8 = 1: padded to 24``."""
    dim, count = axis.shape[axis.axis], axis.count
    padded = format_number(axis.padded)
    return f"axis {axis.axis}, {dim} % {format_number(count)} = {dim % count}: padded to {padded}"


def main_mesh(report: TreeReport) -> int | None:
    """Return the index of the mesh of most leaves; None if no leaf has one."""
    counts = Counter(row.mesh for row in report.rows if row.mesh is not None)
    return max(counts, key=lambda index: (counts[index], -index), default=None)


def _mesh_label(index: int, report: TreeReport) -> str:
    """Return the label of a mesh or a device set: ``mesh 2``, or ``mesh`` if there is no other; ``CPU 5``."""
    mesh = report.meshes[index]
    if mesh.devices is not None:
        return format_devices(mesh.platform, mesh.devices)
    kind = "mesh" if mesh.axes else "device set"
    return kind if len(report.meshes) == 1 else f"{kind} {index + 1}"


def number_words(number: float | None) -> str:
    """Return a statistic with 4 digits; empty if there is none."""
    return "" if number is None else f"{number:.4g}"


def answer_words(report: TreeReport) -> str:
    """Return the bytes per device, those of an even sharding, and the cost of replication and padding."""
    if not report.rows:
        return "the tree has no arrays"
    infinite_count = sum(not is_finite(row) for row in report.rows)
    infinite = (
        f"NaN or infinities in {counted(infinite_count, 'leaf', 'leaves')} (JAI110); "
        if infinite_count
        else ""
    )
    fullest, kinds = report.fullest_device_nbytes, report.host_memory_kinds
    nbytes = both_memories(fullest, report.host_nbytes, kinds)
    if report.device_count == 1 and not report.excess:
        return f"{infinite}{nbytes} on 1 device"
    if report.emptiest_device_nbytes != fullest:
        least = format_bytes(report.emptiest_device_nbytes)
        on_host = f", {format_bytes(report.host_nbytes)} in {', '.join(kinds)}" if report.host_nbytes else ""
        nbytes = f"{format_bytes(fullest)} on the fullest, {least} on the emptiest device" + on_host
    words = f"{infinite}per device {nbytes}; evenly sharded {format_bytes(report.ideal_nbytes)}"
    *causes, last = dict.fromkeys(_CAUSES.get(part.cause, part.cause) for part in report.excess) or [""]
    listed = " and ".join(filter(None, (", ".join(causes), last)))
    verb = "cost" if causes else "costs"
    return f"{words}; {listed} {verb} {format_bytes(fullest - report.ideal_nbytes)}" if listed else words


def first_lines(report: TreeReport, row_count: int) -> Iterator[str]:
    """Yield the bytes that sharding could save, and above many rows the leaf with the most bytes.

    Args:
        report: The tree.
        row_count: Number of rows of its table.
    """
    if report.avoidable_nbytes:
        yield f"sharding could save {format_bytes(report.avoidable_nbytes)} per device: see print_check"
    sizes = [(row.shard_nbytes or 0, row) for row in report.rows if is_counted(row)]
    if sizes and row_count > _FEW_ROWS:
        nbytes, row = max(sizes, key=itemgetter(0))
        leaf = f"{counted_path(clipped(row.path), 1)} {type_text(row.dtype, row.shape)}"
        yield f"largest leaf: {leaf}, {format_bytes(nbytes)} per device"


_CAUSES = {
    "fully replicated": "replication",
    "replicated over": "replication",
    "device set": "leaves on a part of the devices",
    "no sharding": "missing shardings",
}
"""Names of the causes of bytes beyond an even sharding, where they differ from those in the report."""


def total_lines(report: TreeReport, groups: Iterable[LeafGroup]) -> list[str]:
    """Return the totals of a tree, then its meshes, then the meaning of marks in the rows.

    Args:
        report: The tree.
        groups: The leaves of the rows that are shown.
    """
    deleted = counted(sum(row.is_deleted for row in report.rows), "leaf", "leaves")
    unknown = counted(report.unknown_count, "leaf", "leaves")
    return [
        _elements_words(report),
        *that_apply(
            (report.excess, f"cost on the fullest device: {', '.join(map(_excess_words, report.excess))}")
        ),
        *(f"{place}, not included above" for place in report.elsewhere),
        *that_apply(
            (any(row.is_deleted for row in report.rows), f"deleted: {deleted}"),
            (report.unknown_count, f"not counted: {unknown} of unknown size per device"),
        ),
        *_mesh_lines(report),
        *(unmatched_lines(report.unmatched_axes) if report.unmatched_axes is not None else ()),
        *that_apply(
            (report.shorter_count, shorter_leaves_words(report.shorter_count)),
            (
                any(row.source == "manual" for row in report.rows),
                "manual: all sizes are those of one shard inside shard_map or pmap",
            ),
            (any(row.batched_axes for row in report.rows), "vmap: the shape includes the batched axes"),
            (
                any(group.count > 1 for group in groups),
                f"{TIMES}n: n paths that differ only in their indices; the bytes are the sum",
            ),
        ),
    ]


def unmatched_lines(unmatched: UnmatchedAxes) -> list[str]:
    """Return the logical axis names and the rules that did not match, those with similar names first."""
    left_out = [*map(repr, unmatched.left_out)]
    return that_apply(
        (
            unmatched.without_rule,
            f"logical axes without a rule, replicated: {_names_words(unmatched.without_rule)}",
        ),
        (unmatched.unused_rules, f"rules without a leaf: {_names_words(unmatched.unused_rules)}"),
        (left_out, f"not mesh axes, left out of rules: {_names_words(left_out)}"),
    )


def _names_words(names: Sequence[UnmatchedName | str]) -> str:
    """Return the first names, and the number of the others."""
    ordered = sorted(names, key=lambda name: isinstance(name, str) or not name.similar)
    return some([*map(str, ordered)], _MOST_NAMES_OF_TOTALS)


_Folds: TypeAlias = Sequence[tuple[str, Sequence[object]]]
"""Paths with folded indices, each with its leaves."""


def more_leaves(folds: _Folds) -> Note:
    """Return the number of leaves that are left out."""
    return Note(more(sum(len(leaves) for _, leaves in folds), "leaf", "leaves"), kind="words")


def folds_note(folds: _Folds) -> str:
    """Return what the bytes of a row of several leaves are; empty if there is no such row."""
    is_folded = any(len(leaves) > 1 for _, leaves in folds)
    return "Rows of several leaves show the sum of their bytes." if is_folded else ""


def changed_meshes(report: TreeDiff | ReshardReport) -> list[str]:
    """Return a line about the meshes of each of two trees if they differ."""
    before, after = meshes_words(report.meshes_before), meshes_words(report.meshes_after)
    return [] if before == after else [f"mesh before: {before}", f"mesh after: {after}"]


def meshes_words(meshes: Sequence[TreeMesh]) -> str:
    """Return the meshes and device sets of a tree, each kind once."""
    words = (
        f"{counted(mesh.device_count, 'device', 'devices')} without a mesh"
        if mesh.axes is None
        else mesh_words(mesh.axes)
        for mesh in meshes
    )
    return "; ".join(dict.fromkeys(words)) or "none"


def _elements_words(report: TreeReport) -> str:
    """Return the bytes, the leaves and the elements of a tree, and its leaves that are not arrays."""
    counts = (
        both_memories(report.nbytes, report.host_global_nbytes, report.host_memory_kinds),
        counted(len(report.rows), "leaf", "leaves"),
        _number_words(report.elements, "element"),
        "" if report.parameters is None else _number_words(report.parameters, "parameter"),
    )
    others = other_leaves_words(report.others, report.other_paths) if report.others else ""
    return f"global size {', '.join(filter(None, counts))}{others and f'; not arrays: {others}'}"


def _number_words(number: int | None, noun: str) -> str:
    """Return a large number with its noun."""
    amount = f"more than {LARGEST:.1e}" if number is None else grouped(number)
    return f"{amount} {noun}{'' if number == 1 else 's'}"


def _excess_words(part: ExcessBytes) -> str:
    """Return the bytes of one cause: ``1.0 MiB replicated over data in 3 leaves``."""
    axes = ", ".join(part.axes)
    words = {
        "replicated over": f"replicated over {axes}" if axes else "partly replicated",
        "partial sums": f"partial sums over {axes}" if axes else "partial sums",
        "device set": "on a part of the devices",
        "no sharding": "without a sharding",
    }.get(part.cause, part.cause)
    return f"{format_bytes(part.nbytes)} {words} in {counted(part.leaf_count, 'leaf', 'leaves')}"


def _mesh_lines(report: TreeReport) -> Iterator[str]:
    """Yield the axes and the devices of each mesh, and the number of its leaves if there are several."""
    main = main_mesh(report)
    for index, mesh in enumerate(report.meshes):
        leaves = counted(sum(row.mesh == index for row in report.rows), "leaf", "leaves")
        also = f", {leaves}{', unless noted' if index == main else ''}" if len(report.meshes) > 1 else ""
        yield f"{_mesh_label(index, report)}: {_mesh_words(mesh)}{also}"


def _mesh_words(mesh: TreeMesh) -> str:
    """Return the axes and the devices of a mesh, with axes of size 1 last."""
    # The label of a set without axes has the platform and the ids.
    platform = f"{mesh.platform.upper()} " if mesh.platform and mesh.devices is None else ""
    devices = f"{format_number(mesh.device_count)} {platform}device{'' if mesh.device_count == 1 else 's'}"
    processes = f" of {mesh.process_count} processes" if mesh.process_count > 1 else ""
    return f"{f'{_axes_words(mesh.axes)}, ' if mesh.axes else ''}{devices}{processes}"


def _axes_words(axes: MeshAxes) -> str:
    ones = [name for name, size in axes.shape.items() if size == 1]
    if len(ones) < 2 or len(ones) == len(axes.names):
        return mesh_words(axes)
    large = ", ".join(f"{name}={size}" for name, size in axes.shape.items() if size > 1)
    return f"{large} (of size 1: {', '.join(ones)})"
