"""Rows of a table of leaves: folded indices and prefixes, their order, and their sums."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from ..text import plain_text
from .folded_paths import folded_paths
from .rows import check_max_rows, split_rows
from .tree import TreeReport, TreeRow
from .tree_paths import path_keys

Sort = Literal["tree", "waste"]
"""Order of the rows.

- ``tree``: the order of the tree;
- ``waste``: leaves with NaN or infinities first, then by avoidable bytes.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafSums:
    """Sums over several leaves. An array at several paths counts at its first one."""

    leaf_count: int
    """Number of leaves."""

    nbytes: int
    """Bytes per device. An upper bound if the leaves are on several device sets."""

    is_bound: bool
    """Whether the leaves are on several meshes or device sets, which may have different devices."""

    numpy_nbytes: int
    """Bytes of NumPy leaves."""

    host_nbytes: int
    """Bytes per device of leaves in host memory."""

    avoidable_nbytes: int
    """Avoidable bytes per device."""

    unknown_count: int
    """Number of leaves whose bytes per device are unknown."""

    deleted_count: int
    """Number of deleted leaves."""

    padded_count: int
    """Number of leaves with an axis that is padded."""

    infinite_count: int
    """Number of leaves with NaN or infinities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeTableRow:
    """One row of a table of leaves."""

    path: str
    """Path of the leaf or the prefix, with folded indices as ranges: ``layers/0-31/mlp/w``."""

    leaves: tuple[TreeRow, ...]
    """Leaves of the row."""

    count: int
    """Number of leaves, or prefixes, that differ only in the folded indices."""

    is_prefix: bool
    """Whether the row has all leaves below a path; otherwise, its leaves agree in everything but the path."""

    sums: LeafSums
    """Sums over the leaves."""

    same_as: tuple[str, ...] = ()
    """Other paths of the same array."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeTableRows:
    """All rows of a table of leaves."""

    rows: tuple[TreeTableRow, ...]
    """Rows to show."""

    rest: LeafSums | None
    """Sums of the rows beyond ``max_rows``; None if there are none."""


def check_view(depth: object, sort: object, max_rows: object) -> None:
    """Check the arguments of a table of leaves.

    Raises:
        TypeError: If ``depth`` or ``max_rows`` is neither an integer nor None.
        ValueError: If ``depth`` is less than 1, ``max_rows`` is negative, or ``sort`` is not an order.
    """
    for name, value in (("depth", depth), ("max_rows", max_rows)):
        if not isinstance(value, int | None) or isinstance(value, bool):
            raise TypeError(f"{name} must be an integer or None, got {plain_text(value, repr)}")
    if isinstance(depth, int) and depth < 1:
        raise ValueError(f"depth must be at least 1, or None for all leaves, got {depth}")
    if sort not in get_args(Sort):
        raise ValueError(f"sort must be 'tree' or 'waste', got {plain_text(sort, repr)}")
    check_max_rows(max_rows if isinstance(max_rows, int) else None)


def tree_table_rows(
    report: TreeReport, *, depth: int | None = None, sort: Sort = "tree", max_rows: int | None = 100
) -> TreeTableRows:
    """Return the rows of a table of leaves.

    Leaves that agree in everything but the indices in their paths share a row, and so do prefixes.

    Args:
        report: The tree.
        depth: Maximum number of keys in a path. Deeper leaves are summed in a row for their prefix. None
            shows all leaves.
        sort: Order of the rows.
        max_rows: Maximum number of rows; the others are summed. None shows all.

    Raises:
        TypeError: If ``depth`` or ``max_rows`` is neither an integer nor None.
        ValueError: If ``depth`` is less than 1, ``max_rows`` is negative, or ``sort`` is not an order.
    """
    check_view(depth, sort, max_rows)
    rows = _folded(_unfolded(report, depth))
    if sort == "waste":
        rows.sort(key=lambda row: (not row.sums.infinite_count, -row.sums.avoidable_nbytes))
    shown, rest = split_rows(rows, max_rows)
    return TreeTableRows(
        rows=tuple(shown), rest=leaf_sums(leaf for row in rest for leaf in row.leaves) if rest else None
    )


