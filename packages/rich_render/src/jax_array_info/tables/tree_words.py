"""Words and totals of tables of trees."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from jax_array_info.tables.tree_rows import LeafSums, TreeTableRow
from jax_array_info_core import format_bytes
from jax_array_info_core.layouts import MeshAxes, Spec, UnevenAxis
from jax_array_info_core.layouts.grid import copies_words
from jax_array_info_core.layouts.spec import effective_spec
from jax_array_info_core.quantities import LARGEST, counted, format_devices, format_number, grouped
from jax_array_info_core.reports import (
    ExcessBytes,
    TreeMesh,
    TreeReport,
    TreeRow,
    UnmatchedAxes,
    UnmatchedName,
)
from jax_array_info_core.reports.tree import both_memories, other_leaves_words, shorter_leaves_words

from .. import style
from .words import mesh_words, reason_words

_MOST_NAMES = 3
"""Maximum number of other paths of an array that are listed."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a cell, with its style."""

    text: str
    look: str = ""
    keys: Callable[[str], Sequence[str]] | None = None
    """Function that returns the keys of a path, between which the line may be broken, and inside long ones
    only; None for words."""


def title_words(report: TreeReport) -> str:
    """Return the name and the type of a tree: ``state: dict``."""
    return report.type_name if report.name is None else f"{report.name}: {report.type_name}"


def path_words(row: TreeTableRow, marks: style.Marks) -> str:
    """Return the path of a row, with the number of leaves or prefixes that differ only in its indices."""
    path = row.path or "(root)"
    return f"{path} {marks.times}{row.count}" if row.count > 1 else path


def leaves_words(count: int) -> str:
    """Return a number of leaves."""
    return counted(count, "leaf", "leaves")


def spec_of(leaf: TreeRow, report: TreeReport) -> Spec | None:
    """Return the spec of a leaf without mesh axes of size 1 and without trailing entries of None."""
    return None if leaf.spec is None else effective_spec(leaf.spec, sizes_of(leaf, report))


def sizes_of(leaf: TreeRow, report: TreeReport) -> dict[str, int]:
    """Return the sizes of the mesh axes of a leaf by name; empty without a mesh."""
    axes = report.meshes[leaf.mesh].axes if leaf.mesh is not None else None
    return axes.shape if axes else {}


def spec_words(leaf: TreeRow, report: TreeReport) -> str:
    """Return the spec of a leaf, else its sharding or its logical axes."""
    spec = spec_of(leaf, report)
    if spec is not None:
        return str(spec)
    if leaf.sharding is not None:
        return leaf.sharding
    if leaf.logical is not None:
        return f"logical {leaf.logical}"
    return "no sharding" if leaf.kind in ("abstract", "planned") and leaf.unknown_because is None else ""


def bytes_lines(row: TreeTableRow, marks: style.Marks) -> list[Line]:
    """Return the bytes per device of a row. Empty for an array that counts at another path or elsewhere."""
    if row.is_prefix:
        return sums_lines(row.sums, marks)
    leaf, sums = row.leaves[0], row.sums
    if leaf.same_as is not None or leaf.is_deleted:
        return []
    if sums.unknown_count:
        return [Line("?")]
    return [] if leaf.elsewhere else [Line(format_bytes(sums.nbytes + sums.host_nbytes))]


def sums_lines(sums: LeafSums, marks: style.Marks) -> list[Line]:
    """Return bytes per device, those in host memory apart."""
    bound = f"{marks.at_most} " if sums.is_bound else ""
    lines = [f"{bound}{format_bytes(sums.nbytes)}"]
    if sums.host_nbytes:
        lines.append(f"+ {format_bytes(sums.host_nbytes)} host")
    return [Line(text) for text in lines]


def shard_words(leaf: TreeRow) -> str:
    """Return the shape of a leaf's shards: ``[512,28672]``."""
    if leaf.mesh is None or leaf.shard_shape is None:
        return ""
    return f"[{','.join(map(str, leaf.shard_shape))}]"


