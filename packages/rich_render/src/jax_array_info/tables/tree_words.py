"""Words for the leaves of a tree: specs, bytes, replicas and notes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from jax_array_info_core import (
    LeafStatistics,
    Spec,
    TreeReport,
    TreeRow,
    UnevenAxis,
    format_bytes,
)
from jax_array_info_core.layouts.grid import copies_words
from jax_array_info_core.layouts.spec import effective_spec
from jax_array_info_core.quantities import counted, format_devices, format_number
from jax_array_info_core.reports.tree_rows import LeafSums, TreeTableRow

from .. import style
from .words import reason_words

_MOST_NAMES = 3
"""Maximum number of other paths of an array that are listed."""
_READABLE = 10**18


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a cell, with its style."""

    text: str
    look: str = ""
    is_path: bool = False
    """Whether the line may be broken only after a ``/`` and inside long keys."""


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
    """Return the bytes per device of a row. Empty for an array that counts at another path."""
    if row.is_prefix:
        return sums_lines(row.sums, marks)
    leaf, sums = row.leaves[0], row.sums
    if leaf.same_as is not None or leaf.is_deleted:
        return []
    if sums.unknown_count:
        return [Line("?")]
    return [Line(format_bytes(sums.nbytes + sums.host_nbytes + sums.numpy_nbytes))]


def sums_lines(sums: LeafSums, marks: style.Marks) -> list[Line]:
    """Return bytes per device, those in host memory apart."""
    bound = f"{marks.at_most} " if sums.is_bound else ""
    lines = [f"{bound}{format_bytes(sums.nbytes)}"]
    if sums.host_nbytes:
        lines.append(f"+ {format_bytes(sums.host_nbytes)} host")
    if sums.numpy_nbytes:
        lines.append(f"+ {format_bytes(sums.numpy_nbytes)} NumPy")
    return [Line(text) for text in lines]


def shard_words(leaf: TreeRow) -> str:
    """Return the shape of a leaf's shards: ``[512,28672]``."""
    if leaf.mesh is None or leaf.shard_shape is None:
        return ""
    return f"[{','.join(map(str, leaf.shard_shape))}]"


def replicas_words(leaf: TreeRow, report: TreeReport, noun: str = "") -> str:
    """Return the number of replicas and the noun, marked if every device of the leaf's mesh has one."""
    if leaf.mesh is None or leaf.replicas < 2:
        return ""
    everywhere = leaf.replicas == report.meshes[leaf.mesh].device_count
    return f"{format_number(leaf.replicas)}{noun}{' (all)' if everywhere else ''}"


def note_lines(row: TreeTableRow, report: TreeReport) -> Iterator[Line]:
    """Yield what is unusual about the leaves of a row."""
    if row.is_prefix:
        yield from sums_notes(row.sums)
        return
    leaf = row.leaves[0]
    if leaf.statistics is not None and not leaf.statistics.is_finite:
        yield Line(not_finite_words(leaf.statistics), style.WARNING)
    if leaf.is_deleted:
        yield Line("deleted", style.WARNING)
    for axis in leaf.uneven:
        yield Line(uneven_words(axis), style.WARNING)
    yield from map(Line, _sharding_notes(leaf, report))
    if leaf.is_key:
        yield Line("PRNG keys")
    if leaf.weak_type:
        yield Line("weakly typed")
    if leaf.kind == "numpy":
        yield Line("NumPy array")
    if leaf.is_in_host_memory:
        yield Line(f"in {leaf.memory_kind}")
    if row.same_as:
        listed = row.same_as[:_MOST_NAMES]
        more = f" and {len(row.same_as) - len(listed)} more" if len(row.same_as) > len(listed) else ""
        yield Line(f"same as {', '.join(listed)}{more}")


def sums_notes(sums: LeafSums) -> Iterator[Line]:
    """Yield what is unusual about leaves that are summed."""
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


def not_finite_words(statistics: LeafStatistics) -> str:
    """Return the numbers of elements that are NaN or infinite."""
    counts = ((statistics.nans, "NaN"), (statistics.infinities, "infinite"))
    return ", ".join(f"{grouped(count)} {what}" for count, what in counts if count)


def grouped(number: int) -> str:
    """Return an integer with commas: ``68,976,648,192``."""
    return f"{number:,}" if abs(number) < _READABLE else format_number(number)


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
