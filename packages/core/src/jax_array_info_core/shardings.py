"""Any ``jax.sharding.Sharding`` → its description and its layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import compat
from .errors import LayoutError
from .layout import ShardingLayout, mesh_layout, slices_layout
from .model import MeshAxes, ShardingDescription, Spec

if TYPE_CHECKING:
    from jax.sharding import Sharding


def sharding_layout(shape: Sequence[int], sharding: Sharding) -> ShardingLayout:
    """Return which device holds which slice of an array.

    A NamedSharding is laid out in closed form from its mesh and spec, an XLA sharding (GSPMDSharding,
    PositionalSharding) from its tiles, any other from its own ``devices_indices_map``. No shard is
    touched and no array is made.

    Args:
        shape: Shape of the whole array. An axis need not divide by the number of its shards: the
            last ones are then smaller or empty, as inside jit.
        sharding: Any sharding; a NamedSharding's mesh may be abstract, its devices are then numbered 0…n−1.

    Raises:
        LayoutError: the sharding does not fit the shape, or its shards are no regular grid.

    >>> import jax
    >>> mesh = jax.sharding.Mesh(jax.devices()[:1], ("data",))
    >>> spec = jax.sharding.PartitionSpec(None, "data")
    >>> sharding_layout((4, 8), jax.sharding.NamedSharding(mesh, spec)).index_of(0)
    (slice(0, 4, None), slice(0, 8, None))
    """
    return _layout(tuple(shape), sharding)


def _layout(shape: tuple[int, ...], sharding: Any) -> ShardingLayout:
    if is_named(sharding):
        mesh = sharding.mesh
        ids, platform = compat.mesh_devices(mesh)
        sizes = {str(name): int(size) for name, size in mesh.shape.items()}
        return mesh_layout(shape, sizes, spec_of(sharding).axes, ids, platform=platform)
    devices = compat.device_assignment(sharding, shape)
    ids = np.array([device.id for device in devices])
    platform = devices[0].platform
    if len(ids) == 1:
        return ShardingLayout(shape, ids.reshape((1,) * (len(shape) + 1)), platform)
    if tiling := compat.xla_tiling(sharding, len(shape)):
        counts, positions = tiling
        return ShardingLayout(shape, ids[positions].reshape(*counts, -1), platform)
    try:
        slices = {
            device.id: tuple(map(_as_slice, index))
            for device, index in sharding.devices_indices_map(shape).items()
        }
    except ValueError as error:
        raise LayoutError(
            f"{type(sharding).__name__} does not fit an array of shape {shape}: {error}"
        ) from error
    return slices_layout(shape, slices, platform=platform)


def _as_slice(piece: slice | int) -> slice:
    """Return the slice for one axis; PmapSharding gives a number where each device holds one element."""
    return piece if isinstance(piece, slice) else slice(piece, piece + 1)


def is_named(sharding: Any) -> bool:
    """Return whether a sharding is made of a mesh and a spec."""
    return hasattr(sharding, "mesh") and hasattr(sharding, "spec")


def spec_of(sharding: Any) -> Spec:
    """Return a NamedSharding's spec, an entry such as ``('data',)`` written like ``'data'``."""
    from jax.sharding import PartitionSpec

    spec = sharding.spec
    axes: list[tuple[str, ...]] = []
    unconstrained: list[int] = []
    for axis, entry in enumerate(compat.spec_entries(spec)):
        if entry is PartitionSpec.UNCONSTRAINED:
            unconstrained.append(axis)
            entry = None
        names = () if entry is None else entry if isinstance(entry, (tuple, list)) else (entry,)
        axes.append(tuple(map(str, names)))
    unreduced = tuple(sorted(map(str, getattr(spec, "unreduced", ()))))
    return Spec(tuple(axes), tuple(unconstrained), unreduced)


def describe_sharding(sharding: Any, ndim: int) -> ShardingDescription:
    """Return a sharding in words."""
    kind = type(sharding).__name__
    if is_named(sharding):
        mesh = sharding.mesh
        axes = MeshAxes(
            tuple(map(str, mesh.axis_names)),
            tuple(int(size) for size in mesh.shape.values()),
            compat.mesh_axis_types(mesh),
        )
        return ShardingDescription(kind, spec_of(sharding), axes)
    text = None if sharding.num_devices == 1 else compat.xla_text(sharding, ndim)
    return ShardingDescription(kind, text=text)
