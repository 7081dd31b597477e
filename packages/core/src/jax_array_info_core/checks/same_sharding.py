"""Comparison of the shardings of two leaves with the same shape."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ..layouts.spec import effective_axes
from ..reports.tree import TreeMesh, TreeRow


def same_sharding(
    row: TreeRow, meshes: Sequence[TreeMesh], other: TreeRow, other_meshes: Sequence[TreeMesh]
) -> bool:
    """Return whether two leaves are sharded in the same way.

    Equivalent specs are equal: with or without a trailing None, mesh axes of size 1, or tuples of one name.
    A sharding without a spec equals ``P()`` if it is fully replicated. The ids of the devices do not count.

    Args:
        row: A leaf.
        meshes: The meshes of its tree.
        other: A leaf of the same shape.
        other_meshes: The meshes of its tree.
    """
    if meshes is other_meshes and row.spec is not None and row.spec is other.spec and row.mesh == other.mesh:
        return True  # leaves share their spec objects
    return _placement(row, meshes) == _placement(other, other_meshes)


def has_known_sharding(row: TreeRow) -> bool:
    """Return whether the sharding of a leaf is known: not if XLA has not chosen it."""
    return row.shard_shape is not None or row.is_deleted


def sharding_words(row: TreeRow) -> str:
    """Return the sharding of a leaf in words: its spec, or the class of its sharding."""
    if row.spec is not None:
        return str(row.spec)
    if row.sharding is not None:
        return row.sharding
    return "NumPy array" if row.kind == "numpy" else "no sharding"


def _placement(row: TreeRow, meshes: Sequence[TreeMesh]) -> Hashable:
    """Return what two leaves with the same sharding have in common."""
    if row.mesh is None:
        return sharding_words(row)
    mesh = meshes[row.mesh]
    if row.spec is not None and mesh.axes is not None:
        sizes = mesh.axes.shape
        axes = effective_axes(row.spec, sizes, len(row.shape))
        used = {name: sizes.get(name) for names in (*axes, row.spec.unreduced) for name in names}
        return mesh.device_count, axes, frozenset(used.items()), row.spec.unconstrained, row.spec.unreduced
    if row.replicas == mesh.device_count:
        return mesh.device_count, ((),) * len(row.shape), frozenset(), (), ()
    return mesh.device_count, row.sharding, row.shard_shape
