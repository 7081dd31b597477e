"""Plain records of arrays and shardings; none of them holds an array, a tracer or any object of JAX."""

from __future__ import annotations

from dataclasses import dataclass

from ..layouts.layout import ShardingLayout
from ..layouts.spec import MeshAxes
from ..reports.array import BatchAxes, Dim, ShardingDescription, Source, Transformation, ValueKind


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """The devices that hold an array; the defaults mean none, as for a mesh without devices."""

    ids: tuple[int, ...] = ()
    """Their ids, ascending."""

    name: str | None = None
    """The name of a single one."""

    is_default: bool = True
    """Whether a single one is the one that JAX uses by default."""

    default_memory_kind: str | None = None
    """The memory that they use when none is asked for."""

    visible: int | None = None
    """How many devices of their platform the process sees."""

    process: int | None = None
    """The index of this process, where other processes have some of the devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingFacts:
    """A sharding of one array."""

    description: ShardingDescription | None = None
    layout: ShardingLayout | None = None
    """Which device holds which slice; None where the sharding does not say all of it."""

    memory_kind: str | None = None
    devices: DeviceFacts = DeviceFacts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """How the sharding of a value is known, and what it is."""

    source: Source = "unknown"
    unknown_because: str | None = None
    sharding: ShardingFacts = ShardingFacts()
    batch: BatchAxes | None = None
    """The axes that vmap hides; the sharding is that of the whole value."""

    manual_axes: MeshAxes | None = None
    """The mesh axes whose devices each see one shard."""

    is_open: bool = False
    """Whether the compiler will know more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayFacts:
    """An array, or a value that stands for one."""

    kind: ValueKind
    type_name: str
    shape: tuple[Dim, ...]
    dtype: str
    bits: int | None
    """Bits that an element takes on a device; None where the dtype does not tell."""

    known: Knowledge
    """How its sharding is known when it is read."""

    weak_type: bool = False
    value: str | None = None
    """The value of a concrete 0-d array."""

    is_deleted: bool = False
    is_whole: bool = False
    """Whether it has no sharding because one piece of memory would hold all of it."""

    called_under: Transformation | None = None
    """The transformation around a traced value."""

    varying_axes: tuple[str, ...] = ()
    """The manual mesh axes over which a traced value varies."""
