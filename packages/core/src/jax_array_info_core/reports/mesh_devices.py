"""Device ids in the shape of a report's mesh."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..layouts.layout import ShardingLayout
from ..layouts.spec import MeshAxes, Spec
from .array import ArrayReport, ShardingDescription
from .mesh import MeshReport, XlaReport

Placed = ArrayReport | MeshReport | ShardingLayout | XlaReport
"""The reports that may know which device holds what."""


def shared_mesh(reports: Sequence[Placed]) -> NDArray[np.int64]:
    """Return the ids of the devices of the first mesh that has all devices of some reports, of its shape.

    Where there is none, the ids of all devices in ascending order.
    """
    layouts = [report if isinstance(report, ShardingLayout) else report.layout for report in reports]
    held = [layout.device_ids.reshape(-1) for layout in layouts if layout is not None]
    devices = np.unique(np.concatenate(held)) if held else np.arange(0)
    for report in reports:
        mesh = mesh_device_ids(report)
        if mesh is not None and np.isin(devices, mesh).all():
            return mesh
    return devices


def mesh_device_ids(report: Placed) -> NDArray[np.int64] | None:
    """Return the ids of the devices of a report's mesh, of the shape of the mesh.

    None where the report has no mesh, or no spec and layout that tell where its devices are.
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
    """Return whether a layout has one device for each place in a mesh; that of a file may have others."""
    is_sound = len(mesh.names) == len(mesh.sizes) and min(mesh.sizes, default=1) > 0
    return is_sound and math.prod(mesh.sizes) == layout.device_ids.size


def _unplaced(layout: ShardingLayout, mesh: MeshAxes, spec: Spec) -> NDArray[np.int64] | None:
    """Return what ``mesh_layout`` transposed and reshaped, as it was before."""
    order = {name: number for number, name in enumerate(mesh.names)}
    used = [order.pop(name, None) for names in spec.axes for name in names]
    placed = [axis for axis in (*used, *order.values()) if axis is not None]
    if sorted(placed) != list(range(len(mesh.sizes))) or None in used:
        return None
    ids = layout.device_ids.reshape([mesh.sizes[axis] for axis in placed])
    return ids.transpose(np.argsort(placed))
