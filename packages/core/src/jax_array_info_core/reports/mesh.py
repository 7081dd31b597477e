"""Reports on a mesh, on one shard and on an XLA sharding."""

from __future__ import annotations

from dataclasses import dataclass

from ..layouts.layout import ShardingLayout
from ..layouts.spec import MeshAxes, Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport:
    """The shard of an array on one device."""

    device_id: int
    """Id of the device."""

    index: tuple[tuple[int, int], ...]
    """Start and stop of the shard along each axis of the array."""

    nbytes: int | None
    """Bytes of the shard; None where the size of the dtype is not known."""

    holders: tuple[int, ...]
    """Ids of all devices with a replica of the shard, including this one."""

    platform: str | None = None
    """Platform of the devices; None for a mesh without devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshReport:
    """A mesh: its axes and the position of each device."""

    axes: MeshAxes
    """Names, sizes and types of the axes."""

    layout: ShardingLayout
    """Layout of an array of the mesh's shape, with one element per device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class XlaReport:
    """Explanation of an XLA sharding: its equivalent PartitionSpec, device pattern and layout."""

    text: str
    """The sharding in XLA's notation."""

    kind: str
    """``replicated``, ``manual``, ``unknown``, ``maximal`` or ``tiled``."""

    mesh: MeshAxes | None = None
    """Mesh passed by the caller; None without one."""

    spec: Spec | None = None
    """Equivalent PartitionSpec on that mesh; None if no spec is equivalent."""

    patterns: tuple[str, ...] = ()
    """Devices of the shards along each axis, as ``describe_pattern`` describes them."""

    uneven: tuple[str, ...] = ()
    """Axes of the array that are not divisible by their number of shards, each with a fix."""

    layout: ShardingLayout | None = None
    """Device ids of each shard; for an array with one element per tile if no shape was passed. None for
    shardings without device ids, such as ``{manual}``."""