def replicas_words(leaf: TreeRow, report: TreeReport, before: str = "") -> str:
    """Return the mesh axes over which a leaf is replicated, and the number of replicas: ``data (4)``.

    Args:
        leaf: The leaf.
        report: Its tree.
        before: Text before the mesh axes. Empty in a column with this head.
    """
    if leaf.mesh is None or leaf.replicas < 2:
        return ""
    names = [name for entry in (leaf.spec.axes if leaf.spec else ()) for name in entry]
    unreduced = leaf.spec.unreduced if leaf.spec else ()
    over = [
        name
        for name, size in sizes_of(leaf, report).items()
        if size > 1 and name not in names and name not in unreduced
    ]
    number = format_number(leaf.replicas)
    if leaf.spec is None or leaf.spec.unconstrained or not over:
        return f"{number} replicas"
    return f"{before}{', '.join(over)} ({number}{' replicas' if before else ''})"


def note_lines(row: TreeTableRow, report: TreeReport) -> Iterator[Line]:
    """Yield what is unusual about the leaves of a row."""
    if row.is_prefix:
        yield from sums_notes(row.sums)
        return
    leaf = row.leaves[0]
    if leaf.statistics is not None and not leaf.statistics.is_finite:
        yield Line(leaf.statistics.not_finite_words, style.WARNING)
    if leaf.is_deleted:
        yield Line("deleted", style.WARNING)
    for axis in leaf.uneven:
        yield Line(uneven_words(axis), style.WARNING)
    yield from map(Line, _sharding_notes(leaf, report))
    if leaf.is_key:
        yield Line("PRNG keys")
    if leaf.weak_type:
        yield Line("weakly typed")
    if leaf.elsewhere:
        yield Line(leaf.elsewhere if leaf.same_as else str(row.sums.elsewhere[0]))
    if leaf.is_in_host_memory:
        yield Line(f"in {leaf.memory_kind}")
    if row.same_as:
        listed = row.same_as[:_MOST_NAMES]
        more = f" and {len(row.same_as) - len(listed)} more" if len(row.same_as) > len(listed) else ""
        yield Line(f"same as {', '.join(listed)}{more}")


def sums_notes(sums: LeafSums) -> Iterator[Line]:
    """Yield what is unusual about leaves that are summed."""
    yield from (Line(str(place)) for place in sums.elsewhere)
    if sums.infinite_count:
        yield Line(f"NaN or infinities in {leaves_words(sums.infinite_count)}", style.WARNING)
    if sums.deleted_count:
        yield Line(f"{sums.deleted_count} deleted", style.WARNING)
    if sums.padded_count:
        yield Line(f"{sums.padded_count} padded", style.WARNING)
    if sums.unknown_count:
        yield Line(f"{leaves_words(sums.unknown_count)} of unknown size")


def _sharding_notes(leaf: TreeRow, report: TreeReport) -> Iterator[str]:
    """Yield what is unusual about the sharding of a leaf."""
    sizes = sizes_of(leaf, report)
    names = [name for entry in (leaf.spec.axes if leaf.spec else ()) for name in entry]
    if names and all(sizes.get(name) == 1 for name in names):
        yield f"{leaf.spec}: mesh {'axis' if len(names) == 1 else 'axes'} of size 1"
    if leaf.mesh is not None and leaf.mesh != main_mesh(report):
        yield f"on {mesh_label(leaf.mesh, report)}"
    if leaf.partial_sums > 1:
        yield copies_words(leaf.unreduced, leaf.partial_sums, 1)
    if leaf.batched_axes:
        noun = "axis" if len(leaf.batched_axes) == 1 else "axes"
        yield f"vmap: {noun} {', '.join(map(str, leaf.batched_axes))}"
    if leaf.unknown_because:
        yield f"sharding unknown: {reason_words(leaf.unknown_because)}"


def uneven_words(axis: UnevenAxis) -> str:
    """Return the padding of an array axis: ``axis 0, 17 % 8 = 1: padded to 24``."""
    dim, count = axis.shape[axis.axis], axis.count
    padded = format_number(axis.padded)
    return f"axis {axis.axis}, {dim} % {format_number(count)} = {dim % count}: padded to {padded}"


