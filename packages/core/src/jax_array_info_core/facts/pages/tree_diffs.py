"""The page of the differences between two trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...base.quantities import counted, format_bytes, format_number
from ...base.text import that_apply
from ...geometry.layouts.dtypes import type_text
from ...geometry.layouts.spec import effective_spec
from ..reports import Change, TreeDiff, TreeMesh, TreeRow
from ..reports.changes import ChangedField, rule_lines
from .blocks import Block, Column, Row, Sentence, Table, counted_path, limited, said
from .folds import folded
from .tree_words import changed_meshes, folds_note, more_leaves
from .words import change_words, reason_words, rule_results

TABLES = {
    "differences": (
        Column("leaf", "path", is_kept=True),
        Column("change", is_kept=True, meaning="removed, added, or the properties that differ"),
        Column("before", before="before: ", is_kept=True, meaning="what differs, and the bytes per device"),
        Column("after", before="after: ", is_kept=True, meaning="what differs, and the bytes per device"),
    ),
}
"""Columns of each table, by its title."""


def tree_diff_page(report: TreeDiff) -> Iterator[Block]:
    """Yield the answer, then the leaves that were removed, added or changed, with the bytes before and after.

    Leaves that differ only in the indices of their paths share a row. Specs are shown without mesh axes of
    size 1.

    Args:
        report: The differences.
    """
    title = "differences"
    if report.before_name or report.after_name:
        before, after = report.before_name or "the first tree", report.after_name or "the second tree"
        title = f"differences from {before} to {after}"
    yield from rule_results(rule_lines(report.rules))
    yield Sentence(f"{_answer(report)}; values are not compared", "answer", hang=0)
    if not report.is_empty:
        yield _differences(report, title)
    elif title != "differences":
        yield Sentence(title, hang=0)
    yield from said(_lines(report), hang=0)


def _answer(report: TreeDiff) -> str:
    """Return the numbers of leaves that were removed, added and changed."""
    counts = _counts(report)
    differing = sum(counts.values())
    if not differing:
        return "no differences in shape, dtype, spec or memory kind"
    words = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    total = counted(differing + report.unchanged_count, "leaf differs", "leaves differ")
    return f"{differing} of {total}: {words}"


def _counts(report: TreeDiff) -> dict[str, int]:
    return {"removed": len(report.removed), "added": len(report.added), "changed": len(report.changed)}


class _Change(NamedTuple):
    """A leaf that was removed, added or changed."""

    path: str
    before: TreeRow | None
    after: TreeRow | None
    fields: Sequence[ChangedField] = ()
    """Fields that differ; empty if it is in one tree only."""
    types: tuple[str, str] = ("", "")
    """Types of its mesh axes before and after, if they differ."""


def _differences(report: TreeDiff, title: str) -> Table:
    """Return the table of the leaves that were removed, added or changed."""
    changes = [
        *(_Change(row.path, row, None) for row in report.removed),
        *(_Change(row.path, None, row) for row in report.added),
        *(
            _Change(
                change.after.path,
                change.before,
                change.after,
                change.fields,
                (change.before_types, change.after_types),
            )
            for change in report.changed
        ),
    ]

    def cells(change: _Change, count: int = 1) -> tuple[tuple[str, ...], ...]:
        """Return the lines of the cells of equal changes: their kinds, the leaf before and after."""
        old, new, fields = change.before, change.after, change.fields
        kind = that_apply((new is None, "removed"), (old is None, "added"))
        has_size = old is None or new is None or _size(old) != _size(new)
        sides = zip((old, new), (report.meshes_before, report.meshes_after), change.types, strict=True)
        return (
            (*kind, *(field.replace("_", " ") for field in fields)),
            *(
                tuple(_leaf_lines(row, meshes, fields, types, count if has_size else 0)) if row else ()
                for row, meshes, types in sides
            ),
        )

    def row(fold: tuple[str, list[_Change]]) -> Row:
        path, alike = fold
        kinds, before, after = cells(alike[0], len(alike))
        return {"leaf": counted_path(path, len(alike)), "change": kinds, "before": before, "after": after}

    def nbytes(fold: tuple[str, list[_Change]]) -> int:
        sides = ((side for side in (change.before, change.after) if side) for change in fold[1])
        return sum(max(side.shard_nbytes or 0 for side in both) for both in sides)

    folds = folded(changes, cells)
    rows = limited(folds, row, lambda others: {"leaf": more_leaves(others)}, size=nbytes)
    return Table(
        title,
        TABLES["differences"],
        [rows],
        groupings=[
            [["leaf"], ["change"], ["before"], ["after"]],
            [["leaf", "change"], ["before"], ["after"]],
            [["leaf", "change", "before", "after"]],
        ],
        caption="\n".join(filter(None, ("Sizes in the table are per device.", folds_note(folds)))),
        breaks="words",
    )


def _leaf_lines(
    row: TreeRow, meshes: Sequence[TreeMesh], fields: Sequence[ChangedField], types: str, count: int
) -> list[str]:
    """Return the facts about a leaf.

    Args:
        row: The leaf.
        meshes: Meshes of its tree.
        fields: Fields in which it differs from the other tree; empty for a leaf of one tree only.
        types: Types of its mesh axes, if they differ.
        count: Number of leaves whose bytes per device to include.
    """
    is_one_sided = not fields
    in_memory = f"in {row.memory_kind}" if row.is_in_host_memory else "in device memory" if fields else ""
    return that_apply(
        (is_one_sided or "shape" in fields or "dtype" in fields, type_text(row.dtype, row.shape)),
        (is_one_sided or "spec" in fields, _sharding_words(row, meshes)),
        (types, types),
        (in_memory and (is_one_sided or "memory_kind" in fields), in_memory),
        (count, _size(row, count)),
    )


def _sharding_words(row: TreeRow, meshes: Sequence[TreeMesh]) -> str:
    """Return the spec of a leaf; without one, the class of its sharding with its shards and replicas."""
    if row.spec is not None:
        axes = None if row.mesh is None else meshes[row.mesh].axes
        return str(row.spec if axes is None else effective_spec(row.spec, axes.shape))
    if row.unknown_because is not None:
        return f"unknown: {reason_words(row.unknown_because)}"
    is_known = row.sharding is not None
    shards = ",".join(map(str, row.shard_shape or ()))
    return ", ".join(
        that_apply(
            (True, row.sharding_text),
            (is_known and row.shard_shape not in (None, row.shape), f"shards [{shards}]"),
            (is_known and row.replicas > 1, f"{format_number(row.replicas)} replicas"),
        )
    )


def _size(row: TreeRow, count: int = 1) -> str:
    """Return the bytes per device of a number of equal leaves."""
    return "size unknown" if row.shard_nbytes is None else format_bytes(count * row.shard_nbytes)


def _lines(report: TreeDiff) -> list[str]:
    """Return the numbers of leaves, the meshes if they differ, and the bytes."""
    numbers = {**_counts(report), "equal": report.unchanged_count}
    counts = [(count, what) for what, count in numbers.items() if count]
    words = [f"{counted(count, 'leaf', 'leaves')} {what}" for count, what in counts[:1]]
    words += [f"{format_number(count)} {what}" for count, what in counts[1:]]
    on_device = Change(before=report.device_nbytes_before, after=report.device_nbytes_after)
    whole = Change(before=report.nbytes_before, after=report.nbytes_after)
    return [
        f"shape, dtype, spec, memory kind: {', '.join(words) or 'no leaves'}",
        *changed_meshes(report),
        f"per device: {change_words(on_device)}",
        f"global size: {change_words(whole)}",
    ]
