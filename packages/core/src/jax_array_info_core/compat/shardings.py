"""Devices, meshes and shardings: their facts, and the layout of any ``jax.sharding.Sharding``."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, cast

import numpy as np

from ..base.errors import LayoutError, NotationError
from ..base.text import plain_text
from ..facts.reports.array import Dim, ShardingDescription
from ..geometry.layouts.layout import (
    DevicePlacement,
    Processes,
    ShardingLayout,
    as_shape,
    mesh_layout,
    require_few_axes,
    slices_layout,
)
from ..geometry.layouts.spec import MeshAxes, as_spec
from ..geometry.layouts.xla import parse_xla_sharding, xla_layout
from ..geometry.layouts.xla_sharding import XlaSharding
from . import private
from .values import (
    DeviceFacts,
    ShardingFacts,
    is_abstract_mesh,
    is_bare_xla_sharding,
    is_mesh,
    is_partition_spec,
    is_sharding,
)

if TYPE_CHECKING:
    from jax.sharding import NamedSharding, Sharding

    from ..geometry.layouts.links import Places


def sharding_facts(sharding: Any, shape: Sequence[Dim], *, is_decided: bool = True) -> ShardingFacts:
    """Return the facts about the sharding of an array.

    Args:
        sharding: Any sharding.
        shape: Shape of the array. A symbolic shape has no layout, nor do shards that do not form a grid.
        is_decided: Whether the sharding is complete. An incomplete one has no layout.
    """
    devices = DeviceFacts()
    if has_devices(sharding):
        placement = _placement(sharding)
        devices = device_facts(sharding.device_set, placement.ids, placement.processes)
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


def object_text(value: Any) -> str:
    """Return a sharding or a partition spec as short text; an empty string for any other value."""
    description = object_description(value)
    return "" if description is None or description.spec is None else description.with_mesh


def object_description(value: Any) -> ShardingDescription | None:
    """Return the spec and the mesh of an object; None if it has neither."""
    with contextlib.suppress(LayoutError):  # the mesh is empty
        if is_partition_spec(value):
            return ShardingDescription(type="PartitionSpec", spec=as_spec(value))
        if is_mesh(value):
            return ShardingDescription(type=type(value).__name__, mesh=mesh_axes(value))
        if is_sharding(value) and is_named(value):
            return describe_sharding(value, 0)
    return None


def has_devices(sharding: Any) -> bool:
    """Return whether a sharding has devices; on an abstract or an empty mesh it has none."""
    mesh = getattr(sharding, "mesh", None)
    return not is_abstract_mesh(mesh) and not getattr(mesh, "empty", False)


def device_processes(sharding: Any) -> Processes:
    """Return the ids of the devices of each process, even if there is only one process."""
    placement = _placement(sharding)
    owner = next(iter(sharding.device_set)).process_index
    return placement.processes or ((owner, tuple(placement.ids.ravel().tolist())),)  # type: ignore[union-attr]


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


def device_name(device: object) -> str:
    """Return the name of a device; ``TFRT_CPU_2``, as in JAX up to 0.9, becomes ``cpu:2`` as in newer JAX."""
    return plain_text(device).replace("TFRT_CPU_", "cpu:")


def device_placement(devices: Collection[Any]) -> DevicePlacement:
    """Return the ids, the platform and the processes of some devices.

    Raises:
        LayoutError: If ``devices`` is empty.
    """
    if not devices:
        raise LayoutError("the mesh is empty: a sharding needs at least one device")
    ids = np.fromiter(map(attrgetter("id"), devices), np.int64, len(devices))
    owners = np.fromiter(map(attrgetter("process_index"), devices), np.int64, len(devices))
    processes: Processes = ()
    if (owners != owners[0]).any():
        processes = tuple(
            (int(owner), tuple(np.sort(ids[owners == owner]).tolist())) for owner in np.unique(owners)
        )
    return DevicePlacement(ids, next(iter(devices)).platform, processes)


def device_places(devices: Sequence[Any]) -> Places:
    """Return where some devices are, in their order.

    A GPU with a ``slice_index`` is in an NVLink domain, which may have several processes: it counts as one
    host. A process of TPUs with coordinates or slices is one, too. Of other devices only the process is
    known: several processes may be on one host.

    Args:
        devices: The devices, at least one.
    """
    from ..geometry.layouts.links import Places, wraps_of  # arrays need neither
    from .topology_names import TPUS

    platform = devices[0].platform
    hosts = _numbers(devices, "process_index")
    slices = _numbers(devices, "slice_index")
    assert hosts is not None
    if platform == "gpu" and slices is not None:
        return Places(hosts=slices)
    coords = _numbers(devices, "coords") if platform == "tpu" else None
    if coords is None or coords.ndim != 2:
        slices = slices if platform == "tpu" else None
        return Places(hosts=hosts, slices=slices, are_processes=slices is None)
    chips = _numbers(_slice_of(devices[0]) or devices, "coords")
    assert chips is not None
    sides = tuple((1 + chips.max(0)).tolist())
    # A mesh may have only a part of a slice. Then the sides are unknown.
    if len(np.unique(chips, axis=0)) != math.prod(sides):
        return Places(hosts=hosts, slices=slices, coords=coords)
    known = next((tpu for tpu in TPUS.values() if tpu.device_kind == devices[0].device_kind), None)
    axes = known.axes if known else len(sides)
    wraps = wraps_of(known.torus if known else None, sides[:axes]) + (False,) * (len(sides) - axes)
    return Places(hosts=hosts, slices=slices, coords=coords, sides=sides, wraps=wraps)


def _numbers(devices: Sequence[Any], name: str) -> np.ndarray[Any, Any] | None:
    """Return an attribute of some devices as an array; None if one lacks it, or it is not a number."""
    try:
        return np.array([getattr(device, name) for device in devices], np.int64)
    except (AttributeError, TypeError, ValueError):
        return None


def _slice_of(device: Any) -> list[Any]:
    """Return all devices of a TPU's slice; empty if its client does not list them."""
    try:
        number = getattr(device, "slice_index", None)
        return [peer for peer in device.client.devices() if getattr(peer, "slice_index", None) == number]
    except Exception:
        return []


