"""Words for the totals and the meshes of a tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from jax_array_info_core import (
    ExcessBytes,
    MeshAxes,
    TreeMesh,
    TreeReport,
    UnmatchedAxes,
    UnmatchedName,
    format_bytes,
)
from jax_array_info_core.quantities import counted, format_number
from jax_array_info_core.reports.tree_rows import TreeTableRow

from .. import style
from .tree_words import grouped, leaves_words, main_mesh, mesh_label
from .words import mesh_words

_MOST_NAMES = 6
"""Maximum number of logical axis names in a line."""


def total_lines(report: TreeReport, rows: Iterable[TreeTableRow], marks: style.Marks) -> Iterator[str]:
    """Yield the totals of a tree, then its meshes, then the meaning of marks in the rows."""
    yield _elements_words(report)
    yield _bytes_words(report)
    if report.excess:
        parts = ", ".join(map(_excess_words, report.excess))
        yield f"fullest minus ideal: {_difference(report)} ({parts})"
    if report.avoidable_nbytes:
        yield f"avoidable: {format_bytes(report.avoidable_nbytes)} per device"
    yield from _host_words(report)
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
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(map(str, ordered[:_MOST_NAMES])) + more


def _elements_words(report: TreeReport) -> str:
    words = [leaves_words(len(report.rows)), _counted_number(report.elements, "element")]
    if report.parameters is not None:
        words.append(_counted_number(report.parameters, "parameter"))
    if report.others:
        words.append(counted(report.others, "leaf that is not an array", "leaves that are not arrays"))
    return ", ".join(words)


def _counted_number(number: int, noun: str) -> str:
    """Return a large number with its noun."""
    return f"{grouped(number)} {noun}{'' if number == 1 else 's'}"


def _bytes_words(report: TreeReport) -> str:
    words = f"{format_bytes(report.nbytes)} in total"
    if report.device_count == 1 and not report.excess:
        return words
    per_device = (
        (report.fullest_device_nbytes, "fullest"),
        (report.emptiest_device_nbytes, "emptiest"),
        (report.ideal_nbytes, "ideal"),
    )
    parts = ", ".join(f"{what} {format_bytes(nbytes)}" for nbytes, what in per_device)
    return f"{words}; per device: {parts}"


def _difference(report: TreeReport) -> str:
    return format_bytes(report.fullest_device_nbytes - report.ideal_nbytes)


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


def _host_words(report: TreeReport) -> Iterator[str]:
    """Yield the bytes in host memory."""
    if report.host_nbytes:
        kinds = {row.memory_kind: None for row in report.rows if row.is_in_host_memory}
        nbytes = format_bytes(report.host_nbytes)
        yield f"in {', '.join(map(str, kinds))}: {nbytes} per device, not included above"
    if report.numpy_nbytes:
        yield f"in NumPy arrays: {format_bytes(report.numpy_nbytes)}, not included above"


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
