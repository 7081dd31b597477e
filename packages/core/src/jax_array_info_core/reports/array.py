"""The report on one value, and its parts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from ..layouts.layout import ShardingLayout
from ..layouts.local import LocalPart
from ..layouts.spec import MeshAxes, Spec

Dim = int | str
"""Length of an axis; the text of the symbol where a traced shape is symbolic."""
ValueKind = Literal[
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
"""Category of the inspected value.

- ``array``: a jax.Array, PRNG keys included;
- ``array-like``: a Ref, or any other object with a shape and a dtype;
- ``tracer``: a traced value;
- ``numpy``: a numpy array;
- ``abstract``: a shape and dtype without data, such as a ShapeDtypeStruct;
- ``planned``: an array that does not exist yet, on a mesh that need not exist;
- ``scalar``: a str, a Python number or a numpy scalar;
- ``none``: None;
- ``container``: a list, tuple, dict, dataclass or other pytree;
- ``object``: anything else, such as a sharding, a mesh or a ``jax.Shard``.
"""
Transformation = Literal["jit", "vmap", "autodiff", "shard_map"]
"""``jit`` for a function that is compiled or staged, under any transformation; the others run eagerly."""
Source = Literal["array", "type", "compiler", "manual", "unknown"]
"""Source of a sharding.

- ``array``: the concrete value has it, or the abstract value that was created with it;
- ``type``: it is part of the type of a traced value; on a mesh that also has Auto axes, the spec covers
  only the other axes, and there is no layout;
