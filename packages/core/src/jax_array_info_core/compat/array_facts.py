"""Plain records of arrays and shardings, without references to arrays, tracers or other JAX objects."""

from __future__ import annotations

from dataclasses import dataclass

from ..layouts.layout import ShardingLayout
from ..layouts.spec import MeshAxes
from ..reports.array import BatchAxes, Dim, ShardingDescription, Source, Transformation, ValueKind


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """The devices of an array. The defaults describe an array without devices, as on an abstract mesh."""

    ids: tuple[int, ...] = ()
    """Device ids, ascending."""

    name: str | None = None
    """Name of the device if there is only one, else None."""

    is_default: bool = True
    """False only for a single device that is not JAX's default device."""

    default_memory_kind: str | None = None
    """The devices' default memory kind."""

    visible: int | None = None
    """Number of devices of their platform, as in ``jax.device_count``; None without a backend for it."""

    process: int | None = None
    """Index of this process if some of the devices belong to other processes, else None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingFacts:
    """The sharding of one array."""

    description: ShardingDescription | None = None
    layout: ShardingLayout | None = None
    """The slice of each device; None if the sharding does not determine it."""

    memory_kind: str | None = None
    devices: DeviceFacts = DeviceFacts()


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSharding:
    """The sharding of a value as far as it is known, and the source of that."""

    source: Source = "unknown"
    unknown_because: str | None = None
    sharding: ShardingFacts = ShardingFacts()
    batch: BatchAxes | None = None
    """The batched axes under vmap; the sharding includes them."""

    manual_axes: MeshAxes | None = None
    """The manual mesh axes: along them, each device sees only its own shard."""

    is_pending: bool = False
    """Whether XLA decides the rest of the sharding at compile time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayFacts:
    """An array, a traced value or an abstract value."""

    kind: ValueKind
    type_name: str
    shape: tuple[Dim, ...]
    dtype: str
    bits: int | None
    """Bits per element on a device; None if the dtype has no known size."""

    known: KnownSharding
    """The sharding, as far as it is known when the value is read."""

    weak_type: bool = False
    value: str | None = None
    """The value of a concrete 0-d array."""

    is_deleted: bool = False
    is_unsharded: bool = False
    """Whether this is an abstract value without a sharding, so that its one shard has the global shape."""

    called_under: Transformation | None = None
    """The transformation that traces the value."""

    varying_axes: tuple[str, ...] = ()
    """The manual mesh axes over which a traced value varies."""

    unreduced_axes: tuple[str, ...] = ()
    """The manual mesh axes over which a traced value is a partial sum."""
