"""The report on one value, and its parts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from ...base import quantities
from ...base.notebooks import Displayed
from ...geometry.layouts.dtypes import bits_of_name, packed_nbytes, type_text
from ...geometry.layouts.layout import LocalPart, ShardingLayout
from ...geometry.layouts.notation import format_mesh
from ...geometry.layouts.spec import MeshAxes, Spec, effective_spec, other_types, require_names, same_spec

if TYPE_CHECKING:
    from fractions import Fraction

Dim: TypeAlias = "quantities.Size | str"
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

- ``array``: a jax.Array, including arrays of PRNG keys;
- ``array-like``: a Ref, or any other object with a shape and a dtype;
- ``tracer``: a traced value;
- ``numpy``: a NumPy array;
- ``abstract``: a shape and dtype without data, such as a ShapeDtypeStruct;
- ``planned``: an array planned with ``planned_report``, which needs no devices;
- ``scalar``: a str, a Python number or a NumPy scalar;
- ``none``: None;
- ``container``: a list, tuple, dict, dataclass or other pytree;
- ``object``: anything else, such as a sharding, a mesh or a ``jax.Shard``.
"""
Elsewhere = Literal["on the host", "not in device memory"]
"""Place of a value that takes no memory of JAX's devices.

- ``on the host``: a NumPy array;
- ``not in device memory``: an array-like object without a JAX sharding, such as a dataset in a file or an
  array of another library.
"""
Transformation = Literal["jit", "vmap", "autodiff", "shard_map"]
"""``jit`` for a function that is compiled or staged, under any transformation; the others run eagerly."""
Source = Literal["array", "type", "compiler", "manual", "unknown"]
"""Source of a sharding.

- ``array``: a concrete array, or the ``sharding=`` of an abstract value;
- ``type``: the type of a traced value; on a mesh that also has Auto axes, the spec covers only the other
  axes, and there is no layout;
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

    def __post_init__(self) -> None:
        require_names("a sharding", self.spec, self.mesh)

    @property
    def unused_axes(self) -> tuple[str, ...]:
        """Mesh axes of size 2 or more over which the array is replicated.

        Empty if the spec has unconstrained entries: XLA may still shard them over any unused mesh axis.
        """
        if self.mesh is None or self.spec is None or self.spec.unconstrained:
            return ()
        used = {name for names in (*self.spec.axes, self.spec.unreduced) for name in names}
        return tuple(name for name, size in self.mesh.shape.items() if size > 1 and name not in used)

    @property
    def with_mesh(self) -> str:
        """The spec with its mesh, ``P('x',) over x=8``; without a spec, the class and XLA's text."""
        if self.spec is None:
            return self.type if self.text is None else f"{self.type} {self.text}"
        return str(self.spec) if self.mesh is None else f"{self.spec} over {format_mesh(self.mesh.shape)}"

    def beside(self, other: ShardingDescription | None) -> str:
        """Return the sharding as ``str`` does, with the types of its mesh axes if those of another differ."""
        if self.mesh is None or other is None or not other_types(self.mesh, other.mesh):
            return str(self)
        return f"{self} over axes of type {self.mesh.types_text}"

    def __str__(self) -> str:
        """Return the spec without mesh axes of size 1; without a spec, XLA's text or the class name."""
        if self.spec is None:
            return self.text or self.type
        return str(effective_spec(self.spec, {} if self.mesh is None else self.mesh.shape))


def same_sharding(one: ShardingDescription | None, other: ShardingDescription | None) -> bool | None:
    """Return whether two shardings place an array alike on the devices of one program.

    None if that is not known: one of them is unknown, or only one has a spec, or they have no spec and are of
    different classes.
    """
    if one is None or other is None:
        return None
    if one.spec is not None and one == other:
        return True
    if one.spec is not None and other.spec is not None:
        sizes = [{} if each.mesh is None else each.mesh.shape for each in (one, other)]
        return same_spec(one.spec, sizes[0], other.spec, sizes[1])
    if one.spec is not None or other.spec is not None or one.type != other.type:
        return None
    return one.text == other.text


def require_own_paths(what: str, paths: Iterable[str]) -> None:
    """Raise a ValueError if two leaves of a tree have the same path."""
    for path, count in Counter(paths).items():
        if count > 1:
            raise ValueError(f"{count} {what} have the path {path!r}")