def main_mesh(report: TreeReport) -> int | None:
    """Return the index of the mesh of most leaves; None if no leaf has one."""
    counts = Counter(row.mesh for row in report.rows if row.mesh is not None)
    return max(counts, key=lambda index: (counts[index], -index), default=None)


def mesh_label(index: int, report: TreeReport) -> str:
    """Return the label of a mesh or a device set: ``mesh 2``, or ``mesh`` if there is no other; ``CPU 5``."""
    mesh = report.meshes[index]
    if mesh.devices is not None:
        return format_devices(mesh.platform, mesh.devices)
    kind = "mesh" if mesh.axes else "device set"
    return kind if len(report.meshes) == 1 else f"{kind} {index + 1}"


def number_words(number: float | None) -> str:
    """Return a statistic with 4 digits; empty if there is none."""
    if number is None:
        return ""
    return f"{number:.4g}" if math.isfinite(number) else str(number)


_MOST_NAMES_OF_TOTALS = 6
"""Maximum number of logical axis names in a line."""


def total_lines(report: TreeReport, rows: Iterable[TreeTableRow], marks: style.Marks) -> Iterator[str]:
    """Yield the totals of a tree, then its meshes, then the meaning of marks in the rows."""
    yield _elements_words(report)
    if report.excess:
        yield f"cost on the fullest device: {', '.join(map(_excess_words, report.excess))}"
    if report.avoidable_nbytes:
        yield f"sharding could save {format_bytes(report.avoidable_nbytes)} per device: see print_check"
    yield from (f"{place}, not included above" for place in report.elsewhere)
    deleted = sum(row.is_deleted for row in report.rows)
    if deleted:
        yield f"deleted: {leaves_words(deleted)}"
    if report.unknown_count:
        yield f"not counted: {leaves_words(report.unknown_count)} of unknown size per device"
    main = main_mesh(report)
    for index, mesh in enumerate(report.meshes):
        leaves = sum(row.mesh == index for row in report.rows)
        also = f", {leaves_words(leaves)}" if len(report.meshes) > 1 else ""
        unless = ", unless noted" if len(report.meshes) > 1 and index == main else ""
        yield f"{mesh_label(index, report)}: {_mesh_words(mesh)}{also}{unless}"
    if report.unmatched_axes is not None:
        yield from unmatched_lines(report.unmatched_axes)
    if report.shorter_count:
        yield shorter_leaves_words(report.shorter_count)
    if any(row.source == "manual" for row in report.rows):
        yield "manual: all sizes are those of one shard inside shard_map or pmap"
    if any(row.batched_axes for row in report.rows):
        yield "vmap: the shape includes the batched axes"
    if any(row.count > 1 for row in rows):
        yield f"{marks.times}n: n paths that differ only in their indices; the bytes are the sum"


def unmatched_lines(unmatched: UnmatchedAxes) -> Iterator[str]:
    """Yield the logical axis names and the rules that did not match, those with similar names first."""
    if unmatched.without_rule:
        yield f"logical axes without a rule, replicated: {_names_words(unmatched.without_rule)}"
    if unmatched.unused_rules:
        yield f"rules without a leaf: {_names_words(unmatched.unused_rules)}"
    if unmatched.left_out:
        yield f"not mesh axes, left out of rules: {_names_words(list(map(repr, unmatched.left_out)))}"


def _names_words(names: Sequence[UnmatchedName | str]) -> str:
    """Return the first names, and the number of the others."""
    ordered = sorted(names, key=lambda name: isinstance(name, str) or not name.similar)
    more = f" and {len(names) - _MOST_NAMES_OF_TOTALS} more" if len(names) > _MOST_NAMES_OF_TOTALS else ""
    return ", ".join(map(str, ordered[:_MOST_NAMES_OF_TOTALS])) + more


