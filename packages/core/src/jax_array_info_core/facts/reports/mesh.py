"""Reports on a mesh, on one shard and on an XLA sharding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ...base import quantities
from ...base.notebooks import Displayed
from ...geometry.layouts.layout import Processes, ShardingLayout
from ...geometry.layouts.links import AxisLinks
from ...geometry.layouts.spec import MeshAxes, Spec
from .array import ArrayReport, ShardingDescription
from .findings import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport(Displayed):
    """The shard of an array on one device."""

    device_id: int
    """Id of the device."""

    index: tuple[tuple[int, int], ...]
    """Start and stop of the shard along each axis of the array."""

    nbytes: quantities.Size | None
    """Bytes of the shard; None if the size of the dtype is not known."""

    holders: tuple[int, ...]
    """Ids of all devices that hold this shard, or partial sums of it, including this device."""

    partial_sums: quantities.Count = 1
    """Number of partial sums of this shard; 1 for an array that is not unreduced."""

    platform: str | None = None
    """Platform of the devices; None for a mesh without devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshReport(Displayed):
    """The axes of a mesh and the position of each device."""

    axes: MeshAxes
    """Names, sizes and types of the axes."""

    layout: ShardingLayout
    """Layout of an array that has the shape of the mesh and one element per device."""

    links: tuple[AxisLinks, ...] = ()
    """How neighbors along each axis are connected, in the order of the axes; empty for a mesh without
    devices."""

    hosts: Processes = ()
    """``(host, ids of its devices)``; empty if all devices are on one host, the mesh has none, or only the
    processes are known, which ``layout`` has. A host is a process of TPUs with coordinates or slices, a
    ``slice_index`` of GPUs that have one, or an equal part of the devices of a planned mesh."""

    slices: Processes = ()
    """``(slice, ids of its devices)`` of TPUs; empty for a single slice."""

    topology: str | None = None
    """Topology that was planned for, such as ``2*v5p:2x2x1``."""

    order: str | None = None
    """Order of the devices that was assumed, such as that of ``jax.make_mesh``; None for a mesh of
    devices."""

    findings: tuple[Finding, ...] = ()
    """Axes that leave a host, a slice or a process although they would not in the order of
    ``jax.make_mesh``."""

    def __post_init__(self) -> None:
        if self.axes.sizes != self.layout.shape:
            raise ValueError(f"a mesh of sizes {self.axes.sizes} with a layout of shape {self.layout.shape}")
        for noun, owners in (("host", self.hosts), ("slice", self.slices)):
            owned = np.fromiter(chain.from_iterable(devices for _, devices in owners), np.int64)
            if owners and not np.isin(self.layout.device_ids, owned).all():
                raise ValueError(f"a mesh with devices in no {noun}")


@dataclass(frozen=True, slots=True, kw_only=True)
class XlaReport(Displayed):
    """Explanation of an XLA sharding: its equivalent PartitionSpec, and the devices of each shard."""

    text: str
    """The sharding in XLA's notation; a PartitionSpec if it names mesh axes of unknown sizes."""

    kind: str
    """Form of the sharding: ``replicated``, ``manual``, ``unreduced``, ``unknown``, ``maximal`` or ``tiled``.
    """

    mesh: MeshAxes | None = None
    """Mesh that you passed, or the mesh in the text; None without either."""

    spec: Spec | None = None
    """Equivalent PartitionSpec on ``mesh``; None if no spec is equivalent, or ``mesh`` is None and the
    sharding does not name mesh axes."""

    patterns: tuple[str, ...] = ()
    """Lines of ``describe_pattern``: the devices of the shards along each axis, and of the replicas."""

    uneven: tuple[str, ...] = ()
    """Description of each array axis that is not divisible by its number of shards, with a fix."""

    layout: ShardingLayout | None = None
    """Layout of an array of the shape that you passed or, without a shape, of an array with one element
    per tile. None for shardings without device ids, such as ``{manual}``."""


Placed = ArrayReport | MeshReport | ShardingLayout | XlaReport
"""Reports that can have a layout."""


def shared_mesh(reports: Sequence[Placed]) -> NDArray[np.int64]:
    """Return the device ids of the first mesh that has all devices of some reports, in its shape.

    Without such a mesh, return the ids of all devices in ascending order, of shape ``(devices,)``.
    """
    layouts = [report if isinstance(report, ShardingLayout) else report.layout for report in reports]
    ids = [layout.device_ids.reshape(-1) for layout in layouts if layout is not None]
    devices = np.unique(np.concatenate(ids)) if ids else np.arange(0)
    for report in reports:
        mesh = mesh_device_ids(report)
        if mesh is not None and np.isin(devices, mesh).all():
            return mesh
    return devices


def mesh_device_ids(report: Placed) -> NDArray[np.int64] | None:
    """Return the device ids of a report's mesh, in the shape of the mesh.

    None where the report has no mesh, or lacks the spec or the layout from which the ids follow.
    """
    match report:
        case ArrayReport(
            layout=ShardingLayout() as layout,
            sharding=ShardingDescription(mesh=MeshAxes() as mesh, spec=Spec() as spec),
        ) if _fits(mesh, layout):
            return _unplaced(layout, mesh, spec)
        case XlaReport(layout=ShardingLayout() as layout, mesh=MeshAxes() as mesh) if _fits(mesh, layout):
            # XLA numbers the devices in the order of the mesh.
            return np.arange(layout.device_ids.size).reshape(mesh.sizes)
        case MeshReport(layout=layout, axes=mesh) if _fits(mesh, layout):
            return layout.device_ids.reshape(mesh.sizes)
    return None


def _fits(mesh: MeshAxes, layout: ShardingLayout) -> bool:
    """Return whether a layout has one device for each position in a mesh; one read from JSON may not."""
    return min(mesh.sizes, default=1) > 0 and math.prod(mesh.sizes) == layout.device_ids.size


def _unplaced(layout: ShardingLayout, mesh: MeshAxes, spec: Spec) -> NDArray[np.int64] | None:
    """Return the device ids of the mesh: the inverse of ``mesh_layout``."""
    order = {name: number for number, name in enumerate(mesh.names)}
    used = [order.pop(name, None) for names in (*spec.axes, spec.unreduced) for name in names]
    placed = [axis for axis in (*used, *order.values()) if axis is not None]
    if sorted(placed) != list(range(len(mesh.sizes))) or None in used:
        return None
    return layout.device_ids.reshape([mesh.sizes[axis] for axis in placed]).transpose(np.argsort(placed))
