"""Reports on a mesh, on one shard, and on a sharding in XLA's notation."""

from __future__ import annotations

from dataclasses import dataclass

from ..layouts.layout import ShardingLayout
from ..layouts.spec import MeshAxes, Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport:
    """What one device holds of an array."""

    device_id: int
    """The device."""

    index: tuple[tuple[int, int], ...]
    """Start and stop along each axis of the array."""

    nbytes: int | None
    """Bytes of that part; None where the array's dtype has no size."""

    holders: tuple[int, ...]
    """Ids of all devices that hold the same part, this one included."""

    platform: str | None = None
    """Platform of the devices; None for a mesh without devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshReport:
    """A mesh: its axes and where its devices are."""

    axes: MeshAxes
    """Names, sizes and types of the axes."""

    layout: ShardingLayout
    """The layout of an array that has an element for each device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class XlaReport:
    """What a sharding means that XLA wrote."""

    text: str
    """The sharding, as XLA writes it."""

    kind: str
    """``replicated``, ``manual``, ``unknown``, ``maximal`` or ``tiled``."""

    mesh: MeshAxes | None = None
    """The mesh that was given."""

    spec: Spec | None = None
    """The PartitionSpec that means the same on that mesh; None where there is none."""

    patterns: tuple[str, ...] = ()
    """In words, which devices hold the parts along each axis."""

    uneven: tuple[str, ...] = ()
    """The axes that the shards do not divide, with the remedy."""

    layout: ShardingLayout | None = None
    """Which device holds which slice; of an array of one element a tile where no shape was given."""
