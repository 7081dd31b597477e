"""The report on one value, and what it is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from ..layouts.layout import ShardingLayout
from ..layouts.local import LocalPart
from ..layouts.spec import MeshAxes, Spec

Dim = int | str
"""The length of an axis; the text of its symbol where a traced shape is symbolic."""
Kind = Literal[
    "array",
    "array-like",
    "tracer",
    "numpy",
    "abstract",
    "planned",
    "scalar",
    "none",
    "container",
    "object",
]
"""What was asked about.

- ``array``: a jax.Array, PRNG keys included;
- ``array-like``: a Ref, or whatever else has a shape and a dtype;
- ``tracer``: a traced value;
- ``numpy``: a numpy array;
- ``abstract``: a shape and dtype without data, such as a ShapeDtypeStruct;
- ``planned``: an array that does not exist yet, on a mesh that need not;
- ``scalar``: a str, a Python number or a numpy scalar;
- ``none``: None;
- ``container``: a list, tuple, dict, dataclass or other pytree;
- ``object``: anything else, such as a sharding, a mesh or a ``jax.Shard``.
"""
Transformation = Literal["jit", "vmap", "autodiff", "shard_map"]
"""``jit`` where the function is compiled or staged, by whatever transformation; others call it eagerly."""
Source = Literal["array", "type", "compiler", "manual", "unknown"]
"""How a sharding is known.

