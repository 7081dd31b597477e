"""Columns of a table of leaves, from all of them to those that fit a narrow console."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from jax_array_info_core import LeafStatistics, TreeReport, TreeRow, format_bytes
from jax_array_info_core.layouts.dtypes import type_text
from jax_array_info_core.reports.tree_rows import LeafSums, TreeTableRow, TreeTableRows

from .. import style
from .tree_words import (
    Line,
    bytes_lines,
    grouped,
    leaves_words,
    note_lines,
    number_words,
    path_words,
    replicas_words,
    shard_words,
    spec_words,
    sums_lines,
    sums_notes,
)

_Lines = Callable[[TreeTableRow], Sequence[Line]]


@dataclass(frozen=True, slots=True)
class TreeColumn:
    """A column of a table of leaves."""

    name: str
    """Head of the column."""

    lines: _Lines
    """Function that returns the lines of a row's cell."""

    folded: _Lines
    """Function that returns the lines that the cell adds to another column."""

    rest: Callable[[LeafSums], Sequence[Line]]
    """Function that returns the lines of the cell for the sums of all further rows."""

    is_number: bool = False
    """Whether to align the column right."""

    is_kept: bool = False
    """Whether to show the column without content."""


def tree_columns(report: TreeReport, rows: TreeTableRows, marks: style.Marks) -> list[TreeColumn]:
    """Return the columns that have any content, with the path first.

    Args:
        report: The tree.
        rows: The rows to show.
        marks: Characters of the console.
    """

    def has_content(column: TreeColumn) -> bool:
        has_rest = rows.rest is not None and bool(column.rest(rows.rest))
        return column.is_kept or has_rest or any(map(column.lines, rows.rows))

    return list(filter(has_content, (*_all_columns(report, marks), _avoidable_column())))


def _all_columns(report: TreeReport, marks: style.Marks) -> list[TreeColumn]:
    """Return the columns that a tree can have, but for avoidable bytes."""
    leaves = report.rows
    is_distributed = any(mesh.device_count > 1 for mesh in report.meshes)
    columns = [
        _path_column(report, marks),
        _column("array", lambda leaf: type_text(leaf.dtype, leaf.shape), whole=leaves_words),
    ]
    if is_distributed:
        columns.append(_column("shard", shard_words, "shard "))
    if is_distributed or any(leaf.logical for leaf in leaves):
        columns.append(_column("spec", lambda leaf: spec_words(leaf, report)))
    if any(leaf.kind == "tracer" or leaf.source in ("type", "compiler", "manual") for leaf in leaves):
        columns.append(_column("source", lambda leaf: leaf.source, "source: "))
    if any(leaf.statistics for leaf in leaves):
        columns += map(_statistic_column, _STATISTICS)
    columns.append(_bytes_column(marks))
    if any(leaf.replicas > 1 for leaf in leaves):
        columns.append(_replicas_column(report))
    return columns


def narrower(columns: Sequence[TreeColumn], *, shows_waste: bool) -> Iterator[list[TreeColumn]]:
    """Yield the columns, then fewer and fewer: each time, one is folded into another or left out.

    Args:
        columns: The columns.
        shows_waste: Whether to keep avoidable bytes.
    """
    columns = list(columns)
    yield columns
    for names, into in (
        (["source"], "array"),
        ([] if shows_waste else ["avoidable"], None),
        (["shard"], None),
        (["spec"], "array"),
        (["replicas"], "array"),
        (_STATISTICS, "path"),
        (["array"], "path"),
        (["avoidable"], "per device"),
    ):
        if any(column.name in names for column in columns):
            columns = _without(columns, names, into)
            yield columns


