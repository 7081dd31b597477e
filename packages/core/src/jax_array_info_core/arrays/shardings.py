"""Any ``jax.sharding.Sharding`` → its description and its layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import compat
from ..compat import values
from ..compat.devices import placement
from ..compat.meshes import mesh_placement
from ..compat.partition_specs import as_spec
from ..errors import LayoutError, NotationError
from ..layouts.layout import ShardingLayout, mesh_layout, require_few_axes, slices_layout
from ..layouts.xla import XlaSharding, parse_xla_sharding
from ..reports.array import ShardingDescription
from ..reports.mesh import MeshReport

if TYPE_CHECKING:
    from jax.sharding import Sharding
from ..layouts.xla import xla_layout


def sharding_layout(shape: Sequence[int], sharding: Sharding | Any) -> ShardingLayout:
    """Return which device holds which slice of an array.

    A NamedSharding is laid out in closed form from its mesh and spec, an XLA sharding (GSPMDSharding,
    PositionalSharding) from its tiles, any other from its own ``devices_indices_map``. No shard is
    touched and no array is made.

    Args:
        shape: Shape of the whole array. An axis need not divide by the number of its shards: the
            last ones are then smaller or empty, as inside jit.
        sharding: Any sharding. The devices of an abstract mesh, or of XLA's bare HloSharding, are
            numbered 0…n−1.

    Raises:
        LayoutError: the sharding does not fit the shape, or its shards are no regular grid.

    >>> import jax
    >>> mesh = jax.sharding.Mesh(jax.devices()[:1], ("data",))
    >>> spec = jax.sharding.PartitionSpec(None, "data")
    >>> sharding_layout((4, 8), jax.sharding.NamedSharding(mesh, spec)).index_of(0)
    (slice(0, 4, None), slice(0, 8, None))
    """
    return _layout(tuple(map(int, shape)), sharding)


def _layout(shape: tuple[int, ...], sharding: Any) -> ShardingLayout:
    require_few_axes(len(shape))
    if is_named(sharding):
        sizes, ids, platform, processes = mesh_placement(sharding.mesh)
        return mesh_layout(shape, sizes, as_spec(sharding.spec).axes, ids, platform, processes)
    if values.is_bare_xla_sharding(sharding):
        found = parse_xla_sharding(str(sharding))
        layout = xla_layout(shape, found)
        if layout is None:
            raise LayoutError(f"{found} does not say which device holds what of an array of shape {shape}")
        return layout
    devices = placement(compat.device_assignment(sharding, shape))
    if len(devices.ids) == 1:
        found = XlaSharding("replicated")
    else:
        try:
            found = parse_xla_sharding(compat.xla_text(sharding, len(shape)) or "")
        except NotationError:
            found = XlaSharding("unknown")
    layout = xla_layout(shape, found, devices)
    if layout is not None:
        return layout
    try:
        slices = {
            device.id: tuple(map(_as_slice, index))
            for device, index in sharding.devices_indices_map(shape).items()
        }
    except (AssertionError, NotImplementedError, ValueError) as error:
        raise LayoutError(
            f"{type(sharding).__name__} does not fit an array of shape {shape}: {error}"
        ) from error
    return slices_layout(shape, slices, platform=devices.platform, processes=devices.processes)


def _as_slice(piece: slice | int) -> slice:
    """Return the slice for one axis; PmapSharding gives a number where each device holds one element."""
    return piece if isinstance(piece, slice) else slice(piece, piece + 1)


def is_named(sharding: Any) -> bool:
    """Return whether a sharding is made of a mesh and a spec."""
    return hasattr(sharding, "mesh") and hasattr(sharding, "spec")


def mesh_report(mesh: Any) -> MeshReport:
    """Return the report of a ``jax.sharding.Mesh`` or AbstractMesh: its axes and where its devices are."""
    sizes, ids, platform, processes = mesh_placement(mesh)
    names = tuple((name,) for name in sizes)
    layout = mesh_layout(tuple(sizes.values()), sizes, names, ids, platform, processes)
    return MeshReport(axes=compat.mesh_axes(mesh), layout=layout)


def describe_sharding(sharding: Any, ndim: int) -> ShardingDescription:
    """Return a sharding in words."""
    kind = type(sharding).__name__
    if is_named(sharding):
        return ShardingDescription(
            type=kind, spec=as_spec(sharding.spec), mesh=compat.mesh_axes(sharding.mesh)
        )
    text = None if sharding.num_devices == 1 else compat.xla_text(sharding, ndim)
    return ShardingDescription(type=kind, text=text)
