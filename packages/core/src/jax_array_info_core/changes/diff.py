"""Differences between two trees: ``tree_diff``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..layouts.spec import Spec, effective_axes
from ..reports.tree import TreeMesh, TreeReport, TreeRow
from ..reports.tree_changes import ChangedField, LeafChange, TreeDiff
from ..trees.matched_paths import matched_paths
from ..trees.report import tree_report


def tree_diff(before: Any, after: Any) -> TreeDiff:
    """Return the leaves that were added, removed or changed between two trees, and the bytes per device.

    Leaves are matched by path, with or without the keys of boxes. A leaf is changed if its shape, dtype,
    partition spec or memory kind differs. Values are not compared: trees of zeros and of ones are equal.
    Equivalent specs are equal: trailing None, tuples of one name and mesh axes of size 1 make no difference,
    and neither does the size of the mesh. A sharding without a spec equals ``P()`` if it replicates the
    leaf, and an array on a single device equals ``P()`` on a mesh of one device. A leaf without a sharding,
    such as a NumPy array, differs from any sharded leaf; the unknown sharding of a traced value does not.
    All default memory kinds are equal. Nothing is allocated, and no devices are needed.

    Args:
        before: A tree of arrays, or a TreeReport, such as one that ``load_tree`` returned.
        after: The tree to compare it with.

    >>> import jax.numpy as jnp
    >>> before = {"w": jnp.zeros((8, 4)), "b": jnp.zeros(4)}
    >>> diff = tree_diff(before, {"w": jnp.zeros((8, 4), jnp.bfloat16)})
    >>> [row.path for row in diff.removed], [(change.after.path, change.fields) for change in diff.changed]
    (['b'], [('w', ('dtype',))])
    """
    first, second = tree_report(before), tree_report(after)
    other_paths = matched_paths(second.rows, first.rows)
    rows = {path: replace(row, path=path) for path, row in zip(other_paths, second.rows, strict=True)}
    paths = {row.path for row in first.rows}
    shared = [(row, rows[row.path]) for row in first.rows if row.path in rows]
    compared = [(old, new, tuple(_changed_fields(old, first, new, second))) for old, new in shared]
    changed = tuple(
        LeafChange(before=old, after=new, fields=fields) for old, new, fields in compared if fields
    )
    return TreeDiff(
        before_name=first.name,
        after_name=second.name,
        added=tuple(row for row in rows.values() if row.path not in paths),
        removed=tuple(row for row in first.rows if row.path not in rows),
        changed=changed,
        unchanged_count=len(compared) - len(changed),
        meshes_before=first.meshes,
        meshes_after=second.meshes,
        nbytes_before=first.nbytes,
        nbytes_after=second.nbytes,
        device_nbytes_before=first.fullest_device_nbytes,
        device_nbytes_after=second.fullest_device_nbytes,
    )


def _changed_fields(
    old: TreeRow, first: TreeReport, new: TreeRow, second: TreeReport
) -> Iterator[ChangedField]:
    if old.shape != new.shape:
        yield "shape"
    if old.dtype != new.dtype:
        yield "dtype"
    if not _same_sharding(old, first.meshes, new, second.meshes):
        yield "spec"
    if special_memory(old) != special_memory(new):
        yield "memory_kind"


def special_memory(row: TreeRow) -> str | None:
    """Return the memory kind of a leaf in host memory; None for the default memory of its devices.

    The default kind has a name of its own on each platform, and a planned leaf has no memory kind.
    """
    return row.memory_kind if row.is_in_host_memory else None


def _same_sharding(
    old: TreeRow, meshes: Sequence[TreeMesh], new: TreeRow, other_meshes: Sequence[TreeMesh]
) -> bool:
    """Return whether two leaves are sharded in the same way."""
    if old.unknown_because is not None or new.unknown_because is not None:
        return True  # nothing is known to differ
    if (old.sharding is None) != (new.sharding is None):
        return False
    if old.spec is not None and new.spec is not None:
        return same_spec(old.spec, _sizes(old, meshes), new.spec, _sizes(new, other_meshes))
    if (old.replicas > 1) != (new.replicas > 1):
        return False
    if old.spec is None and new.spec is None:
        return _shard_counts(old) == _shard_counts(new)
    return _is_replicated(old, meshes) and _is_replicated(new, other_meshes)


def same_spec(one: Spec, sizes: Mapping[str, int], other: Spec, other_sizes: Mapping[str, int]) -> bool:
    """Return whether two specs, each on a mesh with the given sizes of axes, are equivalent."""
    if (one.unconstrained, one.unreduced) != (other.unconstrained, other.unreduced):
        return False
    # A spec that is written in the same way is the same, even if an axis has size 1 on one of the meshes.
    as_written = effective_axes(one, {}, 0) == effective_axes(other, {}, 0)
    return as_written or effective_axes(one, sizes, 0) == effective_axes(other, other_sizes, 0)


def _sizes(row: TreeRow, meshes: Sequence[TreeMesh]) -> dict[str, int]:
    axes = None if row.mesh is None else meshes[row.mesh].axes
    return {} if axes is None else axes.shape


def _is_replicated(row: TreeRow, meshes: Sequence[TreeMesh]) -> bool:
    """Return whether each device of a sharding holds the whole leaf."""
    if row.spec is not None:
        is_plain = not (row.spec.unconstrained or row.spec.unreduced)
        return is_plain and not effective_axes(row.spec, _sizes(row, meshes), 0)
    return row.shard_shape == row.shape


def _shard_counts(row: TreeRow) -> tuple[int, ...] | None:
    """Return the number of shards along each axis with more than one; None if they are not known."""
    if row.shard_shape is None:
        return None
    counts = [
        -(-dim // part) if isinstance(dim, int) and isinstance(part, int) and part > 0 else 1
        for dim, part in zip(row.shape, row.shard_shape, strict=False)
    ]
    while counts and counts[-1] == 1:
        counts.pop()
    return tuple(counts)
