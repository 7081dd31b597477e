"""The devices and mesh axes for which a program is lowered and compiled."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..layouts.spec import MeshAxes
from .meshes import mesh_axes


class LoweringPlace(NamedTuple):
    """The target of a lowering: of a program, or of a shard_map inside it."""

    device_count: int
    """Number of devices. Only the compilation determines which ones (``compilation_of``)."""

    mesh: MeshAxes | None = None
    """Inside shard_map and pmap: the axes of the mesh."""

    manual: frozenset[str] = frozenset()
    """Names of the manual axes."""

    @property
    def is_manual(self) -> bool:
        """Whether there is a mesh and all its axes are manual."""
        return self.mesh is not None and self.manual >= set(self.mesh.names)


class Compilation(NamedTuple):
    """The target of a module's compilation."""

    devices: tuple[Any, ...] = ()
    """The devices in XLA's order; empty if they could not be found."""

    mesh: MeshAxes | None = None
    """A mesh of these devices, in this order, from the program's shardings."""


def lowering_place(module_context: Any) -> LoweringPlace | None:
    """Return the target of a module's lowering; None if it is lowered for export."""
    if module_context.lowering_parameters.for_export:
        return None
    context = module_context.axis_context
    if hasattr(context, "manual_axes"):  # inside shard_map
        manual = frozenset(map(str, context.manual_axes))
        return LoweringPlace(context.mesh.size, mesh_axes(context.mesh), manual)
    if hasattr(context, "num_devices"):
        return LoweringPlace(context.num_devices)
    # pmap up to JAX 0.7.2
    names = tuple(name if isinstance(name, str) else "unnamed" for name in context.axis_env.names)
    mesh = MeshAxes(names, tuple(context.axis_env.sizes))
    return LoweringPlace(math.prod(mesh.sizes), mesh, frozenset(names))
