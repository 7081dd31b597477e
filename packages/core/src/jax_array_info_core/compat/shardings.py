"""Shardings: the description, the layout and the devices of any ``jax.sharding.Sharding``."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from ..errors import LayoutError, NotationError
from ..layouts.layout import (
    DevicePlacement,
    Processes,
    ShardingLayout,
    as_shape,
    mesh_layout,
    require_few_axes,
    slices_layout,
)
from ..layouts.spec import as_spec
from ..layouts.xla import parse_xla_sharding, xla_layout
from ..layouts.xla_sharding import XlaSharding
from ..reports.array import Dim, ShardingDescription
from .devices import (
    MeshPlacement,
    default_memory_kind,
    device_facts,
    device_placement,
    local_first,
    mesh_axes,
    mesh_placement,
)
from .values import DeviceFacts, ShardingFacts, is_abstract_mesh, is_bare_xla_sharding

if TYPE_CHECKING:
    from jax.sharding import NamedSharding, Sharding


def sharding_facts(sharding: Any, shape: Sequence[Dim], *, is_decided: bool = True) -> ShardingFacts:
    """Return the facts about the sharding of an array.

    Args:
        sharding: Any sharding.
        shape: Shape of the array. A symbolic shape has no layout, nor do shards that do not form a grid.
        is_decided: Whether the sharding is complete. An incomplete one has no layout.
    """
    devices = DeviceFacts()
    if has_devices(sharding):
        found = _placement(sharding)
        devices = device_facts(sharding.device_set, found.ids, found.processes)
    return ShardingFacts(
        description=describe_sharding(sharding, len(shape)),
        layout=_layout_if_regular(shape, sharding) if is_decided else None,
        memory_kind=sharding.memory_kind,
        devices=devices,
    )


def describe_sharding(sharding: Any, ndim: int) -> ShardingDescription:
    """Return the type of a sharding with its spec and mesh, or with XLA's text for it."""
    class_name = type(sharding).__name__
    if is_named(sharding):
        mesh = None
        with contextlib.suppress(LayoutError):  # JAX accepts axes of size 0 and two of one name
            mesh = mesh_axes(sharding.mesh)
        return ShardingDescription(type=class_name, spec=as_spec(sharding.spec), mesh=mesh)
    return ShardingDescription(
        type=class_name, text=None if sharding.num_devices == 1 else _xla_text(sharding, ndim)
    )


def has_devices(sharding: Any) -> bool:
    """Return whether a sharding has devices; on an abstract or an empty mesh it has none."""
    mesh = getattr(sharding, "mesh", None)
    return not is_abstract_mesh(mesh) and not getattr(mesh, "empty", False)


def device_processes(sharding: Any) -> Processes:
    """Return the ids of the devices of each process, even if there is only one process."""
    found = _placement(sharding)
    owner = next(iter(sharding.device_set)).process_index
    return found.processes or ((owner, tuple(found.ids.ravel().tolist())),)  # type: ignore[union-attr]


def _placement(sharding: Any) -> MeshPlacement | DevicePlacement:
    """Return the devices of a sharding. Those of a mesh are cached, since reading 65,536 is slow."""
    return mesh_placement(sharding.mesh) if is_named(sharding) else device_placement(sharding.device_set)


def host_memory_kind(sharding: Any) -> str | None:
    """Return the memory kind of a sharding in host memory; None for the default memory of its devices."""
    kind: str | None = sharding.memory_kind
    if kind is None or "host" not in kind:
        return None
    default = default_memory_kind(local_first(sharding.device_set)) if has_devices(sharding) else None
    return None if kind == default else kind


def is_named(sharding: Any) -> TypeGuard[NamedSharding]:
    """Return whether a sharding has a mesh and a spec."""
    return hasattr(sharding, "mesh") and hasattr(sharding, "spec")


