"""Whether two leaves are sharded alike: on one mesh, on meshes of two trees, and as planned."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import ArrayInfoError
from ..facts.reports.tree import TreeMesh, TreeRow, axes_of
from ..geometry.layouts.layout import mesh_layout
from ..geometry.layouts.spec import effective_axes, other_types, same_spec
from ..geometry.layouts.xla import parse_xla_sharding

if TYPE_CHECKING:
    from ..facts.reports.changes import ShardingField


def same_sharding(
    row: TreeRow, meshes: Sequence[TreeMesh], other: TreeRow, other_meshes: Sequence[TreeMesh]
) -> bool:
    """Return whether two leaves are sharded alike on as many devices, in whatever memory."""
    if meshes is other_meshes and row.spec is not None and row.spec is other.spec and row.mesh == other.mesh:
        return True  # leaves share their spec objects
    return all(field == "memory_kind" for field in differing_fields(row, meshes, other, other_meshes))


def differing_fields(
    row: TreeRow,
    meshes: Sequence[TreeMesh],
    other: TreeRow,
    other_meshes: Sequence[TreeMesh],
    *,
    on_any_mesh: bool = False,
    has_planned_types: bool = False,
) -> Iterator[ShardingField]:
    """Yield the parts in which the shardings of two leaves differ: the spec, the types of axes, the memory.

    Equivalent specs are equal: with or without a trailing None, mesh axes of size 1, or tuples of one name.
    Without a spec, as in a GSPMDSharding, the devices of each shard are compared by their places in the mesh;
    if these are not known, the shapes of the shards, their replicas and the number of devices. The ids of the
    devices do not count. Of a sharding that is not known, nothing differs.

    Args:
        row: A leaf.
        meshes: The meshes of its tree.
        other: Another leaf.
        other_meshes: The meshes of its tree.
        on_any_mesh: Whether the sizes of meshes do not count, as between two trees.
        has_planned_types: Whether the types of axes count of leaves that are planned, too.
    """
    if not _same_spec(row, _mesh_of(row, meshes), other, _mesh_of(other, other_meshes), on_any_mesh):
        yield "spec"
    has_types = has_planned_types or "planned" not in (row.kind, other.kind)
    if has_types and other_types(axes_of(row, meshes), axes_of(other, other_meshes)):
        yield "axis_types"
    # The default kind has a name of its own on each platform, and a planned leaf has none.
    if row.host_memory_kind != other.host_memory_kind:
        yield "memory_kind"


def _mesh_of(row: TreeRow, meshes: Sequence[TreeMesh]) -> TreeMesh | None:
    return None if row.mesh is None else meshes[row.mesh]


def _same_spec(
    row: TreeRow, mesh: TreeMesh | None, other: TreeRow, other_mesh: TreeMesh | None, on_any_mesh: bool
) -> bool:
    if row.unknown_because is not None or other.unknown_because is not None:
        return True  # nothing is known to differ
    if row.spec is not None and other.spec is not None:
        is_alike = same_spec(row.spec, _sizes(mesh), other.spec, _sizes(other_mesh), on_any_mesh=on_any_mesh)
        return is_alike and (on_any_mesh or _device_count(mesh) == _device_count(other_mesh))
    has_same_tiles = _same_tiles(row, mesh, other, other_mesh) if row.shape == other.shape else None
    if has_same_tiles is not None:
        return has_same_tiles
    if not on_any_mesh:
        return _by_shards(row, mesh) == _by_shards(other, other_mesh)
    if (row.sharding is None) != (other.sharding is None) or (row.replicas > 1) != (other.replicas > 1):
        return False
    if row.spec is not None or other.spec is not None:
        return _is_replicated(row, mesh) and _is_replicated(other, other_mesh)
    counts, others = shard_counts(row), shard_counts(other)
    if counts is None or others is None:
        return counts is others
    return all(count == wanted for count, wanted in zip_longest(counts, others, fillvalue=1))


def _sizes(mesh: TreeMesh | None) -> dict[str, int]:
    return {} if mesh is None or mesh.axes is None else mesh.axes.shape


def _device_count(mesh: TreeMesh | None) -> int | None:
    return None if mesh is None else mesh.device_count


def _by_shards(row: TreeRow, mesh: TreeMesh | None) -> Hashable:
    """Return the devices, shards and replicas of a leaf; of one without devices, its sharding in words."""
    return row.sharding_text if mesh is None else (mesh.device_count, row.shard_shape, row.replicas)


def _is_replicated(row: TreeRow, mesh: TreeMesh | None) -> bool:
    """Return whether each device of a sharding holds the whole leaf."""
    if row.spec is not None:
        is_plain = not (row.spec.unconstrained or row.spec.unreduced)
        return is_plain and not effective_axes(row.spec, _sizes(mesh), 0)
    return row.shard_shape == row.shape


def shard_counts(row: TreeRow) -> list[int] | None:
    """Return the number of shards along each axis of a leaf; None if they are not known."""
    if row.shard_shape is None:
        return None
    return [
        -(-dim // part) if isinstance(dim, int) and isinstance(part, int) and dim and part else 1
        for dim, part in zip(row.shape, row.shard_shape, strict=True)
    ]


def _same_tiles(
    row: TreeRow, mesh: TreeMesh | None, other: TreeRow, other_mesh: TreeMesh | None
) -> bool | None:
    """Return whether two shardings place leaves alike on as many devices, where one has no spec.

    None if that is not known, as of a sharding whose class tells nothing of its devices.

    Args:
        row: A leaf.
        mesh: Its mesh.
        other: A leaf of the same shape.
        other_mesh: Its mesh.
    """
    if mesh is None or other_mesh is None or mesh.device_count != other_mesh.device_count:
        return None
    tiles, others = _tiles(row, mesh), _tiles(other, other_mesh)
    return None if tiles is None or others is None else np.array_equal(tiles, others)


def _tiles(row: TreeRow, mesh: TreeMesh) -> np.ndarray[Any, Any] | None:
    """Return the places of the devices of each shard in the order of the mesh; None if not known."""
    ids = None
    shape = [dim for dim in row.shape if isinstance(dim, int)]
    if len(shape) < len(row.shape):
        return None
    with contextlib.suppress(ArrayInfoError, LookupError):  # a report from a file may have any text
        if row.spec is not None and mesh.axes is not None and not row.spec.unreduced:
            ids = mesh_layout(shape, mesh.axes.shape, row.spec.axes).device_ids
        elif row.spec is None and row.xla is not None:
            sharding = parse_xla_sharding(row.xla)
            if sharding.kind == "replicated":
                ids = np.arange(mesh.device_count).reshape((1,) * len(shape) + (-1,))
            elif sharding.kind == "tiled" and set(sharding.subgroups) <= {"replicated"}:
                ids = sharding.device_ids
    return None if ids is None else np.sort(ids, axis=-1)
