"""Bytes that a device would save if leaves were sharded further, and the mesh axes to do so."""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ..facts.reports.array import ShardingDescription
from ..facts.reports.tree import TreeMesh, TreeRow
from ..geometry.layouts.spec import MIN_SHARD_ELEMENTS, Spec, advised_axes, effective_axes, finer_axes

UNNAMED_AXIS = "replicas"
"""Stand-in for the mesh axes of a sharding without a mesh."""


class Avoidable(NamedTuple):
    """What a device would save if a leaf were sharded further."""

    nbytes: int
    """Bytes per device; 0 if it cannot be sharded further."""

    axes: tuple[tuple[str, ...], ...]
    """Additional mesh axes of each array axis, as far as shards do not become small."""

    advised_nbytes: int
    """Bytes per device that these save; 0 if there are none."""

    padded: tuple[int, int] | None = None
    """The array axis that has to be padded first, and its length then; None if none has to be."""


_MOST_PADDING = 1 / 20
"""Largest part of an array axis that it is advised to be padded by."""
NOTHING = Avoidable(0, (), 0)


def avoidable(
    row: TreeRow, mesh: TreeMesh | None, excluded: Collection[str] = (), like: Spec | None = None
) -> Avoidable:
    """Return what a device would save if a leaf were also sharded over the mesh axes it is replicated over.

    A mesh axis counts as far as its size divides an axis of the leaf's shard. A sharding without a mesh
    counts as replicated over one axis with the size of its replicas.

    Args:
        row: The leaf.
        mesh: Its mesh; None without a sharding.
        excluded: Mesh axes over which replication is intended.
        like: Spec of the parameter of a moment, which is proposed first.
    """
    lengths = [dim for dim in row.shard_shape or () if isinstance(dim, int)]
    if mesh is None or row.replicas <= 1 or row.shard_nbytes is None or len(lengths) < len(row.shape):
        return NOTHING
    free = replicated_axes(row, mesh)
    if not free and mesh.axes is None:
        free = ((UNNAMED_AXIS, row.replicas),)
    every, shard_nbytes = free, row.shard_nbytes
    free = tuple(axis for axis in every if axis[0] not in excluded)
    sizes = dict(free)

    def saved(axes: tuple[tuple[str, ...], ...]) -> int:
        pairs = zip(lengths, axes, strict=True)
        nbytes = row.nbytes_of([dim // math.prod(sizes[name] for name in names) for dim, names in pairs])
        return 0 if nbytes is None else max(shard_nbytes - nbytes, 0)

    most = saved(finer_axes(tuple(lengths), free))
    if not most:
        return NOTHING if any(finer_axes(tuple(lengths), every)) else _padded(row, lengths, free)
    axes = advised_axes(tuple(lengths), free)
    used = {name for names in axes for name in names}
    over: tuple[tuple[str, ...], ...] = ()
    if like is not None and used:
        over = _over_axes_of(like, lengths, sizes)
    elif is_cache(row):
        over = _over_batch_and_heads(lengths, [axis for axis in free if axis[0] in used])
    axes = over if any(over) else axes
    return Avoidable(most, axes, saved(axes))


def _over_axes_of(
    spec: Spec, lengths: Sequence[int], sizes: Mapping[str, int]
) -> tuple[tuple[str, ...], ...]:
    """Return the given mesh axes of a spec, without those of array axes that they do not divide."""
    free = (
        tuple(name for name in names if name in sizes) for names in effective_axes(spec, {}, len(lengths))
    )
    return tuple(
        () if dim % math.prod(sizes[name] for name in names) else names
        for dim, names in zip(lengths, free, strict=True)
    )


def _padded(row: TreeRow, lengths: Sequence[int], free: Sequence[tuple[str, int]]) -> Avoidable:
    """Return what a device would save if one axis were padded a little and sharded over one mesh axis."""
    least = NOTHING
    for axis, (name, size) in itertools.product(range(len(lengths)), free):
        dim, shard = lengths[axis], -(-lengths[axis] // size)
        if dim != row.shape[axis] or shard * size > dim * (1 + _MOST_PADDING):
            continue
        dims = [*lengths[:axis], shard, *lengths[axis + 1 :]]
        saved = (row.shard_nbytes or 0) - (row.nbytes_of(dims) or 0)
        if saved > least.nbytes and math.prod(dims) >= MIN_SHARD_ELEMENTS:
            axes = tuple((name,) if place == axis else () for place in range(len(lengths)))
            least = Avoidable(saved, axes, saved, (axis, shard * size))
    return least


_CACHE = re.compile(r"cache|\bkv", re.IGNORECASE)
"""Part of the path of keys and values of an attention, which are kept for the tokens to come."""


def is_cache(row: TreeRow) -> bool:
    """Return whether a leaf is a cache of keys or values, with axes for batch, time, heads and features."""
    return len(row.shape) >= 4 and _CACHE.search(row.path) is not None


def _over_batch_and_heads(
    lengths: Sequence[int], free: Sequence[tuple[str, int]]
) -> tuple[tuple[str, ...], ...]:
    """Return the mesh axes that shard the batch and, as the last of them, the heads of a cache.

    Along the time, often the longest axis, each new token and each sum of an attention would cross devices.
    """
    ndim = len(lengths)

    def over(axis: int, free: Sequence[tuple[str, int]]) -> tuple[tuple[str, ...], ...]:
        return finer_axes(
            tuple(dim if place == axis else 1 for place, dim in enumerate(lengths)), tuple(free)
        )

    batch = over(ndim - 4, free[:-1] or free)
    rest = [axis for axis in free if axis[0] not in batch[ndim - 4]]
    heads = over(min(ndim - 3, ndim - 2, key=lengths.__getitem__), rest)
    return tuple(map(operator.add, batch, heads))


def replicated_axes(row: TreeRow, mesh: TreeMesh) -> tuple[tuple[str, int], ...]:
    """Return the name and size of each mesh axis of size 2 or more over which a leaf is replicated."""
    if mesh.axes is None or row.spec is None:
        return ()
    sizes = mesh.axes.shape
    unused = ShardingDescription(type="NamedSharding", spec=row.spec, mesh=mesh.axes).unused_axes
    return tuple((name, sizes[name]) for name in unused)
