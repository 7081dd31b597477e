"""Rows of a table of leaves: folded indices and prefixes, their order, and their sums."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Literal, get_args

from jax_array_info_core.grouping import by_key
from jax_array_info_core.pages.folds import check_max_rows, folded_paths, path_keys, split_rows
from jax_array_info_core.reports.tree import ElsewhereBytes, TreeReport, TreeRow, elsewhere_bytes
from jax_array_info_core.text import clipped, plain_text

Sort = Literal["tree", "waste", "nan"]
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

    elsewhere: tuple[ElsewhereBytes, ...]
    """Leaves that take no memory of JAX's devices, by place."""

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
    if not isinstance(depth, int | None) or isinstance(depth, bool):
        raise TypeError(f"depth must be an integer or None, got {plain_text(depth, repr)}")
    if isinstance(depth, int) and depth < 1:
        raise ValueError(f"depth must be at least 1, or None for all leaves, got {depth}")
    if sort not in get_args(Sort):
        raise ValueError(f"sort must be 'tree', 'waste' or 'nan', got {plain_text(sort, repr)}")
    check_max_rows(max_rows)


def tree_table_rows(
    report: TreeReport, *, depth: int | None = None, sort: Sort = "tree", max_rows: int | None = 100
) -> TreeTableRows:
    """Return the rows of a table of leaves.

    Leaves that agree in everything but the indices in their paths share a row, and so do prefixes. The keys
    and counters of ``nnx.Rngs`` are summed in one row.

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
    groups = _folded(_unfolded(report, depth))
    if sort == "waste":
        groups.sort(key=lambda group: -_avoidable_nbytes(group.leaves))
    elif sort == "nan":
        groups.sort(key=lambda group: all(map(is_finite, group.leaves)))
    shown, rest = split_rows(groups, max_rows)
    return TreeTableRows(
        rows=tuple(map(_row, shown)),
        rest=leaf_sums(leaf for group in rest for leaf in group.leaves) if rest else None,
    )


def leaf_sums(leaves: Iterable[TreeRow]) -> LeafSums:
    """Return the sums over leaves."""
    leaves = list(leaves)
    once = [leaf for leaf in leaves if leaf.same_as is None]
    on_devices = list(filter(_is_counted, leaves))
    return LeafSums(
        leaf_count=len(leaves),
        nbytes=sum(leaf.shard_nbytes or 0 for leaf in on_devices),
        is_bound=len({leaf.mesh for leaf in on_devices} - {None}) > 1,
        elsewhere=elsewhere_bytes(leaves),
        host_nbytes=sum(leaf.shard_nbytes or 0 for leaf in once if leaf.is_in_host_memory),
        avoidable_nbytes=_avoidable_nbytes(leaves),
        unknown_count=sum(
            leaf.shard_nbytes is None and not leaf.is_deleted and leaf.elsewhere is None for leaf in once
        ),
        deleted_count=sum(leaf.is_deleted for leaf in leaves),
        padded_count=sum(bool(leaf.uneven) for leaf in leaves),
        infinite_count=sum(not is_finite(leaf) for leaf in leaves),
    )


def _is_counted(leaf: TreeRow) -> bool:
    """Return whether the bytes of a leaf count as device memory, at its path."""
    return leaf.shard_nbytes is not None and leaf.is_on_devices and leaf.same_as is None


def _avoidable_nbytes(leaves: Iterable[TreeRow]) -> int:
    return sum(leaf.avoidable_nbytes for leaf in leaves if leaf.avoidable_nbytes and _is_counted(leaf))


def is_finite(leaf: TreeRow) -> bool:
    """Return whether no element of a leaf is known to be NaN or infinite."""
    return leaf.statistics is None or leaf.statistics.is_finite


@dataclass(slots=True)
class _Group:
    """The leaves of one row, without their sums: most rows of a large tree are not shown."""

    path: str
    leaves: list[TreeRow]
    is_prefix: bool
    same_as: tuple[str, ...] = ()
    count: int = 1


def _unfolded(report: TreeReport, depth: int | None) -> list[_Group]:
    """Return a group for each leaf or prefix, in the order of the tree."""
    others = by_key((leaf.same_as, leaf.path) for leaf in report.rows if leaf.same_as is not None)
    groups: list[_Group] = []
    prefixes: dict[str, _Group] = {}
    rngs = _Group("(RNG state)", [], is_prefix=True)
    folds_rngs = sum(leaf.variable == "RNG state" for leaf in report.rows) > 1
    for leaf in report.rows:
        keys = () if depth is None else path_keys(leaf.path)
        if depth is None or len(keys) <= depth:
            if folds_rngs and leaf.variable == "RNG state":
                rngs.leaves.append(leaf)
                continue
            same_as = others.get(leaf.path, ()) if leaf.same_as is None else (leaf.same_as,)
            groups.append(_Group(leaf.path, [leaf], is_prefix=False, same_as=tuple(map(clipped, same_as))))
            continue
        prefix = "/".join(keys[:depth])
        if prefix not in prefixes:
            prefixes[prefix] = _Group(prefix, [], is_prefix=True)
            groups.append(prefixes[prefix])
        prefixes[prefix].leaves.append(leaf)
    return [*groups, rngs] if rngs.leaves else groups


def _folded(groups: list[_Group]) -> list[_Group]:
    """Return the groups with those that differ only in indices folded into one, in the order of the tree."""
    folded = folded_paths([group.path for group in groups], list(map(_facts, groups)))
    return [_together(path, [groups[index] for index in members]) for path, members in folded]


_facts_of_leaf = attrgetter(*(field.name for field in fields(TreeRow) if "path" not in field.name))


def _facts(group: _Group) -> Hashable:
    """Return everything that a row shows but its path."""
    if group.is_prefix:
        return leaf_sums(group.leaves)
    return _facts_of_leaf(group.leaves[0]), group.same_as


def _together(path: str, groups: Sequence[_Group]) -> _Group:
    first = groups[0]
    leaves = [leaf for group in groups for leaf in group.leaves]
    return _Group(path, leaves, first.is_prefix, first.same_as, len(groups))


def _row(group: _Group) -> TreeTableRow:
    return TreeTableRow(
        path=group.path,
        leaves=tuple(group.leaves),
        count=group.count,
        is_prefix=group.is_prefix,
        sums=leaf_sums(group.leaves),
        same_as=group.same_as,
    )
