"""Memory that devices and hosts need while a tree moves, for each way that JAX has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...base import quantities

WayName = Literal["at once", "leaf by leaf", "jit, donated", "from files"]
"""A way to move a tree."""
Bound = Literal["at least", "at most"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveWay:
    """Memory that a way to move a tree needs while it runs."""

    name: WayName
    """``at once``: ``jax.device_put`` of the tree, which stays. ``leaf by leaf``: ``jax.device_put`` of each
    leaf in the order of the tree, which is complete and replaces the old one before the next begins.
    ``jit, donated``: a jitted identity of the leaves that move, with all of them donated. ``from files``: a
    restore, after the tree is deleted."""

    device_nbytes: quantities.Total | None = None
    """Largest memory use of the tree on the fullest device, in the memory of devices; None if JAX cannot move
    the tree like this."""

    bound: Bound | None = None
    """Whether ``device_nbytes`` is a bound: temporary values of a compiled program are not known. None if it
    is exact."""

    host_nbytes: quantities.Total | None = None
    """Bytes that the move needs in host memory, in the process that needs the most, with new leaves in host
    memory; None if they are not known."""

    host_bound: Bound | None = None
    """Whether ``host_nbytes`` is a bound; None if it is exact."""

    sent_nbytes: quantities.Total | None = None
    """Bytes that each device sends by the collectives of the compiled program; None if it is not compiled,
    or part of them is unknown."""

    reason: str | None = None
    """Why JAX cannot move the tree like this; None if it can."""

    def fits(self, hbm_nbytes: int) -> bool | None:
        """Return whether the peak fits the memory of a device; None if that is not known."""
        if self.device_nbytes is None or (self.bound == "at least" and self.device_nbytes <= hbm_nbytes):
            return None
        return self.device_nbytes <= hbm_nbytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePeaks:
    """Memory of a tree on some devices that are alike, before, after and while it moves."""

    devices: str
    """Device ids, such as ``0-3``. Positions in the mesh, if the devices of a tree are not known."""

    count: quantities.Count = 1
    """Number of these devices."""

    before_nbytes: quantities.Total
    """Bytes of the leaves on each of them now."""

    after_nbytes: quantities.Total
    """Bytes of the leaves on each of them at the end."""

    peaks: tuple[quantities.Total | None, ...]
    """Largest memory use on each of them for each way, like ``MoveWay.device_nbytes``."""