def _layout_if_regular(shape: Sequence[Dim], sharding: Any) -> ShardingLayout | None:
    """Return the layout; None if the shape is symbolic or the shards do not form a regular grid."""
    if not all(isinstance(dim, int) for dim in shape):
        return None
    try:
        return sharding_layout(cast(Sequence[int], shape), sharding)
    except LayoutError:
        return None


def sharding_layout(shape: Sequence[int], sharding: Sharding | Any) -> ShardingLayout:
    """Return the layout of an array: the slice that each device holds.

    For a NamedSharding, the function computes the layout in closed form from the mesh and the spec. For a
    GSPMDSharding or PositionalSharding, it uses the tiles of the equivalent XLA sharding; for any other
    sharding, it calls ``devices_indices_map``. It reads no shards and creates no arrays.

    Args:
        shape: Global shape of the array. If an axis is not divisible by its number of shards, the last shards
            have fewer elements or none. Inside jit, XLA pads them to the size of the first.
        sharding: Any sharding. The devices of an abstract mesh or of a bare HloSharding are numbered 0…n−1.

    Raises:
        LayoutError: (a ValueError) If the sharding does not fit the shape, or its shards do not form a
            regular grid.
        UnsupportedValueError: (a ValueError) If ``shape`` is not a sequence of integers.

    >>> import jax
    >>> mesh = jax.sharding.Mesh(jax.devices()[:1], ("data",))
    >>> spec = jax.sharding.PartitionSpec(None, "data")
    >>> sharding_layout((4, 8), jax.sharding.NamedSharding(mesh, spec)).index_of(0)
    (slice(0, 4, None), slice(0, 8, None))
    """
    shape = as_shape(shape)
    require_few_axes(len(shape))
    if is_named(sharding):
        axes, ids, platform, processes = mesh_placement(sharding.mesh)
        spec = as_spec(sharding.spec)
        return mesh_layout(shape, axes.shape, spec.axes, ids, platform, processes, spec.unreduced)
    if is_bare_xla_sharding(sharding):
        tiles, devices = parse_xla_sharding(str(sharding)), None
    else:
        devices = device_placement(device_assignment(sharding, shape))
        tiles = _tiles(sharding, len(shape), len(devices.ids))
    layout = xla_layout(shape, tiles, devices)
    if layout is not None:
        return layout
    if devices is None:
        raise LayoutError(
            f"{tiles} does not list the device of each shard of an array of shape {shape}: "
            "pass the sharding of an array of this shape"
        )
    try:
        slices = {
            device.id: tuple(map(_as_slice, index))
            for device, index in sharding.devices_indices_map(shape).items()
        }
    except (AssertionError, NotImplementedError, ValueError) as error:
        raise LayoutError(
            f"{type(sharding).__name__} does not fit an array of shape {shape}: {error}. "
            "Use a sharding with as many entries as the array has axes"
        ) from error
    return slices_layout(shape, slices, platform=devices.platform, processes=devices.processes)


def _tiles(sharding: Any, ndim: int, device_count: int) -> XlaSharding:
    """Return a sharding in XLA's tiled form, ``unknown`` if it has none."""
    if device_count == 1:
        return XlaSharding("replicated")
    try:
        return parse_xla_sharding(_xla_text(sharding, ndim) or "")
    except NotationError:
        return XlaSharding("unknown")


def _as_slice(piece: slice | int) -> slice:
    """Return the slice along one axis; PmapSharding gives an int if each device holds one element."""
    return piece if isinstance(piece, slice) else slice(piece, piece + 1)


def device_assignment(sharding: Any, shape: Sequence[int]) -> list[Any]:
    """Return the devices of a sharding in XLA's order."""
    devices = getattr(sharding, "_device_assignment", None)
    return list(sharding.devices_indices_map(tuple(shape)) if devices is None else devices)


def _xla_text(sharding: Any, ndim: int) -> str | None:
    """Return XLA's text for a sharding, such as ``{devices=[8,1]<=[8]}``; None if it has none."""
    try:
        return str(sharding._to_xla_hlo_sharding(ndim))
    except (AttributeError, NotImplementedError):
        return None
