"""Reports on JAX objects other than arrays: shardings, partition specs, meshes and shards."""

from __future__ import annotations

import contextlib
from typing import Any

from .. import compat
from ..compat import values
from ..compat.devices import default_memory_kind, device_name, local_first, mesh_axes, mesh_placement
from ..compat.shardings import describe_sharding, has_devices, is_named
from ..errors import LayoutError
from ..layouts.layout import mesh_layout
from ..layouts.notation import format_mesh
from ..layouts.partition_specs import as_spec
from ..reports.array import ArrayReport, ShardingDescription
from ..reports.mesh import MeshReport


def object_report(value: Any, name: str | None) -> ArrayReport:
    """Return the report of an object that is neither an array nor a container."""
    import jax

    type_name = values.type_name(value)
    if issubclass(type(value), jax.Shard):
        device, index, replica = compat.shard_place(value)
        return ArrayReport(
            name=name,
            kind="object",
            type_name=type_name,
            device=device_name(device),
            index=index,
            replica=replica,
        )
    description = _description(value)
    if not values.is_sharding(value) or not has_devices(value):
        if description is not None and description.mesh is None:
            type_name = description.type  # in JAX 0.12, the class PartitionSpec is named P
        return ArrayReport(name=name, kind="object", type_name=type_name, sharding=description)
    devices = sorted(device.id for device in value.device_set)
    local = local_first(value.device_set)
    return ArrayReport(
        name=name,
        kind="object",
        type_name=type_name,
        sharding=description,
        memory_kind=value.memory_kind,
        default_memory_kind=default_memory_kind(local),
        devices=tuple(devices),
        device=device_name(local) if len(devices) == 1 else None,
    )


def object_text(value: Any) -> str:
    """Return a sharding or a partition spec as short text; an empty string for any other value."""
    description = _description(value)
    if description is None or description.spec is None:
        return ""
    mesh = f" over {format_mesh(description.mesh.shape)}" if description.mesh else ""
    return f"{description.spec}{mesh}"


def _description(value: Any) -> ShardingDescription | None:
    """Return the spec and the mesh of an object; None if it has neither."""
    with contextlib.suppress(LayoutError):  # the mesh is empty
        if values.is_partition_spec(value):
            return ShardingDescription(type="PartitionSpec", spec=as_spec(value))
        if values.is_mesh(value):
            return ShardingDescription(type=type(value).__name__, mesh=mesh_axes(value))
        if values.is_sharding(value) and is_named(value):
            return describe_sharding(value, 0)
    return None


def mesh_report(mesh: Any) -> MeshReport:
    """Return the report of a ``jax.sharding.Mesh`` or AbstractMesh: its axes and device positions."""
    axes, ids, platform, processes = mesh_placement(mesh)
    names = [(name,) for name in axes.names]
    layout = mesh_layout(axes.sizes, axes.shape, names, ids, platform, processes)
    return MeshReport(axes=axes, layout=layout)