def device_facts(devices: Collection[Any], ids: Any, processes: Processes) -> DeviceFacts:
    """Return the facts about the devices of an array.

    Args:
        devices: The devices.
        ids: Their ids, a numpy array of any shape.
        processes: The device ids of each process; empty if all belong to one process.
    """
    local, single = local_first(devices), len(devices) == 1
    here = local.client.process_index()
    return DeviceFacts(
        ids=tuple(np.sort(ids, axis=None).tolist()),
        name=device_name(local) if single else None,
        is_default=not single or _is_first_device(local),
        default_memory_kind=default_memory_kind(local),
        visible=_visible_devices(local.platform),
        process=here if processes or local.process_index != here else None,
    )


def _visible_devices(platform: str) -> int | None:
    """Return the number of devices of a platform; None for a platform that is only a compilation target."""
    import jax

    try:
        return jax.device_count(platform)
    except RuntimeError:
        return None


def _is_first_device(device: Any) -> bool:
    """Return whether a device has the id of the first device of its platform, of all processes."""
    import jax

    try:
        return bool(device.id == jax.devices(device.platform)[0].id)
    except RuntimeError:
        return False  # a platform that is only a compilation target


def local_first(devices: Collection[Any]) -> Any:
    """Return the first device of this process, or the first of all if this process has none."""
    first = next(iter(devices))
    # The device's own backend has the process index; it may not be the default backend.
    here = first.client.process_index()
    return next((device for device in devices if device.process_index == here), first)


def default_memory_kind(device: Any) -> str | None:
    """Return a device's default memory kind; None if its backend has no memory kinds."""
    try:
        return str(device.default_memory().kind)
    except Exception:
        # Backends without memory kinds raise different errors, most of them XlaRuntimeError.
        return None


class MeshPlacement(NamedTuple):
    """A mesh as plain values."""

    axes: MeshAxes
    ids: np.ndarray[Any, Any] | None
    """Device ids in the shape of the mesh; None for an abstract mesh, whose devices are numbered 0…n−1."""
    platform: str | None
    processes: Processes


@functools.lru_cache(maxsize=64)
def mesh_placement(mesh: Any) -> MeshPlacement:
    """Return the axes, device ids, platform and processes of a Mesh or AbstractMesh.

    The result is cached, since reading 65,536 device ids is slow. JAX itself keeps meshes alive.
    """
    if is_abstract_mesh(mesh):
        return MeshPlacement(_axes(mesh), None, None, ())
    placement = device_placement([] if mesh.empty else mesh.devices.ravel().tolist())
    return MeshPlacement(
        _axes(mesh), placement.ids.reshape(mesh.devices.shape), placement.platform, placement.processes
    )


def _axes(mesh: Any) -> MeshAxes:
    sizes = {plain_text(name): int(size) for name, size in mesh.shape.items()}
    return MeshAxes(tuple(sizes), tuple(sizes.values()), mesh_axis_types(mesh))


def mesh_axis_types(mesh: Any) -> tuple[str, ...]:
    """Return ``Auto``, ``Explicit`` or ``Manual`` for each axis; an empty tuple if the mesh has no types.

    In JAX 0.4.38 and 0.5.3, the types are a dict from type to names.
    """
    types = getattr(mesh, "axis_types", None)
    if types is None:
        return ()
    if isinstance(types, dict):
        by_name = {
            name: axis_type
            for axis_type, names in types.items()
            for name in (names if isinstance(names, tuple) else (names,))
        }
        types = tuple(by_name.get(name) for name in mesh.axis_names)
    return tuple(getattr(axis_type, "name", str(axis_type)) for axis_type in types)


def mesh_axes(mesh: Any) -> MeshAxes:
    """Return the names, sizes and types of a mesh's axes."""
    return mesh_placement(mesh).axes


def concrete_mesh(mesh: Any) -> Any:
    """Return the mesh of ``jax.set_mesh`` whose abstract mesh this is, else the mesh itself.

    JAX refuses to run a program on other devices than those of ``jax.set_mesh``, which exists since 0.7.
    """
    import jax

    if not is_abstract_mesh(mesh) or not hasattr(jax, "set_mesh"):
        return mesh
    concrete: Any = getattr(private("mesh"), "get_concrete_mesh", lambda: None)()
    return concrete if getattr(concrete, "abstract_mesh", None) == mesh and not concrete.empty else mesh


def mesh_context(mesh: Any) -> AbstractContextManager[Any]:
    """Return a context in which specs without a mesh refer to a mesh, and ``jax.shard_map`` uses it.

    JAX has ``set_mesh`` since 0.7 and ``use_mesh`` since 0.5. Before, the mesh itself is the context.
    Up to JAX 0.4, an AbstractMesh has no effect.
    """
    import jax

    if is_abstract_mesh(mesh):
        enter = getattr(jax.sharding, "use_abstract_mesh", nullcontext)
    else:
        enter = getattr(jax, "set_mesh", None) or getattr(jax.sharding, "use_mesh", None)
    context: AbstractContextManager[Any] = mesh if enter is None else enter(mesh)
    return context
