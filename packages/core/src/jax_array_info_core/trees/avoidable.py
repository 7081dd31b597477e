"""Bytes of replicas that further sharding could save."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import NamedTuple

from ..layouts.dtypes import bits_of_name, packed_nbytes
from ..layouts.spec import finer_axes
from ..reports.array import ShardingDescription
from ..reports.tree import TreeMesh, TreeRow

UNNAMED_AXIS = "replicas"
"""Stand-in for the mesh axes of a sharding without a mesh."""


class Avoidable(NamedTuple):
    """What a device would save if a leaf were sharded further."""

    nbytes: int
    """Bytes per device; 0 if it cannot be sharded further."""

    axes: tuple[tuple[str, ...], ...]
    """Additional mesh axes of each array axis."""


NOTHING = Avoidable(0, ())


def avoidable(row: TreeRow, mesh: TreeMesh | None, excluded: Collection[str] = ()) -> Avoidable:
    """Return what a device would save if a leaf were also sharded over the mesh axes it is replicated over.

    A mesh axis counts as far as its size divides an axis of the leaf's shard. A sharding without a mesh
    counts as replicated over one axis with the size of its replicas.

    Args:
        row: The leaf.
        mesh: Its mesh; None without a sharding.
        excluded: Mesh axes over which replication is intended.
    """
    lengths = [dim for dim in row.shard_shape or () if isinstance(dim, int)]
    if mesh is None or row.replicas <= 1 or row.shard_nbytes is None or len(lengths) < len(row.shape):
        return NOTHING
    free = replicated_axes(row, mesh)
    if not free and mesh.axes is None:
        free = ((UNNAMED_AXIS, row.replicas),)
    axes = finer_axes(tuple(lengths), tuple(axis for axis in free if axis[0] not in excluded))
    sizes = dict(free)
    finer = [
        dim // math.prod(sizes[name] for name in names) for dim, names in zip(lengths, axes, strict=True)
    ]
    bits = bits_of_name(row.dtype)
    if bits is None and (count := math.prod(lengths)):
        bits = row.shard_nbytes * 8 // count  # the dtype of PRNG keys
    nbytes = packed_nbytes(finer, bits)
    saved = 0 if nbytes is None else row.shard_nbytes - nbytes
    return Avoidable(saved, axes) if saved > 0 else NOTHING


def replicated_axes(row: TreeRow, mesh: TreeMesh) -> tuple[tuple[str, int], ...]:
    """Return the name and size of each mesh axis of size 2 or more over which a leaf is replicated."""
    if mesh.axes is None or row.spec is None:
        return ()
    sizes = mesh.axes.shape
    unused = ShardingDescription(type="NamedSharding", spec=row.spec, mesh=mesh.axes).unused_axes
    return tuple((name, sizes[name]) for name in unused)