def _elements_words(report: TreeReport) -> str:
    nbytes = both_memories(report.nbytes, report.host_global_nbytes, report.host_memory_kinds)
    words = [f"global size {nbytes}", leaves_words(len(report.rows))]
    words.append(_counted_number(report.elements, "element"))
    if report.parameters is not None:
        words.append(_counted_number(report.parameters, "parameter"))
    text = ", ".join(words)
    if not report.others:
        return text
    return f"{text}; not arrays: {other_leaves_words(report.others, report.other_paths)}"


def _counted_number(number: int | None, noun: str) -> str:
    """Return a large number with its noun."""
    if number is None:
        return f"more than {LARGEST:.1e} {noun}s"
    return f"{grouped(number)} {noun}{'' if number == 1 else 's'}"


def answer_words(report: TreeReport) -> str:
    """Return the bytes per device, those of an even sharding, and the cost of replication and padding."""
    found = [row.path for row in report.rows if row.statistics and not row.statistics.is_finite]
    infinite = f"NaN or infinities in {leaves_words(len(found))} (JAI110); " if found else ""
    if not report.rows:
        return "the tree has no arrays"
    fullest, most_hosted, kinds = report.fullest_device_nbytes, report.host_nbytes, report.host_memory_kinds
    nbytes = both_memories(fullest, most_hosted, kinds)
    if report.device_count == 1 and not report.excess:
        return f"{infinite}{nbytes} on {counted(report.device_count, 'device', 'devices')}"
    if report.emptiest_device_nbytes != fullest:
        least = format_bytes(report.emptiest_device_nbytes)
        nbytes = f"{format_bytes(fullest)} on the fullest, {least} on the emptiest device"
        nbytes += f", {format_bytes(most_hosted)} in {', '.join(kinds)}" if most_hosted else ""
    words = f"{infinite}per device {nbytes}; evenly sharded {format_bytes(report.ideal_nbytes)}"
    cost = report.fullest_device_nbytes - report.ideal_nbytes
    causes = dict.fromkeys(_CAUSES.get(part.cause, part.cause) for part in report.excess)
    if not causes:
        return words
    verb = "costs" if len(causes) == 1 else "cost"
    return f"{words}; {_listed(list(causes))} {verb} {format_bytes(cost)}"


_CAUSES = {
    "fully replicated": "replication",
    "replicated over": "replication",
    "device set": "uneven placement",
    "no sharding": "missing shardings",
}
"""Names of the causes of bytes beyond an even sharding, where they differ from those in the report."""


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _excess_words(part: ExcessBytes) -> str:
    """Return the bytes of one cause: ``1.0 MiB replicated over data in 3 leaves``."""
    words: str = part.cause
    if part.cause == "replicated over":
        words = f"replicated over {', '.join(part.axes)}" if part.axes else "partly replicated"
    elif part.cause == "partial sums" and part.axes:
        words = f"partial sums over {', '.join(part.axes)}"
    elif part.cause == "device set":
        words = "on a part of the devices"
    elif part.cause == "no sharding":
        words = "without a sharding"
    return f"{format_bytes(part.nbytes)} {words} in {leaves_words(part.leaf_count)}"


def _mesh_words(mesh: TreeMesh) -> str:
    """Return the axes and the devices of a mesh, with axes of size 1 last."""
    # The label of a set without axes has the platform and the ids.
    platform = f"{mesh.platform.upper()} " if mesh.platform and mesh.devices is None else ""
    devices = f"{format_number(mesh.device_count)} {platform}device{'' if mesh.device_count == 1 else 's'}"
    if mesh.process_count > 1:
        devices += f" of {mesh.process_count} processes"
    return f"{_axes_words(mesh.axes)}, {devices}" if mesh.axes else devices


def _axes_words(axes: MeshAxes) -> str:
    ones = [name for name, size in axes.shape.items() if size == 1]
    if len(ones) < 2 or len(ones) == len(axes.names):
        return mesh_words(axes)
    large = ", ".join(f"{name}={size}" for name, size in axes.shape.items() if size > 1)
    return f"{large} (of size 1: {', '.join(ones)})"