def leaf_sums(leaves: Iterable[TreeRow]) -> LeafSums:
    """Return the sums over leaves."""
    leaves = list(leaves)
    once = [leaf for leaf in leaves if leaf.same_as is None]
    known = [leaf for leaf in once if leaf.shard_nbytes is not None]
    on_devices = [leaf for leaf in known if leaf.kind != "numpy" and not leaf.is_in_host_memory]
    return LeafSums(
        leaf_count=len(leaves),
        nbytes=sum(leaf.shard_nbytes or 0 for leaf in on_devices),
        is_bound=len({leaf.mesh for leaf in on_devices} - {None}) > 1,
        numpy_nbytes=sum(leaf.nbytes or 0 for leaf in once if leaf.kind == "numpy"),
        host_nbytes=sum(leaf.shard_nbytes or 0 for leaf in known if leaf.is_in_host_memory),
        avoidable_nbytes=sum(leaf.avoidable_nbytes for leaf in on_devices),
        unknown_count=sum(leaf.shard_nbytes is None and not leaf.is_deleted for leaf in once),
        deleted_count=sum(leaf.is_deleted for leaf in leaves),
        padded_count=sum(bool(leaf.uneven) for leaf in leaves),
        infinite_count=sum(not is_finite(leaf) for leaf in leaves),
    )


def is_finite(leaf: TreeRow) -> bool:
    """Return whether no element of a leaf is known to be NaN or infinite."""
    return leaf.statistics is None or leaf.statistics.is_finite


def _unfolded(report: TreeReport, depth: int | None) -> list[TreeTableRow]:
    """Return one row for each leaf or prefix, in the order of the tree."""
    others: dict[str, list[str]] = defaultdict(list)
    for leaf in report.rows:
        if leaf.same_as is not None:
            others[leaf.same_as].append(leaf.path)
    rows: dict[tuple[str, bool], list[TreeRow]] = defaultdict(list)
    for number, leaf in enumerate(report.rows):
        keys = () if depth is None else path_keys(leaf.path)
        if depth is not None and len(keys) > depth:
            rows["/".join(keys[:depth]), True].append(leaf)
        else:
            # Two leaves of a report from a file can have the same path.
            rows[f"{number}:{leaf.path}", False].append(leaf)
    return [
        TreeTableRow(
            path=path if is_prefix else leaves[0].path,
            leaves=tuple(leaves),
            count=1,
            is_prefix=is_prefix,
            sums=leaf_sums(leaves),
            same_as=() if is_prefix else tuple(_same_as(leaves[0], others)),
        )
        for (path, is_prefix), leaves in rows.items()
    ]


def _same_as(leaf: TreeRow, others: dict[str, list[str]]) -> Sequence[str]:
    return others.get(leaf.path, ()) if leaf.same_as is None else [leaf.same_as]


def _folded(rows: list[TreeTableRow]) -> list[TreeTableRow]:
    """Return the rows with those that differ only in indices folded into one, in the order of the tree."""
    folded = folded_paths([row.path for row in rows], list(map(_facts, rows)))
    return [_row(path, [rows[index] for index in members]) for path, members in folded]


def _facts(row: TreeTableRow) -> Hashable:
    """Return everything that a row shows but its path."""
    if row.is_prefix:
        return row.sums
    return replace(row.leaves[0], path=""), row.same_as


def _row(path: str, found: Sequence[TreeTableRow]) -> TreeTableRow:
    if len(found) == 1:
        return found[0]
    leaves = tuple(leaf for row in found for leaf in row.leaves)
    return replace(found[0], path=path, leaves=leaves, count=len(found), sums=leaf_sums(leaves))
