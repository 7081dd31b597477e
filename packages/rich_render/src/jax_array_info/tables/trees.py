"""Table for ``TreeReport``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType

from jax_array_info.tables.tree_rows import LeafSums, Sort, TreeTableRow, TreeTableRows, tree_table_rows
from jax_array_info_core import format_bytes
from jax_array_info_core.layouts.dtypes import type_text
from jax_array_info_core.quantities import grouped
from jax_array_info_core.reports import LeafStatistics, TreeReport, TreeRow

from .. import style
from ..pictures.fitting import path_pieces
from .pages import Content, alignment, fitted_table
from .tree_words import (
    Line,
    answer_words,
    bytes_lines,
    leaves_words,
    note_lines,
    number_words,
    path_words,
    replicas_words,
    shard_words,
    spec_words,
    sums_lines,
    sums_notes,
    title_words,
    total_lines,
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


_Fold = tuple[Collection[str], str]
"""Names of columns, and that of the column to whose cells they move."""


def narrower(
    columns: Sequence[TreeColumn], *, shows_waste: bool
) -> Iterator[tuple[list[TreeColumn], list[str]]]:
    """Yield the columns, then fewer and fewer: some are left out or folded into others.

    Avoidable bytes and shards are left out first. Arrays, replicas and statistics move below the paths before
    specs do. Paths and bytes per device stay. With the columns come the names of those that are left out.

    Args:
        columns: The columns.
        shows_waste: Whether to keep avoidable bytes.
    """
    columns, left_out = list(columns), list[str]()
    yield columns, left_out
    for names, into in (
        (["source"], "array"),
        ([] if shows_waste else ["avoidable"], None),
        (["shard"], None),
    ):
        given = [column.name for column in columns if column.name in names]
        if given:
            columns = _without(columns, names, into)
            left_out = left_out if into else [*left_out, *given]
            yield columns, left_out
    below_array: list[_Fold] = [(["spec"], "array"), (["replicated over"], "array"), (_STATISTICS, "path")]
    below_path: list[_Fold] = [*below_array, (["array"], "path")]
    stages: list[list[_Fold]] = [
        *(below_array[:count] for count in (1, 2, 3)),
        [(["array", *_STATISTICS, "replicated over"], "path")],  # specs keep their column
        below_path,
        [*below_path, (["avoidable"], "per device")],
    ]
    for folds in stages:
        folded = columns
        for folded_names, column in folds:
            folded = _without(folded, folded_names, column)
        yield folded, left_out


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
        return [Line(path_words(row, marks), keys=path_pieces), *notes]

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
    column = _column("replicated over", lambda leaf: replicas_words(leaf, report))
    return replace(
        column,
        folded=lambda row: [
            Line(replicas_words(row.leaves[0], report, "replicated over ")) for _ in column.lines(row)
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


_LEAST_PATH = 22
"""Width that paths need at least, in characters, before other columns give way."""


def tree_table(
    report: TreeReport,
    *,
    depth: int | None = None,
    sort: Sort = "tree",
    max_rows: int | None = 100,
    width: int = 80,
) -> RenderableType:
    """Return the table of the leaves of a tree, with its totals and meshes below.

    Paths are never truncated. On narrow consoles, other columns give way, at last those of paths, bytes per
    device and specs: avoidable bytes and shards are left out, and the text of the others moves to the next
    line of another column.

    Args:
        report: The tree.
        depth: Maximum number of keys in a path. Deeper leaves are summed in a row for their prefix. None
            shows all leaves.
        sort: ``tree`` for the order of the tree; ``nan`` for leaves with NaN or infinities first;
            ``waste`` by avoidable bytes.
        max_rows: Maximum number of rows. One more row sums the others. None shows all.
        width: Maximum line length in characters.

    Raises:
        TypeError: If ``depth`` or ``max_rows`` is neither an integer nor None.
        ValueError: If ``depth`` is less than 1, ``max_rows`` is negative, or ``sort`` is not an order.
    """
    rows = tree_table_rows(report, depth=depth, sort=sort, max_rows=max_rows)

    def make(_: Console, options: ConsoleOptions) -> RenderableType:
        marks = style.marks(options.encoding)
        columns = tree_columns(report, rows, marks)
        totals = [style.written(line) for line in total_lines(report, rows.rows, marks)]
        title = style.written(title_words(report))
        answer = style.written(answer_words(report), look="bold")
        if not (rows.rows or rows.rest):
            return Group(answer, title, *totals)
        choices = narrower(columns, shows_waste=sort == "waste")
        contents = (_content(chosen, left_out, rows, options.encoding) for chosen, left_out in choices)
        table = fitted_table(title, contents, min(width, options.max_width), needed=_needed)
        return Group(answer, table, *totals)

    return style.ForConsole(make)


def _content(
    columns: Sequence[TreeColumn], left_out: Sequence[str], rows: TreeTableRows, encoding: str
) -> Content:
    """Return the cells of a table with some of its columns."""
    sections = [[[column.lines(row) for column in columns] for row in rows.rows]]
    if rows.rest is not None:
        sections.append([[column.rest(rows.rest) for column in columns]])
    return Content.of(
        [column.name for column in columns],
        [alignment(column.is_number) for column in columns],
        sections,
        encoding,
        left_out,
    )


def _needed(content: Content, wanted: Sequence[int], width: int) -> list[int]:
    """Return the widths that the columns need: paths give way before other columns are folded."""
    longest = max((cell_len(piece) for path in content.paths() for piece in path_pieces(path)), default=0)
    path = min(wanted[0], max(_LEAST_PATH, width // 4, min(longest, width // 2)))
    return [path, *wanted[1:]]