def elsewhere(kind: ValueKind, sharding: object) -> Elsewhere | None:
    """Return the place of a value that takes no memory of JAX's devices; None for any other value.

    Args:
        kind: Category of the value.
        sharding: Its sharding; None if it has none.
    """
    if kind == "numpy":
        return "on the host"
    return "not in device memory" if kind == "array-like" and sharding is None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAxes:
    """The batched axes of a value under vmap, which are hidden from the mapped function."""

    axes: tuple[int, ...]
    """Indices of the batched axes in ``shape``, ascending; one for each vmap around the function."""

    shape: tuple[Dim, ...]
    """Shape of the full value, including the batched axes."""

    def inside(self, axis: int, shape: tuple[Dim, ...]) -> BatchAxes:
        """Return the batched axes under an additional, outer vmap.

        Args:
            axis: Index of the axis that the outer vmap batches.
            shape: Shape of the value including that axis.
        """
        moved = [inner + (inner >= axis) for inner in self.axes]
        return BatchAxes(axes=tuple(sorted([*moved, axis])), shape=shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayType:
    """Shape and dtype of an array: what all parts of reports that are about arrays have in common."""

    shape: tuple[Dim, ...]
    """Global shape."""

    dtype: str
    """Name of the dtype, such as ``bfloat16`` or ``key<fry>``."""

    @property
    def type(self) -> str:
        """Dtype and shape, such as ``float32[4,4]``."""
        return type_text(self.dtype, self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf(ArrayType):
    """An array at a path: the facts that leaves of trees, programs, files and findings have in common."""

    path: str
    """Keys from the root to the leaf, joined by ``/``: ``params/layers/0/mlp/w``. A key that is empty, or
    contains a ``/``, a quote or a control character, is in quotes."""

    bits: quantities.Size | None = None
    """Bits per element on a device: 4 for int4. If not given, those of ``dtype``; None if unknown."""

    def __post_init__(self) -> None:
        if self.bits is None:
            object.__setattr__(self, "bits", bits_of_name(self.dtype))

    @property
    def is_key(self) -> bool:
        """Whether the leaf is an array of PRNG keys."""
        return self.dtype.startswith("key<")

    def nbytes_of(self, shape: Sequence[Dim]) -> int | None:
        """Return the bytes of an array of this dtype, such as a shard; None if they are unknown."""
        return packed_nbytes(shape, self.bits)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerLeaf:
    """One leaf of a container."""

    path: str
    """Key path, as ``jax.tree_util.keystr`` writes it: ``['layers'][0].w``."""

    type: str
    """Dtype and shape, such as ``float32[4,4]``, or the name of the type if the leaf is not an array."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayReport(Displayed):
    """Shape, dtype, sharding and bytes of one value.

    Returned by ``array_report`` for existing values and by ``planned_report`` for planned arrays.
    """

    name: str | None
    """Name passed by the user."""

    kind: ValueKind
    """Category of the value: ``array``, ``array-like``, ``tracer``, ``numpy``, ``abstract``, ``planned``,
    ``scalar``, ``none``, ``container`` or ``object``."""

    type_name: str
    """Name of the value's class."""

    shape: tuple[Dim, ...] | None = None
    """Global shape. Under vmap, the shape without the batched axes; inside shard_map and pmap, the shape of
    one shard."""

    dtype: str | None = None
    """Name of the dtype, such as ``bfloat16`` or ``key<fry>``."""

    bits: quantities.Size | None = None
    """Bits per element on a device: 4 for int4. If not given, those of ``dtype``; None if unknown."""

    nbytes: quantities.Size | None = None
    """Bytes of the global array, without replicas; sub-byte dtypes are packed. For an abstract value, the
    bytes that an array of its shape and dtype would take; inside shard_map and pmap, the bytes of one shard.
    None for a deleted array, or if the size is unknown."""

    shard_nbytes: quantities.Size | None = None
    """Bytes per device: the size of the largest shard. Equal to ``nbytes`` for a ShapeDtypeStruct without a
    sharding. None if the size or the layout is unknown."""

    value: str | None = None
    """Value of a concrete 0-d array or a scalar, as text."""

    weak_type: bool = False
    """Whether the value is weakly typed, so that other dtypes take precedence in type promotion."""

    memory_kind: str | None = None
    """Memory kind of the array, such as ``device`` or ``pinned_host``."""

    default_memory_kind: str | None = None
    """Default memory kind of the array's devices."""

    is_deleted: bool = False
    """Whether the array was deleted or donated, so that its buffers are freed."""

    is_fully_addressable: bool = True
    """Whether every shard is on a device of this process."""

    local_part: LocalPart | None = None
    """The part of the array on devices of this process. None if the array is fully addressable or deleted, or
    if its layout is unknown."""

    source: Source = "unknown"
    """Source of the sharding: ``array``, ``type`` (of a traced value), ``compiler`` (XLA chose it),
    ``manual`` (inside shard_map or pmap) or ``unknown``."""

    unknown_because: str | None = None
    """Reason why the sharding of a traced value is unknown, such as ``not compiled``."""

    sharding: ShardingDescription | None = None
    """Sharding of the array; None if it is unknown or does not apply. If the value itself is a sharding, a
    PartitionSpec or a mesh, its description."""

    layout: ShardingLayout | None = None
    """Device ids of each shard; None if unknown. Under vmap, the layout includes the batched axes, so
    ``layout.shape`` differs from ``shape``."""

    devices: tuple[int, ...] = ()
    """Ids of the devices that hold the array, ascending."""

    device: str | None = None
    """Name of the device of a single-device array."""

    is_default_device: bool = True
    """Whether ``device`` has the id of the first device of its platform, ``jax.devices()[0]``."""

    visible_devices: quantities.Size | None = None
    """Number of devices that this process sees, including those of other processes; None if the report
    was made without JAX, as for a NumPy array."""

    batch: BatchAxes | None = None
    """Batched axes under vmap. ``sharding``, ``layout`` and ``shard_nbytes`` then describe the full value,
    including these axes."""

    manual_axes: MeshAxes | None = None
    """Manual mesh axes, inside shard_map and pmap. There is one shard for each position along these axes."""

    varying_axes: tuple[str, ...] = ()
    """Mesh axes over which the value varies (vma), inside shard_map; empty if JAX does not track them."""

    invariant_axes: tuple[str, ...] = ()
    """Manual axes over which the value does not vary: shards at positions that differ only along them are
    replicas. Empty if JAX does not track them, as with ``check_vma=False`` and up to JAX 0.5."""

    unreduced_axes: tuple[str, ...] = ()
    """Mesh axes over which a traced value is a partial sum inside shard_map; ``unreduced`` has those of every
    value."""

    length: quantities.Size | None = None
    """Number of entries of a container."""

    leaves: tuple[ContainerLeaf, ...] = ()
    """Leaves of a container, in JAX's flattening order; empty for a list without arrays."""

    index: tuple[tuple[int, int], ...] | None = None
    """Start and stop of a ``jax.Shard`` along each axis of the array."""

    replica: int | None = None
    """Replica id of a ``jax.Shard``, from 0."""

    called_under: Transformation | None = None
    """Transformation under which a traced value was inspected: ``jit`` if the function is compiled or
    staged, else the innermost transformation."""

    def __post_init__(self) -> None:
        if self.bits is None and self.dtype is not None:
            object.__setattr__(self, "bits", bits_of_name(self.dtype))
        if self.local_part is not None:
            whole = 0 if self.layout is None else math.prod(self.layout.shape)
            if not 0 <= self.local_part.element_count <= whole:
                raise ValueError("a local part larger than the array")

    @property
    def elsewhere(self) -> Elsewhere | None:
        """Place of a value that takes no memory of JAX's devices; None for any other value."""
        return elsewhere(self.kind, self.sharding)

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

        If the spec is known, devices along two kinds of mesh axes do not count as replicas: axes over which
        the values are partial sums, and axes over which XLA may still shard the array.
        """
        sharding = self.sharding
        if sharding and sharding.spec and sharding.mesh:
            return math.prod(sharding.mesh.shape[name] for name in sharding.unused_axes)
        return self.layout.replicas if self.layout else 1

    @property
    def partial_sums(self) -> int:
        """Number of partial sums of each shard; 1 for an array without partial sums."""
        if self.layout:
            return self.layout.partial_sums
        sizes = self._mesh_sizes
        return math.prod(sizes[name] for name in self.unreduced)

    @property
    def unreduced(self) -> tuple[str, ...]:
        """Mesh axes of size 2 or more over which the values are partial sums."""
        sizes = self._mesh_sizes
        spec = self.sharding.spec if self.sharding else None
        names = (*self.unreduced_axes, *(spec.unreduced if spec else ()))
        return tuple(name for name in names if sizes.get(name, 1) > 1)

    @property
    def padded_shape(self) -> tuple[int, ...] | None:
        """Shape to which XLA pads the value inside a compiled function; None if all its shards are equal.

        JAX cannot return such an array: the function returns it with another sharding.
        """
        if self.source != "compiler" or self.layout is None:
            return None
        pairs = zip(self.layout.shape, self.layout.shard_counts, strict=True)
        padded = tuple(-(-dim // count) * count for dim, count in pairs)
        return None if padded == self.layout.shape else padded

    @property
    def _mesh_sizes(self) -> dict[str, int]:
        """Size of each axis of the mesh, and of each manual axis."""
        meshes = (self.sharding.mesh if self.sharding else None, self.manual_axes)
        return {name: size for mesh in meshes if mesh for name, size in mesh.shape.items()}

    @property
    def local_share(self) -> Fraction | None:
        """Fraction of the elements on devices of this process; None without a ``local_part``."""
        from fractions import Fraction  # only several processes need it

        if self.layout is None or self.local_part is None:
            return None
        count = math.prod(self.layout.shape)
        return Fraction(self.local_part.element_count, count) if count else Fraction(1)

    @property
    def open_axes(self) -> tuple[str, ...]:
        """Auto mesh axes in the type of a traced value, over which XLA may still shard the value."""
        mesh = self.sharding.mesh if self.sharding and self.source == "type" else None
        if mesh is None:
            return ()
        return tuple(
            name for name, axis_type in zip(mesh.names, mesh.types, strict=False) if axis_type == "Auto"
        )


COMPILER_DECIDES = "only the compiler will know it"
NOT_COMPILED = "not compiled"
REMOVED = "the compiler removed it"
NOT_AVAILABLE = "this version of jax does not tell"
UNUSED = "the program does not use the tapped value"
TRANSPOSED = "never computed, only transposed"
IN_A_REDUCER = "a reducer sees single elements"
IN_A_KERNEL = "a Pallas kernel sees a block"
IN_A_JET = "jax.experimental.jet computes Taylor coefficients"
SPARSE = "jax.experimental.sparse keeps it as several arrays"
