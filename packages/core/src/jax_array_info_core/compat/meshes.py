"""Meshes: axis sizes, axis types, devices and processes."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np

from ..layouts.layout import Processes
from ..layouts.spec import MeshAxes
from ..text import plain_text
from .devices import placement
from .values import is_abstract_mesh


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