``array``: a concrete value (or an abstract one that was given a sharding) carries it; ``type``: it is
part of a traced value's type (over a mesh that has Auto axes too, the spec is that part, and there is no
layout); ``compiler``: XLA chose it; ``manual``: inside shard_map or pmap, where shape and bytes are one
shard's; ``unknown``: it is not known.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingDescription:
    """A ``jax.sharding.Sharding`` in words."""

    type: str
    """Class name, such as ``NamedSharding``."""

    spec: Spec | None = None
    """The PartitionSpec of a NamedSharding."""

    mesh: MeshAxes | None = None
    """The mesh of a NamedSharding."""

    text: str | None = None
    """How a sharding without a spec describes itself, such as XLA's ``{devices=[8,1]<=[8]}``."""

    @property
    def unused_axes(self) -> tuple[str, ...]:
        """The mesh axes of several devices that cut nothing; none where the compiler may still use them."""
        if self.mesh is None or self.spec is None or self.spec.unconstrained:
            return ()
        used = {name for names in (*self.spec.axes, self.spec.unreduced) for name in names}
        return tuple(name for name, size in self.mesh.shape.items() if size > 1 and name not in used)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAxes:
    """The axes of a value that vmap hides from the function."""

    axes: tuple[int, ...]
    """Which axes of the whole value are batched, ascending: one for each vmap around the function."""

    shape: tuple[Dim, ...]
    """Shape of the whole value, the batched axes included."""

    def inside(self, axis: int, shape: tuple[Dim, ...]) -> BatchAxes:
        """Return the batch of the same value seen from outside one vmap more.

        Args:
            axis: Which axis that vmap batches.
            shape: Shape of the value with that axis.
        """
        moved = [inner + (inner >= axis) for inner in self.axes]
        return BatchAxes(axes=tuple(sorted([*moved, axis])), shape=shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One leaf of a container."""

    path: str
    """Where it is, as ``jax.tree_util.keystr`` writes it: ``['layers'][0].w``."""

    type: str
    """``float32[4,4]`` for what has a shape and a dtype, else the name of its type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayReport:
    """What one value is, how large, and where its bytes are."""

    name: str | None
    """The name that the user gave."""

    kind: Kind
    """What was asked about."""

    type_name: str
    """Name of the value's class."""

    shape: tuple[Dim, ...] | None = None
    """Global shape; under vmap what the function sees, inside shard_map and pmap one shard's."""

    dtype: str | None = None
    """Name of the dtype, such as ``bfloat16`` or ``key<fry>``."""

    nbytes: int | None = None
    """Bytes of the whole array, each element once however many devices hold it; sub-byte types
    packed. Of an abstract value, what an array would take. None for a deleted array, and where they cannot
    be known."""

    shard_nbytes: int | None = None
    """Bytes that each holding device has of it: those of one (the largest) shard. All of ``nbytes`` for a
    ShapeDtypeStruct without a sharding."""

    value: str | None = None
    """The value, of a concrete 0-d array or a scalar."""

    weak_type: bool = False
    """Whether the dtype is weak: it yields to other operands' dtypes."""

    memory_kind: str | None = None
    """Memory that holds it, such as ``device`` or ``pinned_host``."""

    default_memory_kind: str | None = None
    """Memory that its devices use when none is asked for."""

    is_deleted: bool = False
    """Whether its buffers are gone: deleted or donated."""

    is_fully_addressable: bool = True
    """Whether all of it is on devices of this process."""

    local_part: LocalPart | None = None
    """What this process holds of it, where that is not all: None for an array that is fully addressable
    or deleted, and where it is not known which device holds which slice."""

    source: Source = "unknown"
    """How ``sharding`` is known."""

    unknown_because: str | None = None
    """Why the sharding of a traced value is not known, such as ``not compiled``."""

    sharding: ShardingDescription | None = None
    """How the array is cut; None where that is not known or there is nothing to cut. Of a sharding, a
    PartitionSpec or a mesh, what it says itself."""

    layout: ShardingLayout | None = None
    """Which device holds which slice; None where that is not known."""

    devices: tuple[int, ...] = ()
    """Ids of the devices that hold it, ascending."""

    device: str | None = None
    """Name of the device, where it is a single one."""

    is_default_device: bool = True
    """Whether that single device is the one that JAX uses by default."""

    visible_devices: int | None = None
    """How many devices the process sees, of all processes; None where JAX was not asked."""

    batch: BatchAxes | None = None
    """The axes that vmap hides; ``sharding``, ``layout`` and ``shard_nbytes`` are the whole value's."""

    manual_axes: MeshAxes | None = None
    """Inside shard_map and pmap: the mesh axes whose devices each see one shard."""

    varying_axes: tuple[str, ...] = ()
    """Inside shard_map: the mesh axes over which the value varies."""

    length: int | None = None
    """Number of entries of a container."""

    leaves: tuple[Leaf, ...] = ()
    """The leaves of a container, in the order in which JAX flattens it; none of a list without arrays."""

    index: tuple[tuple[int, int], ...] | None = None
    """Of a ``jax.Shard``: its start and stop along each axis of the array."""

    replica: int | None = None
    """Of a ``jax.Shard``: which replica it is, from 0."""

    called_under: Transformation | None = None
    """The transformation under which a traced value was looked at, the innermost where it is not compiled."""

    @property
    def sharded_axes(self) -> tuple[int, ...]:
        """Axes of ``shape`` that are sharded."""
        sharded = self.layout.sharded_axes if self.layout else ()
        if self.batch is None:
            return sharded
        seen = (axis for axis in range(len(self.batch.shape)) if axis not in self.batch.axes)
        return tuple(place for place, axis in enumerate(seen) if axis in sharded)

    @property
    def replicas(self) -> int:
        """Number of devices that hold the same shard.

        Without those that hold partial sums or that the compiler may still shard over, where a spec tells.
        """
        sharding = self.sharding
        if sharding and sharding.spec and sharding.mesh:
            return math.prod(sharding.mesh.shape[name] for name in sharding.unused_axes)
        return self.layout.replicas if self.layout else 1

    @property
    def partial_sums(self) -> int:
        """Number of partial sums of each shard, 1 where there are none."""
        sharding = self.sharding
        if sharding and sharding.spec and sharding.mesh:
            return math.prod(sharding.mesh.shape[name] for name in sharding.spec.unreduced)
        return 1

    @property
    def local_share(self) -> Fraction | None:
        """Part of the elements that this process holds; None without a ``local_part``."""
        if self.layout is None or self.local_part is None:
            return None
        count = math.prod(self.layout.shape)
        return Fraction(self.local_part.element_count, count) if count else Fraction(1)

    @property
    def open_axes(self) -> tuple[str, ...]:
        """Mesh axes that the type of a traced value leaves to the compiler."""
        mesh = self.sharding.mesh if self.sharding and self.source == "type" else None
        if mesh is None:
            return ()
        return tuple(name for name, kind in zip(mesh.names, mesh.types, strict=True) if kind == "Auto")