def _without(columns: Sequence[TreeColumn], names: Collection[str], into: str | None) -> list[TreeColumn]:
    """Return columns with some of them folded into another; without them if ``into`` is None."""
    given = [column for column in columns if column.name in names]

    def below(lines: Sequence[Line], more: Sequence[Line]) -> Sequence[Line]:
        if into != "path":
            return [*lines, *more]
        # One line between a path and the notes below it.
        return [
            *lines[:1],
            *(Line("  " + ", ".join(line.text for line in more)) for _ in more[:1]),
            *lines[1:],
        ]

    def taking(column: TreeColumn) -> TreeColumn:
        def folded(row: TreeTableRow) -> list[Line]:
            return [line for one in given for line in one.folded(row)]

        def rest(sums: LeafSums) -> list[Line]:
            return [line for one in given for line in one.rest(sums)]

        return replace(
            column,
            lines=lambda row: below(column.lines(row), folded(row)),
            folded=lambda row: [*column.folded(row), *folded(row)],
            rest=lambda sums: below(column.rest(sums), rest(sums)),
        )

    return [taking(column) if column.name == into else column for column in columns if column not in given]


def _column(
    name: str,
    words: Callable[[TreeRow], str],
    before: str = "",
    *,
    whole: Callable[[int], str] = lambda _: "",
    is_number: bool = False,
) -> TreeColumn:
    """Return a column of a property of leaves.

    Args:
        name: Head of the column.
        words: Function that returns the text for a leaf.
        before: Text before it in another column.
        whole: Function that returns the text for a prefix with a number of leaves.
        is_number: Whether to align the column right.
    """

    def text(row: TreeTableRow) -> str:
        return whole(row.sums.leaf_count) if row.is_prefix else words(row.leaves[0])

    def lines(row: TreeTableRow) -> list[Line]:
        return [Line(found)] if (found := text(row)) else []

    def folded(row: TreeTableRow) -> list[Line]:
        return [Line(before + line.text) for line in lines(row)]

    return TreeColumn(name, lines, folded, lambda _: [], is_number)


def _path_column(report: TreeReport, marks: style.Marks) -> TreeColumn:
    def lines(row: TreeTableRow) -> list[Line]:
        notes = (replace(line, text=f"  {line.text}") for line in note_lines(row, report))
        return [Line(path_words(row, marks), is_path=True), *notes]

    def rest(sums: LeafSums) -> list[Line]:
        return [
            Line(f"{sums.leaf_count} more lea{'f' if sums.leaf_count == 1 else 'ves'}"),
            *(replace(line, text=f"  {line.text}") for line in sums_notes(sums)),
        ]

    return TreeColumn("path", lines, lines, rest, is_kept=True)


def _bytes_column(marks: style.Marks) -> TreeColumn:
    def lines(row: TreeTableRow) -> Sequence[Line]:
        return bytes_lines(row, marks)

    return TreeColumn(
        "per device", lines, lines, lambda sums: sums_lines(sums, marks), is_number=True, is_kept=True
    )


def _replicas_column(report: TreeReport) -> TreeColumn:
    column = _column("replicas", lambda leaf: replicas_words(leaf, report), is_number=True)
    return replace(
        column,
        folded=lambda row: [
            Line(replicas_words(row.leaves[0], report, " replicas")) for _ in column.lines(row)
        ],
    )


def _avoidable_column() -> TreeColumn:
    def lines(sums: LeafSums, after: str = "") -> list[Line]:
        nbytes = sums.avoidable_nbytes
        return [Line(f"{format_bytes(nbytes)}{after}", style.WARNING)] if nbytes else []

    return TreeColumn(
        "avoidable",
        lambda row: lines(row.sums),
        lambda row: lines(row.sums, " avoidable"),
        lines,
        is_number=True,
    )


_STATISTICS: dict[str, Callable[[LeafStatistics], str]] = {
    "mean": lambda found: number_words(found.mean),
    "std": lambda found: number_words(found.std),
    "least": lambda found: number_words(found.least),
    "greatest": lambda found: number_words(found.greatest),
    "zeros": lambda found: grouped(found.zeros),
}
"""Text of each statistic."""


def _statistic_column(name: str) -> TreeColumn:
    def words(leaf: TreeRow) -> str:
        return _STATISTICS[name](leaf.statistics) if leaf.statistics else ""

    return _column(name, words, f"{name} ", is_number=True)
