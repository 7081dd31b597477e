"""Device ids in the shape of a report's mesh."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .layout import ShardingLayout
from .model import ArrayReport, MeshReport, ShardingDescription, XlaReport

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
        case MeshReport(layout=layout):
            return layout.device_ids[..., 0]
        case ArrayReport(sharding=ShardingDescription() as sharding, layout=ShardingLayout() as layout):
            return _unplaced(layout, sharding)
        case XlaReport(mesh=mesh) if mesh is not None:
            # XLA numbers the devices in the order of the mesh.
            return np.arange(math.prod(mesh.sizes)).reshape(mesh.sizes)
    return None


def _unplaced(layout: ShardingLayout, sharding: ShardingDescription) -> NDArray[np.int64] | None:
    """Return what ``mesh_layout`` transposed and reshaped, as it was before."""
    mesh, spec = sharding.mesh, sharding.spec
    if mesh is None or spec is None:
        return None
    order = {name: number for number, name in enumerate(mesh.names)}
    used = [order.pop(name, None) for names in spec.axes for name in names]
    if None in used or math.prod(mesh.sizes) != layout.device_ids.size:
        return None  # a report from a file may contradict itself
    placed = [axis for axis in (*used, *order.values()) if axis is not None]
    ids = layout.device_ids.reshape([mesh.sizes[axis] for axis in placed])
    return ids.transpose(np.argsort(placed))
