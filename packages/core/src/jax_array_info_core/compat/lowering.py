"""What a program is lowered and compiled for."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..layouts.spec import MeshAxes


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
