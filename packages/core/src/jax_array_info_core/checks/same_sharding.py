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
    A sharding without a spec, such as a GSPMDSharding, equals any sharding with as many devices, shards of
    the same shape and as many replicas. The ids of the devices do not count.

    Args:
        row: A leaf.
        meshes: The meshes of its tree.
        other: A leaf of the same shape.
        other_meshes: The meshes of its tree.
    """
    if meshes is other_meshes and row.spec is not None and row.spec is other.spec and row.mesh == other.mesh:
        return True  # leaves share their spec objects
    specs = _by_spec(row, meshes), _by_spec(other, other_meshes)
    if None not in specs:
        return specs[0] == specs[1]
    return _by_shards(row, meshes) == _by_shards(other, other_meshes)


def is_sharded_further(row: TreeRow, other: TreeRow, meshes: Sequence[TreeMesh]) -> bool:
    """Return whether a leaf is sharded over all mesh axes of another leaf, and over more.

    Without a spec, its shards are compared: none of their axes is longer, and one is shorter.
    """
    if row.spec is not None and other.spec is not None:
        return _mesh_axes(other, meshes) < _mesh_axes(row, meshes)
    if row.shard_shape is None or other.shard_shape is None or row.shard_shape == other.shard_shape:
        return False
    pairs = zip(row.shard_shape, other.shard_shape, strict=True)
    return all(
        one == two or (isinstance(one, int) and isinstance(two, int) and one < two) for one, two in pairs
    )


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


def _by_spec(row: TreeRow, meshes: Sequence[TreeMesh]) -> Hashable:
    """Return what two leaves with equivalent specs have in common; None for a leaf without a spec."""
    mesh = None if row.mesh is None else meshes[row.mesh]
    if mesh is None or mesh.axes is None or row.spec is None:
        return None
    sizes = mesh.axes.shape
    axes = effective_axes(row.spec, sizes, len(row.shape))
    used = {name: sizes.get(name) for names in (*axes, row.spec.unreduced) for name in names}
    return mesh.device_count, axes, frozenset(used.items()), row.spec.unconstrained, row.spec.unreduced


def _mesh_axes(row: TreeRow, meshes: Sequence[TreeMesh]) -> set[tuple[str, int | None]]:
    """Return the names and sizes of the mesh axes that shard a leaf."""
    axes = None if row.mesh is None else meshes[row.mesh].axes
    sizes = {} if axes is None else axes.shape
    assert row.spec is not None
    names = {name for entry in effective_axes(row.spec, sizes, len(row.shape)) for name in entry}
    return {(name, sizes.get(name)) for name in names}


def _by_shards(row: TreeRow, meshes: Sequence[TreeMesh]) -> Hashable:
    """Return the devices, shards and replicas of a leaf; of one without devices, its sharding in words."""
    if row.mesh is None:
        return sharding_words(row)
    return meshes[row.mesh].device_count, row.shard_shape, row.replicas
