"""Reports on a mesh, on one shard and on an XLA sharding."""

from __future__ import annotations

from dataclasses import dataclass

from ..layouts.layout import ShardingLayout
from ..layouts.spec import MeshAxes, Spec
from ..notebooks import Displayed


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport(Displayed):
    """The shard of an array on one device."""

    device_id: int
    """Id of the device."""

    index: tuple[tuple[int, int], ...]
    """Start and stop of the shard along each axis of the array."""

    nbytes: int | None
    """Bytes of the shard; None if the size of the dtype is not known."""

    holders: tuple[int, ...]
    """Ids of all devices that hold this shard, or partial sums of it, including this device."""

    partial_sums: int = 1
    """Number of partial sums of this shard; 1 for an array that is not unreduced."""

    platform: str | None = None
    """Platform of the devices; None for a mesh without devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshReport(Displayed):
    """The axes of a mesh and the position of each device."""

    axes: MeshAxes
    """Names, sizes and types of the axes."""

    layout: ShardingLayout
    """Layout of an array that has the shape of the mesh and one element per device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class XlaReport(Displayed):
    """Explanation of an XLA sharding: its equivalent PartitionSpec, and the devices of each shard."""

    text: str
    """The sharding in XLA's notation."""

    kind: str
    """Form of the sharding: ``replicated``, ``manual``, ``unreduced``, ``unknown``, ``maximal`` or ``tiled``.
    """

    mesh: MeshAxes | None = None
    """Mesh that you passed, or the mesh in the text; None without either."""

    spec: Spec | None = None
    """Equivalent PartitionSpec on ``mesh``; None if no spec is equivalent, or ``mesh`` is None."""

    patterns: tuple[str, ...] = ()
    """Lines of ``describe_pattern``: the devices of the shards along each axis, and of the replicas."""

    uneven: tuple[str, ...] = ()
    """Description of each array axis that is not divisible by its number of shards, with a fix."""

    layout: ShardingLayout | None = None
    """Layout of an array of the shape that you passed or, without a shape, of an array with one element
    per tile. None for shardings without device ids, such as ``{manual}``."""
