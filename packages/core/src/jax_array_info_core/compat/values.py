"""Categories of values, and plain records of what JAX knows of them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..facts.reports.array import BatchAxes, Dim, ShardingDescription, Source, Transformation, ValueKind
from ..geometry.layouts.layout import ShardingLayout
from ..geometry.layouts.spec import MeshAxes


def type_name(value: object) -> str:
    """Return the name of a value's class, even if its metaclass overrides ``__name__``."""
    return str(type.__dict__["__name__"].__get__(type(value)))


def _is_of_jax(value: object, types: Callable[[Any], Any]) -> bool:
    """Return whether a value is of some types of JAX. Before JAX is imported, there are none."""
    jax = sys.modules.get("jax")
    return jax is not None and issubclass(type(value), types(jax))


def is_tracer(value: object) -> bool:
    """Return whether a value is a tracer."""
    return _is_of_jax(value, lambda jax: jax.core.Tracer)


def is_array(value: object) -> bool:
    """Return whether a value is a concrete jax.Array, PRNG key arrays included."""
    import jax

    return issubclass(type(value), jax.Array) and not is_tracer(value)


def is_array_type(value: object) -> bool:
    """Return whether a value is a JAX or numpy array, a numpy scalar, a ShapeDtypeStruct or a tracer."""
    import jax

    return issubclass(type(value), (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct, jax.core.Tracer))


def is_abstract_mesh(mesh: object) -> bool:
    """Return whether a mesh has axes but no devices."""
    import jax

    return issubclass(type(mesh), jax.sharding.AbstractMesh)


def is_mesh(value: object) -> bool:
    """Return whether a value is a Mesh or an AbstractMesh."""
    return _is_of_jax(value, lambda jax: (jax.sharding.Mesh, jax.sharding.AbstractMesh))


def is_partition_spec(value: object) -> bool:
    """Return whether a value is a ``jax.sharding.PartitionSpec``."""
    return _is_of_jax(value, lambda jax: jax.sharding.PartitionSpec)


def is_sharding(value: object) -> bool:
    """Return whether a value is any ``jax.sharding.Sharding``."""
    return _is_of_jax(value, lambda jax: jax.sharding.Sharding)


def is_structure(value: object) -> bool:
    """Return whether a value is the structure of a tree, as ``jax.tree.structure`` returns it."""
    import jax

    return type(value) is jax.tree_util.PyTreeDef


def without_format(value: object) -> object:
    """Return the sharding of a ``jax.experimental.layout.Format``, or else the value itself.

    A Format is a sharding, or None, with the layout of each shard in memory. Up to JAX 0.6, its class is
    ``Layout``.
    """
    cls = type(value)
    is_format = cls.__module__ == "jax._src.layout" and hasattr(cls, "sharding")
    return getattr(value, "sharding") if is_format else value  # noqa: B009


def is_bare_xla_sharding(value: object) -> bool:
    """Return whether a value is XLA's HloSharding, which has device positions instead of devices."""
    return type(value).__name__ == "HloSharding" and hasattr(value, "tile_assignment_devices")


@functools.cache
def is_plain_array_type(cls: Hashable) -> bool:
    """Return whether a class is that of concrete JAX arrays, ``jax.ShapeDtypeStruct`` or ``np.ndarray``."""
    import jax

    if cls in (np.ndarray, jax.ShapeDtypeStruct):
        return True
    assert isinstance(cls, type)
    return issubclass(cls, jax.Array) and not issubclass(cls, jax.core.Tracer)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """The devices of an array. The defaults describe an array without devices, as on an abstract mesh."""

    ids: tuple[int, ...] = ()
    """Device ids, ascending."""

    name: str | None = None
    """Name of the device if there is only one, else None."""

    is_default: bool = True
    """False only for a single device whose id is not that of the first device of its platform."""

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

    nbytes: int | None = None
    """Bytes that an array-like object states, without a dtype of NumPy or with unknown lengths."""

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

    is_varying_known: bool = False
    """Whether JAX tracks the axes over which a traced value varies."""

    unreduced_axes: tuple[str, ...] = ()
    """The manual mesh axes over which a traced value is a partial sum."""
