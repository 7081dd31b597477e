"""Devices and meshes."""

from __future__ import annotations

import functools
from collections.abc import Collection
from contextlib import AbstractContextManager
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from ..errors import LayoutError
from ..layouts.layout import Placement, Processes
from ..layouts.spec import MeshAxes
from ..text import plain_text
from .values import DeviceFacts, is_abstract_mesh


def device_name(device: object) -> str:
    """Return the name of a device; ``TFRT_CPU_2``, as in JAX up to 0.9, becomes ``cpu:2`` as in newer JAX."""
    return plain_text(device).replace("TFRT_CPU_", "cpu:")


def placement(devices: Collection[Any]) -> Placement:
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
    return Placement(ids, next(iter(devices)).platform, processes)


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
        is_default=not single or _is_default_device(local),
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


def _is_default_device(device: Any) -> bool:
    """Return whether a device is JAX's default device, or the default device of its platform."""
    import jax

    default = jax.config.jax_default_device
    if default is None or isinstance(default, str):
        try:
            default = jax.local_devices(backend=default or device.platform)[0]
        except RuntimeError:
            return False
    return bool(device == default)


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
    sizes = {plain_text(name): int(size) for name, size in mesh.shape.items()}
    axes = MeshAxes(tuple(sizes), tuple(sizes.values()), mesh_axis_types(mesh))
    if is_abstract_mesh(mesh):
        return MeshPlacement(axes, None, None, ())
    found = placement([] if mesh.empty else mesh.devices.ravel().tolist())
    return MeshPlacement(axes, found.ids.reshape(mesh.devices.shape), found.platform, found.processes)


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


def mesh_context(mesh: Any) -> AbstractContextManager[Any]:
    """Return a context in which specs without a mesh refer to a Mesh, and ``jax.shard_map`` uses it.

    JAX has ``set_mesh`` since 0.7 and ``use_mesh`` since 0.5. Before, the mesh itself is the context.
    """
    import jax

    enter = getattr(jax, "set_mesh", None) or getattr(jax.sharding, "use_mesh", None)
    context: AbstractContextManager[Any] = mesh if enter is None else enter(mesh)
    return context
