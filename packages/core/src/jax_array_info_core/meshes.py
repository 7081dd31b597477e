"""A mesh → its sizes, its devices, their processes."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from .devices import placement
from .layout import Processes
from .units import plain_text
from .values import is_abstract_mesh


class MeshPlacement(NamedTuple):
    """What a layout needs to know of a mesh."""

    sizes: dict[str, int]
    """Size of each axis, in order."""
    ids: np.ndarray[Any, Any] | None
    """Ids of its devices in its shape; None where it has none, and they are numbered 0…n−1."""
    platform: str | None
    processes: Processes


@functools.lru_cache(maxsize=64)
def mesh_placement(mesh: Any) -> MeshPlacement:
    """Return axes, device ids, platform and processes of a Mesh or AbstractMesh.

    Remembered for each mesh, as JAX itself keeps them: reading ids is what costs at 65,536 devices.
    """
    sizes = {plain_text(name): int(size) for name, size in mesh.shape.items()}
    if is_abstract_mesh(mesh):
        return MeshPlacement(sizes, None, None, ())
    found = placement([] if mesh.empty else mesh.devices.ravel().tolist())
    return MeshPlacement(sizes, found.ids.reshape(mesh.devices.shape), found.platform, found.processes)
