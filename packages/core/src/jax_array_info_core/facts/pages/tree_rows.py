"""Rows of a table of leaves: folded indices and prefixes, their order, and their sums."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import attrgetter
from typing import Literal, get_args

from ...base.grouping import by_key
from ...base.text import clipped, plain_text
from ..reports.tree import ElsewhereBytes, TreeReport, TreeRow, elsewhere_bytes
from .folds import folded, path_keys

Sort = Literal["tree", "waste", "nan"]
"""Order of the rows.

- ``tree``: the order of the tree;
- ``waste``: by avoidable bytes;
- ``nan``: leaves with NaN or infinities first.
"""
_RNGS = "(RNG state)"
_MOST_KEYS = 100
"""Maximum number of prefixes inside each other."""


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


@dataclass(frozen=True, kw_only=True)
class LeafGroup:
    """The leaves of one row."""

    path: str
    """Path of the leaf or the prefix, with folded indices as ranges: ``layers/0-31/mlp/w``."""
    leaves: Sequence[TreeRow]
    """The leaves; those of a group that is not a prefix agree in everything but their paths."""
    is_prefix: bool = False
    """Whether the group has all leaves below a path."""
    same_as: tuple[str, ...] = ()
    """Other paths of the same array."""
    count: int = 1
    """Number of leaves, or prefixes, that differ only in the folded indices."""

    @cached_property
    def sums(self) -> LeafSums:
        """Sums over the leaves, made at first use: most rows of a large tree are not shown."""
        return leaf_sums(self.leaves)

    @cached_property
    def keys(self) -> Sequence[str]:
        """Keys of the path; those beyond the 100th as one."""
        keys = path_keys(self.path)
        tail = ["/".join(keys[_MOST_KEYS:])] if len(keys) > _MOST_KEYS else []
        return [*keys[:_MOST_KEYS], *tail]


def check_view(depth: object, sort: object) -> None:
    """Check the arguments of a table of leaves.

    Raises:
        TypeError: If ``depth`` is neither an integer nor None.
        ValueError: If ``depth`` is less than 1, or ``sort`` is not an order.
    """
    if not isinstance(depth, int | None) or isinstance(depth, bool):
        raise TypeError(f"depth must be an integer or None, got {plain_text(depth, repr)}")
    if depth is not None and depth < 1:
        raise ValueError(f"depth must be at least 1, or None for all leaves, got {depth}")
    if sort not in get_args(Sort):
        raise ValueError(f"sort must be 'tree', 'waste' or 'nan', got {plain_text(sort, repr)}")


def leaf_groups(report: TreeReport, *, depth: int | None = None, sort: Sort = "tree") -> list[LeafGroup]:
    """Return the leaves of each row of a table.

    Leaves that agree in everything but the indices in their paths share a row, and so do prefixes. The keys
    and counters of ``nnx.Rngs`` are summed in one row, the last one.

    Args:
        report: The tree.
        depth: Maximum number of keys in a path. Deeper leaves are summed in a row for their prefix. None
            shows all leaves.
        sort: Order of the rows.
    """
    groups = [_together(path, leaves) for path, leaves in folded([*_unfolded(report, depth)], _facts)]
    if sort == "waste":
        groups.sort(key=lambda group: -_avoidable_nbytes(group.leaves))
    elif sort == "nan":
        groups.sort(key=lambda group: all(map(is_finite, group.leaves)))
    return groups


def leaf_sums(leaves: Sequence[TreeRow]) -> LeafSums:
    """Return the sums over leaves."""
    once = [leaf for leaf in leaves if leaf.same_as is None]
    on_devices = list(filter(is_counted, leaves))
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


def is_finite(leaf: TreeRow) -> bool:
    """Return whether no element of a leaf is known to be NaN or infinite."""
    return leaf.statistics is None or leaf.statistics.is_finite


def is_counted(leaf: TreeRow) -> bool:
    """Return whether the bytes of a leaf count as device memory, at its path."""
    return leaf.shard_nbytes is not None and leaf.is_on_devices and leaf.same_as is None


def _avoidable_nbytes(leaves: Iterable[TreeRow]) -> int:
    return sum(leaf.avoidable_nbytes for leaf in leaves if leaf.avoidable_nbytes and is_counted(leaf))


def _unfolded(report: TreeReport, depth: int | None) -> Iterator[LeafGroup]:
    """Yield a group for each leaf or prefix, in the order of the tree."""
    others = by_key((leaf.same_as, leaf.path) for leaf in report.rows if leaf.same_as is not None)
    folds_rngs = sum(leaf.variable == "RNG state" for leaf in report.rows) > 1

    def place(number: int, leaf: TreeRow) -> tuple[str, int | Literal["prefix", "rngs"]]:
        keys = () if depth is None else path_keys(leaf.path)
        if depth is not None and len(keys) > depth:
            return "/".join(keys[:depth]), "prefix"
        return (_RNGS, "rngs") if folds_rngs and leaf.variable == "RNG state" else (leaf.path, number)

    places = by_key((place(number, leaf), leaf) for number, leaf in enumerate(report.rows))
    for (path, kind), leaves in sorted(places.items(), key=lambda item: item[0][1] == "rngs"):
        if isinstance(kind, str):
            yield LeafGroup(path=path, leaves=leaves, is_prefix=True)
        else:
            same_as = others.get(path, ()) if leaves[0].same_as is None else (leaves[0].same_as,)
            yield LeafGroup(path=path, leaves=leaves, same_as=tuple(map(clipped, same_as)))


_facts_of_leaf = attrgetter(*(field.name for field in fields(TreeRow) if "path" not in field.name))


def _facts(group: LeafGroup) -> Hashable:
    """Return everything that a row shows but its path."""
    return group.sums if group.is_prefix else (_facts_of_leaf(group.leaves[0]), group.same_as)


def _together(path: str, groups: Sequence[LeafGroup]) -> LeafGroup:
    leaves = [leaf for group in groups for leaf in group.leaves]
    return replace(groups[0], path=path, leaves=leaves, count=len(groups))
