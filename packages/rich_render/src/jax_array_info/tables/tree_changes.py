"""Tables for ``TreeDiff`` and ``ReshardReport``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType

from jax_array_info_core import (
    LeafChange,
    ReshardReport,
    ReshardRow,
    Spec,
    TreeDiff,
    TreeMesh,
    TreeRow,
    format_bytes,
)
from jax_array_info_core.layouts.dtypes import type_text
from jax_array_info_core.quantities import counted, format_number
from jax_array_info_core.reports.rows import split_rows

from .. import style
from .columns import folding_table
from .path_cells import PathCell
from .words import mesh_words, reason_words


def tree_diff_table(report: TreeDiff, *, max_rows: int | None = 100) -> RenderableType:
    """Return the table of the leaves that were removed, added or changed, with the bytes before and after.

    Args:
        report: The differences.
        max_rows: Maximum number of leaves. One more row has the number of the others. None shows all.
    """
    title = _title("differences", report.before_name, report.after_name)
    lines = list(map(style.written, _diff_lines(report)))
    if report.is_empty:
        return Group(style.written(f"{title}: none"), *lines)
    table = folding_table(style.written(title), ("leaf", "change", "before", "after"))
    table.caption = "Sizes in the table are per device."
    entries = [
        *((row, "removed", row, None) for row in report.removed),
        *((row, "added", None, row) for row in report.added),
        *((change.after, _fields(change), change.before, change.after) for change in report.changed),
    ]
    shown, rest = split_rows(entries, max_rows)
    for row, change, before, after in shown:
        is_change = before is not None and after is not None
        cells = [
            style.written(*_leaf_lines(leaf, meshes, other if is_change else None))
            for leaf, meshes, other in (
                (before, report.meshes_before, after),
                (after, report.meshes_after, before),
            )
        ]
        table.add_row(PathCell(row.path), change, *cells)
    if rest:
        table.add_row(f"{counted(len(rest), 'more leaf', 'more leaves')}")
    return Group(table, *lines)


def _title(noun: str, before: str | None, after: str | None) -> str:
    if before is None and after is None:
        return noun
    return f"{noun} from {before or 'the first tree'} to {after or 'the second tree'}"


def _fields(change: LeafChange) -> str:
    return "\n".join(field.replace("_", " ") for field in change.fields)


def _leaf_lines(row: TreeRow | None, meshes: Sequence[TreeMesh], other: TreeRow | None) -> Iterator[str]:
    """Yield the facts about a leaf: all of them, or those in which it differs from the other leaf.

    Args:
        row: The leaf; None if the tree does not have it.
        meshes: Meshes of its tree.
        other: The leaf with the same path in the other tree; None for a leaf without one.
    """
    if row is None:
        return
    type_words = type_text(row.dtype, row.shape)
    if other is None or type_words != type_text(other.dtype, other.shape):
        yield type_words
    words, size = sharding_words(row), _size(row)
    if other is None or (row.spec, row.sharding) != (other.spec, other.sharding):
        yield words
    if other is None and row.is_in_host_memory:
        yield f"in {row.memory_kind}"
    if other is not None and (row.is_in_host_memory or other.is_in_host_memory):
        yield f"in {row.memory_kind or 'device memory'}"
    if other is None or size != _size(other):
        yield size


def sharding_words(row: TreeRow) -> str:
    """Return the spec of a leaf, or the class of its sharding, or the reason why there is none."""
    if row.spec is not None:
        return str(row.spec)
    if row.unknown_because is not None:
        return f"unknown: {reason_words(row.unknown_because)}"
    return row.sharding or ("NumPy array" if row.kind == "numpy" else "no sharding")


def _size(row: TreeRow) -> str:
    """Return the bytes per device of a leaf."""
    return "size unknown" if row.shard_nbytes is None else format_bytes(row.shard_nbytes)


def _diff_lines(report: TreeDiff) -> Iterator[str]:
    """Yield the numbers of leaves, the meshes if they differ, and the bytes before and after."""
    numbers = (
        (len(report.removed), "removed"),
        (len(report.added), "added"),
        (len(report.changed), "changed"),
        (report.unchanged_count, "equal"),
    )
    counts = [f"{format_number(count)} {what}" for count, what in numbers if count]
    yield f"leaves: {', '.join(counts) or 'none'}"
    before, after = (_meshes_words(meshes) for meshes in (report.meshes_before, report.meshes_after))
    if before != after:
        yield f"mesh before: {before}"
        yield f"mesh after: {after}"
    yield _change_words("per device", report.device_nbytes_before, report.device_nbytes_after)
    yield _change_words("in total", report.nbytes_before, report.nbytes_after)


def _meshes_words(meshes: Sequence[TreeMesh]) -> str:
    """Return the meshes and device sets of a tree, each kind once."""
    words = [
        mesh_words(mesh.axes)
        if mesh.axes is not None
        else counted(mesh.device_count, "device", "devices") + " without a mesh"
        for mesh in meshes
    ]
    return "; ".join(dict.fromkeys(words)) or "none"


def _change_words(place: str, before: int, after: int) -> str:
    """Return bytes before and after: ``per device: 1.0 GiB before, 3.0 GiB after (2.0 GiB more)``."""
    if before == after:
        return f"{place}: {format_bytes(before)} before and after"
    difference = f"{format_bytes(abs(after - before))} {'more' if after > before else 'less'}"
    return f"{place}: {format_bytes(before)} before, {format_bytes(after)} after ({difference})"


def reshard_table(report: ReshardReport, *, max_rows: int | None = 100) -> RenderableType:
    """Return the table of the leaves that move, those with the most bytes per device first.

    Args:
        report: The traffic.
        max_rows: Maximum number of leaves. One more row has the sums of the others. None shows all.
    """
    title = "bytes to receive" + ("" if report.name is None else f" for {report.name}")
    lines = list(map(style.written, _reshard_lines(report)))
    if not report.rows:
        return Group(style.written(f"{title}: none"), *lines)
    has_processes = bool(report.process_nbytes)
    columns = ("leaf", "before", "after", ">per device", ">in total")
    table = folding_table(style.written(title), (*columns, *([">other processes"] if has_processes else [])))
    ordered = sorted(report.rows, key=lambda row: (-row.device_nbytes, -row.nbytes))
    shown, rest = split_rows(ordered, max_rows)
    for row in shown:
        leaf = PathCell(row.path, type_text(row.dtype, row.shape))
        specs = map(style.written, (_spec_words(row.before), _spec_words(row.after)))
        table.add_row(leaf, *specs, *_numbers(row, has_processes))
    if rest:
        more = counted(len(rest), "more leaf", "more leaves")
        total = format_bytes(sum(row.nbytes for row in rest))
        table.add_row(more, "", "", "", total)
    table.add_section()
    table.add_row("all leaves", "", "", *_numbers(report, has_processes))
    return Group(table, *lines)


def _numbers(row: ReshardRow | ReshardReport, has_processes: bool) -> list[str]:
    numbers = [row.device_nbytes, row.nbytes, *([row.process_nbytes] if has_processes else [])]
    return ["?" if nbytes is None else format_bytes(nbytes) for nbytes in numbers]


def _spec_words(spec: Spec | None) -> str:
    return "no spec" if spec is None else str(spec)


def _reshard_lines(report: ReshardReport) -> Iterator[str]:
    """Yield the meaning of the columns, and the numbers of leaves that are not in the table."""
    if report.rows:
        yield (
            f"per device: on the one of {counted(report.device_count, 'device', 'devices')} "
            "that receives the most"
        )
        if report.process_nbytes == 0:
            yield "from other processes: none"
    if report.unmoved_count:
        yield f"without traffic: {counted(report.unmoved_count, 'leaf', 'leaves')}"
    if report.skipped_count:
        leaves = counted(report.skipped_count, "leaf", "leaves")
        yield f"left out: {leaves}, deleted or of unknown size or sharding"