- ``compiler``: XLA chose it;
- ``manual``: inside shard_map or pmap, where shape and bytes are those of one shard;
- ``unknown``: the sharding is not known.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingDescription:
    """A ``jax.sharding.Sharding`` as plain values."""

    type: str
    """Class name, such as ``NamedSharding``."""

    spec: Spec | None = None
    """The PartitionSpec of a NamedSharding."""

    mesh: MeshAxes | None = None
    """The mesh of a NamedSharding."""

    text: str | None = None
    """Text form of a sharding without a spec, such as XLA's ``{devices=[8,1]<=[8]}``."""

    @property
    def unused_axes(self) -> tuple[str, ...]:
        """Mesh axes of size 2 or more over which the array is replicated.

        Empty where the spec has unconstrained entries, over which XLA may still shard.
        """
        if self.mesh is None or self.spec is None or self.spec.unconstrained:
            return ()
        used = {name for names in (*self.spec.axes, self.spec.unreduced) for name in names}
        return tuple(name for name, size in self.mesh.shape.items() if size > 1 and name not in used)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAxes:
    """The batched axes of a value under vmap, which the function does not see."""

    axes: tuple[int, ...]
    """Indices of the batched axes in ``shape``, ascending: one for each vmap around the function."""

    shape: tuple[Dim, ...]
    """Shape of the full value, including the batched axes."""

    def inside(self, axis: int, shape: tuple[Dim, ...]) -> BatchAxes:
        """Return the batched axes of the same value with one more vmap around the function.

        Args:
            axis: Index of the axis that the outer vmap batches.
            shape: Shape of the value including that axis.
        """
        moved = [inner + (inner >= axis) for inner in self.axes]
        return BatchAxes(axes=tuple(sorted([*moved, axis])), shape=shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One leaf of a container."""

    path: str
    """Key path, as ``jax.tree_util.keystr`` writes it: ``['layers'][0].w``."""

    type: str
    """Dtype and shape, such as ``float32[4,4]``; the name of the type for a leaf without them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayReport:
    """Shape, dtype, sharding and bytes of one value.

    Returned by ``array_report`` for existing values and by ``planned_report`` for planned arrays.
    """

    name: str | None
    """Name passed by the user."""

    kind: ValueKind
    """Category of the value, such as ``array`` or ``tracer``."""

    type_name: str
    """Name of the value's class."""

    shape: tuple[Dim, ...] | None = None
    """Global shape. Under vmap, the shape that the function sees; inside shard_map and pmap, the shape of
    one shard."""

    dtype: str | None = None
    """Name of the dtype, such as ``bfloat16`` or ``key<fry>``."""

    nbytes: int | None = None
    """Bytes of the global array, without replicas; sub-byte dtypes are packed. For an abstract value, the
    bytes that an array of its shape and dtype would take. None for a deleted array, and where the size is
    not known."""

    shard_nbytes: int | None = None
    """Bytes per device: the size of the largest shard. Equal to ``nbytes`` for a ShapeDtypeStruct without a
    sharding."""

    value: str | None = None
    """Value of a concrete 0-d array or a scalar, as text."""

    weak_type: bool = False
    """Whether the dtype is weak: in type promotion, other dtypes take precedence."""

    memory_kind: str | None = None
    """Memory kind of the array, such as ``device`` or ``pinned_host``."""

    default_memory_kind: str | None = None
    """Default memory kind of its devices."""

    is_deleted: bool = False
    """Whether its buffers are freed: the array was deleted or donated."""

    is_fully_addressable: bool = True
    """Whether every shard is on a device of this process."""

    local_part: LocalPart | None = None
    """The part of the array on devices of this process. None for an array that is fully addressable or
    deleted, and where the layout is not known."""

    source: Source = "unknown"
    """Source of ``sharding``."""

    unknown_because: str | None = None
    """Reason why the sharding of a traced value is not known, such as ``not compiled``."""

    sharding: ShardingDescription | None = None
    """Sharding of the array; None where it is not known or does not apply. For a sharding, a PartitionSpec
    or a mesh, the value itself."""

    layout: ShardingLayout | None = None
    """Device ids of each shard; None where they are not known."""

    devices: tuple[int, ...] = ()
    """Ids of the devices that hold the array, ascending."""

    device: str | None = None
    """Name of the device of a single-device array."""

    is_default_device: bool = True
    """Whether ``device`` is the default device of JAX."""

    visible_devices: int | None = None
    """Number of devices that the process sees, those of other processes included; None where the report
    does not need JAX."""

    batch: BatchAxes | None = None
    """Batched axes under vmap. ``sharding``, ``layout`` and ``shard_nbytes`` then describe the full value,
    including these axes."""

    manual_axes: MeshAxes | None = None
    """Inside shard_map and pmap: the manual mesh axes."""

    varying_axes: tuple[str, ...] = ()
    """Inside shard_map: the mesh axes over which the value varies."""

    length: int | None = None
    """Number of entries of a container."""

    leaves: tuple[Leaf, ...] = ()
    """Leaves of a container, in the order in which JAX flattens it; empty for a list without arrays."""

    index: tuple[tuple[int, int], ...] | None = None
    """For a ``jax.Shard``: start and stop along each axis of the array."""

    replica: int | None = None
    """For a ``jax.Shard``: its replica id, from 0."""

    called_under: Transformation | None = None
    """Transformation under which a traced value was inspected: ``jit`` if the function is compiled or
    staged, else the innermost one."""

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
        """Number of replicas of each shard.

        Where the spec is known, mesh axes over which the values are partial sums, or over which XLA may
        still shard, are not counted.
        """
        sharding = self.sharding
        if sharding and sharding.spec and sharding.mesh:
            return math.prod(sharding.mesh.shape[name] for name in sharding.unused_axes)
        return self.layout.replicas if self.layout else 1

    @property
    def partial_sums(self) -> int:
        """Number of partial sums of each shard; 1 for an array without partial sums."""
        sharding = self.sharding
        if sharding and sharding.spec and sharding.mesh:
            return math.prod(sharding.mesh.shape[name] for name in sharding.spec.unreduced)
        return 1

    @property
    def local_share(self) -> Fraction | None:
        """Fraction of the elements on devices of this process; None without a ``local_part``."""
        if self.layout is None or self.local_part is None:
            return None
        count = math.prod(self.layout.shape)
        return Fraction(self.local_part.element_count, count) if count else Fraction(1)

    @property
    def open_axes(self) -> tuple[str, ...]:
        """Auto mesh axes in the type of a traced value, over which XLA may still shard."""
        mesh = self.sharding.mesh if self.sharding and self.source == "type" else None
        if mesh is None:
            return ()
        return tuple(
            name for name, axis_type in zip(mesh.names, mesh.types, strict=True) if axis_type == "Auto"
        )
