"""Additional mesh axes over which a shard could be sharded."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

MAX_CANDIDATES = 2500
"""Maximum number of assignments that are compared; only meshes of many axes have more."""


@functools.lru_cache(maxsize=4096)
def finer_axes(
    shard_shape: tuple[int, ...], mesh_axes: tuple[tuple[str, int], ...]
) -> tuple[tuple[str, ...], ...]:
    """Return the mesh axes over which each array axis of a shard could additionally be sharded.

    Each mesh axis shards at most one array axis, whose length must be divisible by it. Among the assignments
    with the most shards, the one with the fewest and longest array axes is returned.

    Args:
        shard_shape: Shape of the shard.
        mesh_axes: Name and size of each mesh axis that does not shard the array yet.

    >>> finer_axes((2048, 26), (("fsdp", 4), ("expert", 2)))
    (('fsdp', 'expert'), ())
    """
    found: dict[tuple[int, ...], tuple[tuple[str, ...], ...]] = {shard_shape: ((),) * len(shard_shape)}
    kept_count = max(1, MAX_CANDIDATES // max(1, len(shard_shape) * len(mesh_axes)))
    for name, size in mesh_axes:
        if size <= 1:
            continue
        more = dict(found)
        for shape, axes in found.items():
            for axis, dim in enumerate(shape):
                if dim and dim % size == 0:
                    finer = (*shape[:axis], dim // size, *shape[axis + 1 :])
                    candidate = (*axes[:axis], (*axes[axis], name), *axes[axis + 1 :])
                    if finer not in more or _used(candidate) < _used(more[finer]):
                        more[finer] = candidate
        if len(more) > kept_count:
            kept = sorted(more, key=lambda shape: (math.prod(shape), _used(more[shape])))[:kept_count]
            more = {shape: more[shape] for shape in kept}
        found = more

    def preference(shape: tuple[int, ...]) -> tuple[int, int, int]:
        axes = found[shape]
        length = sum(dim for dim, names in zip(shard_shape, axes, strict=True) if names)
        return math.prod(shape), _used(axes), -length

    return found[min(found, key=preference)]


def _used(axes: Sequence[tuple[str, ...]]) -> int:
    """Return the number of array axes that are sharded."""
    return sum(map(bool, axes))
