"""The page of a tree: the answer, the table of its leaves, and the totals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from ...base.grouping import by_key
from ...base.quantities import counted, format_bytes, grouped
from ...geometry.layouts.dtypes import type_text
from ..reports import LeafStatistics, TreeReport
from .blocks import (
    Branch,
    Cell,
    Column,
    Grouping,
    Listing,
    Row,
    Sentence,
    Table,
    counted_path,
    limited,
    more,
    said,
)
from .folds import path_keys, split_rows
from .tree_rows import LeafGroup, Sort, check_view, leaf_groups
from .tree_words import (
    answer_words,
    bytes_lines,
    first_lines,
    main_mesh,
    note_lines,
    number_words,
    replicas_words,
    shard_words,
    spec_words,
    total_lines,
)

_MOST_ROWS = 5000
"""Maximum number of leaves of a tree that folds. Beyond it, deeper leaves are summed by prefix."""
_STATISTICS: dict[str, tuple[str, Callable[[LeafStatistics], str]]] = {
    "mean": ("mean of the finite elements", lambda statistics: number_words(statistics.mean)),
    "std": ("standard deviation of the finite elements", lambda statistics: number_words(statistics.std)),
    "least": ("least finite element", lambda statistics: number_words(statistics.least)),
    "greatest": ("greatest finite element", lambda statistics: number_words(statistics.greatest)),
    "zeros": ("number of elements that are zero", lambda statistics: grouped(statistics.zeros)),
}
"""Meaning and text of each statistic."""
_MakeRow: TypeAlias = "Callable[[LeafGroup], Row]"
_COLUMNS = (
    Column("path", "path", is_kept=True),
    Column(
        "avoidable",
        "number",
        head="would save",
        after=" would be saved",
        look="warning",
        meaning="bytes that a device would save if the leaf were sharded over more mesh axes that divide it",
    ),
    Column("array", meaning="dtype and global shape; of several leaves, their number"),
    Column("shard", meaning="shape of one shard"),
    Column("spec", meaning="partition spec without mesh axes of size 1, or the class of another sharding"),
    Column("source", before="source: ", meaning="what the sharding of a traced value is known from"),
    *(Column(name, "number", before=f"{name} ", meaning=text) for name, (text, _) in _STATISTICS.items()),
    Column(
        "per device",
        "number",
        is_kept=True,
        meaning="bytes of one shard, the largest if they differ; of several leaves, their sum",
    ),
    Column("replicated over", meaning="mesh axes over which devices hold the same shard, and its replicas"),
)
TABLES = {"tree": _COLUMNS}
"""Columns of the table, whose title is the name and the type of the tree."""


def tree_page(report: TreeReport, *, depth: int | None = None, sort: Sort = "tree") -> Iterator[Listing]:
    """Yield the bytes per device, the table of the leaves, and the totals and meshes below it.

    Paths are never truncated. In narrow tables, other columns give way, at last those of paths, bytes per
    device and specs: avoidable bytes and shards are left out, and the text of the others moves to the next
    line of another column.

    Args:
        report: The tree.
        depth: Maximum number of keys in a path. Deeper leaves are summed in a row for their prefix. None
            shows all leaves.
        sort: ``tree`` for the order of the tree; ``nan`` for leaves with NaN or infinities first;
            ``waste`` by avoidable bytes. Only the order of the tree can be folded by prefix.

    Raises:
        TypeError: If ``depth`` or ``max_rows`` is neither an integer nor None.
        ValueError: If ``depth`` is less than 1, ``max_rows`` is negative, or ``sort`` is not an order.
    """
    check_view(depth, sort)
    groups = leaf_groups(report, depth=depth, sort=sort)
    row = partial(_row, report, main_mesh(report))
    title = report.type_name if report.name is None else f"{report.name}: {report.type_name}"
    yield Sentence(answer_words(report), "answer", hang=0)
    yield from said(first_lines(report, len(groups)), hang=0)
    if groups:
        yield Table(
            title,
            _columns(report),
            [
                limited(
                    groups, row, partial(_rest, row), is_apart=True, size=_nbytes if sort == "tree" else None
                )
            ],
            groupings=[*_groupings(keeps_avoidable=sort == "waste")],
            breaks="first",
            is_compact=True,
            tree=partial(_tree, report, depth, row) if sort == "tree" else None,
        )
    else:
        yield Sentence(title, hang=0)
    yield from said(total_lines(report, groups), hang=0)


def _groupings(*, keeps_avoidable: bool) -> Iterator[Grouping]:
    """Yield the columns that share a cell, from the widest table to the narrowest.

    Arrays, replicas and statistics move below the paths before specs do.
    """
    names = (
        "path",
        "array",
        "shard",
        "spec",
        "source",
        *_STATISTICS,
        "per device",
        "replicated over",
        "avoidable",
    )
    first = () if keeps_avoidable else ("avoidable",)
    both = (*first, "shard")
    facts = ["source", "spec", "replicated over"]
    stages: list[tuple[Sequence[str], dict[str, Sequence[str]]]] = [
        ((), {}),
        ((), {"array": facts[:1]}),
        (first, {"array": facts[:1]}),
        (both, {"array": facts[:1]}),
        (both, {"array": facts[:2]}),
        (both, {"array": facts}),
        (both, {"array": facts, "path": [*_STATISTICS]}),
        (both, {"path": ["array", "source", *_STATISTICS, "replicated over"]}),
        (both, {"path": ["array", *facts, *_STATISTICS]}),
        (
            both,
            {"path": ["array", *facts, *_STATISTICS], "per device": ["avoidable"] if keeps_avoidable else []},
        ),
    ]
    for left_out, below in stages:
        moved = {*left_out, *(name for others in below.values() for name in others)}
        yield [[name, *below.get(name, ())] for name in names if name not in moved]


def _columns(report: TreeReport) -> list[Column]:
    """Return the columns that a tree can have: shards, specs and sources only where leaves differ in them."""
    is_spread = any(mesh.device_count > 1 for mesh in report.meshes)
    shown = {
        "shard": is_spread,
        "spec": is_spread or any(leaf.logical for leaf in report.rows),
        "source": any(
            leaf.kind == "tracer" or leaf.source in ("type", "compiler", "manual") for leaf in report.rows
        ),
    }
    return [column for column in _COLUMNS if shown.get(column.name, True)]


def _row(report: TreeReport, main: int | None, group: LeafGroup) -> Row:
    """Return the cells of leaves; those of a prefix are sums.

    Args:
        report: The tree.
        main: Index of the mesh of most leaves.
        group: The leaves.
    """
    leaf, avoidable = group.leaves[0], group.sums.avoidable_nbytes
    cells: dict[str, Cell] = {
        "path": [counted_path(group.path, group.count), *note_lines(group, report, main)],
        "per device": bytes_lines(group),
        "avoidable": format_bytes(avoidable) if avoidable else "",
    }
    if group.is_prefix:
        return cells | {"array": counted(len(group.leaves), "leaf", "leaves")}
    cells |= {name: words(leaf.statistics) for name, (_, words) in _STATISTICS.items() if leaf.statistics}
    return cells | {
        "array": type_text(leaf.dtype, leaf.shape),
        "shard": shard_words(leaf),
        "spec": spec_words(leaf, report),
        "source": leaf.source,
        "replicated over": replicas_words(leaf, report),
    }


def _nbytes(group: LeafGroup) -> int:
    """Return the bytes per device of a row, without its other sums: a large tree asks this for each leaf."""
    return sum(
        leaf.shard_nbytes or 0
        for leaf in group.leaves
        if leaf.same_as is None and (leaf.is_in_host_memory or leaf.elsewhere is None)
    )


def _summed(path: str, groups: Iterable[LeafGroup]) -> LeafGroup:
    return LeafGroup(path=path, leaves=[leaf for group in groups for leaf in group.leaves], is_prefix=True)


def _rest(row: _MakeRow, groups: Sequence[LeafGroup]) -> Row:
    """Return the sums of the leaves that have no row."""
    count = sum(len(group.leaves) for group in groups)
    return {**row(_summed(more(count, "leaf", "leaves"), groups)), "array": ""}


def _tree(report: TreeReport, depth: int | None, row: _MakeRow) -> list[Branch]:
    """Return all rows as a tree; if there are too many, those of the deepest prefixes that are few enough."""
    groups = leaf_groups(report, depth=depth)
    if len(groups) > _MOST_ROWS:
        paths = [path_keys(group.path) for group in groups]
        depths = range(max(map(len, paths)) - 1, 0, -1)
        fitting = (depth for depth in depths if len({keys[:depth] for keys in paths}) <= _MOST_ROWS)
        groups = leaf_groups(report, depth=next(fitting, 1))
    shown, others = split_rows(groups, _MOST_ROWS)
    return [*_branches(shown, 0, row), *([Branch(_rest(row, others))] if others else [])]


def _branches(groups: Sequence[LeafGroup], level: int, row: _MakeRow) -> Iterator[Branch]:
    """Yield rows, those with the same next keys as one prefix, without the keys above it.

    Args:
        groups: The leaves of the rows.
        level: Number of keys above.
        row: Function that returns the cells of leaves.
    """
    # The last key is the name of a leaf, which is alone.
    keys = ((group.keys[level] if len(group.keys) > level + 1 else id(group), group) for group in groups)
    for alike in by_key(keys).values():
        first, below = alike[0].keys, level + 1
        if len(alike) == 1:
            yield Branch(row(replace(alike[0], path="/".join(first[level:]))))
            continue
        while all(len(group.keys) > below + 1 and group.keys[below] == first[below] for group in alike):
            below += 1
        prefix = _summed("/".join(first[level:below]) + "/", alike)
        yield Branch(row(prefix), list(_branches(alike, below, row)))
