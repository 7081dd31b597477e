"""The devices and mesh axes that a program is lowered and compiled for."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..layouts.spec import MeshAxes
from .meshes import mesh_axes


class LoweringPlace(NamedTuple):
    """What a program, or the inside of a shard_map in it, is lowered for."""

    device_count: int
    """The number of its devices; which ones, its compilation tells (``compilation_of``)."""

    mesh: MeshAxes | None = None
    """Inside shard_map and pmap: the axes in whose shape the devices are."""

    manual: frozenset[str] = frozenset()
    """Those of the axes that are manual."""

    @property
    def is_manual(self) -> bool:
        """Whether there are axes, and all are manual."""
        return self.mesh is not None and self.manual >= set(self.mesh.names)


class Compilation(NamedTuple):
    """What a module is compiled for."""

    devices: tuple[Any, ...] = ()
    """The devices, in the order in which XLA numbers them; none where that could not be found."""

    mesh: MeshAxes | None = None
    """A mesh of these devices, in that order, on which the program's shardings are."""


def lowering_place(module_context: Any) -> LoweringPlace | None:
    """Return what a module is lowered for; None when that is export."""
    if module_context.lowering_parameters.for_export:
        return None
    context = module_context.axis_context
    if hasattr(context, "manual_axes"):  # inside shard_map
        manual = frozenset(map(str, context.manual_axes))
        return LoweringPlace(context.mesh.size, mesh_axes(context.mesh), manual)
    if hasattr(context, "num_devices"):
        return LoweringPlace(context.num_devices)
    # pmap up to jax 0.7.2
    names = tuple(name if isinstance(name, str) else "unnamed" for name in context.axis_env.names)
    mesh = MeshAxes(names, tuple(context.axis_env.sizes))
    return LoweringPlace(math.prod(mesh.sizes), mesh, frozenset(names))
