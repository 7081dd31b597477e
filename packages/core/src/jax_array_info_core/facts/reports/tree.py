"""The report on a tree of arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...base import quantities
from ...base.grouping import by_key
from ...base.notebooks import Displayed
from ...base.quantities import counted, format_bytes, format_number, grouped
from ...geometry.layouts.spec import MeshAxes, Spec, UnevenAxis, require_names
from .array import Dim, Elsewhere, Leaf, Source, ValueKind, elsewhere, require_own_paths

ExcessCause = Literal[
    "fully replicated", "replicated over", "partial sums", "padding", "device set", "no sharding"
]
"""Cause of a difference between the fullest device and an even distribution.

- ``fully replicated``: leaves that each device holds as a whole;
- ``replicated over``: leaves sharded over some mesh axes and replicated over others;
- ``partial sums``: leaves whose devices hold partial sums over some mesh axes;
- ``padding``: array axes that are not divisible by their number of shards;
- ``device set``: leaves that are on some of the tree's devices only;
- ``no sharding``: abstract leaves without a sharding, which are counted in full on each device.
"""


VariableKind = Literal["parameter", "RNG state"]
"""Kind of a variable of Flax nnx: an ``nnx.Param``, or a key or a counter of ``nnx.Rngs``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafStatistics:
    """Statistics of the elements of a leaf.

    Mean, standard deviation and extremes are those of the finite elements; of a complex leaf, of their
    absolute values. They are None if there are no such elements, or if a number exceeds the range of float64,
    as the absolute value of a complex128 can.
    """

    mean: float | None
    """Mean of the finite elements."""

    std: float | None
    """Standard deviation of the finite elements (the population's)."""

    least: float | None
    """Smallest finite element."""

    greatest: float | None
    """Largest finite element."""

    zeros: quantities.Size
    """Number of elements equal to zero. Some devices, such as CPUs, treat subnormal numbers as zero."""

    nans: quantities.Size
    """Number of elements that are NaN."""

    infinities: quantities.Size
    """Number of elements that are positive or negative infinity."""

    @property
    def is_finite(self) -> bool:
        """Whether no element is NaN or infinite."""
        return not (self.nans or self.infinities)

    @property
    def not_finite_words(self) -> str:
        """The numbers of elements that are NaN or infinite: ``2 NaN, 1 infinite``; empty for none."""
        counts = ((self.nans, "NaN"), (self.infinities, "infinite"))
        return ", ".join(f"{grouped(count)} {what}" for count, what in counts if count)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeMesh:
    """A mesh, or a set of devices, of some leaves of a tree."""

    axes: MeshAxes | None
    """Axes of the mesh; None for a sharding without a mesh, such as a SingleDeviceSharding."""

    device_count: quantities.Count
    """Number of devices."""

    platform: str | None = None
    """Platform of the devices; None for a planned mesh and an AbstractMesh."""

    devices: tuple[int, ...] | None = None
    """Ids of a set of devices, ascending; None for a mesh with axes, and for files without ids."""

    process_count: quantities.Count = 1
    """Number of processes that the devices belong to."""

    visible_devices: quantities.Count | None = field(default=None, compare=False)
    """Number of devices of the platform, as in ``jax.device_count``; None if not known."""

    def __post_init__(self) -> None:
        if self.axes is not None and math.prod(self.axes.sizes) != self.device_count:
            raise ValueError(f"a mesh of sizes {self.axes.sizes} with {self.device_count} devices")
        if self.devices is not None and len(set(self.devices)) != self.device_count:
            raise ValueError(f"{len(set(self.devices))} device ids for {self.device_count} devices")


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeRow(Leaf):
    """One leaf of a tree.

    No two leaves have the same path. The keys of boxes, such as ``value`` of Flax, are left out of it.
    """

    kind: ValueKind
    """Category of the leaf: ``array``, ``array-like``, ``tracer``, ``numpy``, ``abstract`` or ``planned``."""

    spec: Spec | None = None
    """Partition spec of a NamedSharding; None for any other sharding and without a sharding."""

    mesh: int | None = None
    """Index of the leaf's mesh or device set in ``TreeReport.meshes``; None without a sharding."""

    sharding: str | None = None
    """Class name of the sharding, such as ``NamedSharding``; None without a sharding."""

    xla: str | None = None
    """XLA's text of a sharding without a spec, such as ``{devices=[8,1]<=[8]}``; None for others."""

    shard_shape: tuple[Dim, ...] | None = None
    """Shape of the largest shard; the global shape without a sharding. None if it is unknown."""

    nbytes: quantities.Size | None = None
    """Bytes of the global array, without replicas. None for a deleted array, or if the size is unknown."""

    shard_nbytes: quantities.Size | None = None
    """Bytes per device: the size of the largest shard. None if it is unknown."""

    replicas: quantities.Count = 1
    """Number of replicas of each shard; of an unreduced leaf, of each partial sum of a shard."""

    partial_sums: quantities.Count = 1
    """Number of partial sums of each shard; 1 for a leaf that is not unreduced."""

    unreduced: tuple[str, ...] = ()
    """Mesh axes over which the values are partial sums."""

    memory_kind: str | None = None
    """Memory kind, such as ``device`` or ``pinned_host``."""

    is_in_host_memory: bool = False
    """Whether the memory kind is one of the host, and not the default of the devices."""

    source: Source = "unknown"
    """Source of the sharding, as in ``ArrayReport``."""

    unknown_because: str | None = None
    """Reason why the sharding of a traced value is unknown."""

    avoidable_nbytes: quantities.Size = 0
    """Bytes that a device would save if the leaf were also sharded over the mesh axes that it is replicated
    over, as far as their sizes divide the axes of its shard."""

    uneven: tuple[UnevenAxis, ...] = ()
    """Array axes that are not divisible by their number of shards; XLA pads them."""

    logical: Spec | None = None
    """Logical axis names, from the metadata of a Flax box or from a file."""

    variable: VariableKind | None = None
    """Kind of the variable of Flax nnx around the leaf; None for other variables and leaves."""

    weak_type: bool = False
    """Whether the leaf is weakly typed."""

    batched_axes: tuple[int, ...] = ()
    """Axes of ``shape`` that vmap adds to a traced value; the function does not see them."""

    is_deleted: bool = False
    """Whether the array was deleted or donated."""

    is_committed: bool = False
    """Whether JAX runs a program with this array on its devices only: that of two sets of devices fails."""

    same_as: str | None = None
    """Path of the first leaf that is the same array, as with tied embeddings; None for that leaf itself.
    Totals count the array once."""

    statistics: LeafStatistics | None = None
    """Statistics of the elements; None unless requested, and for leaves without data or with partial
    sums."""

    full_path: str | None = None
    """Path with the keys of boxes, such as ``layers/0/kernel/value``; None if there are none."""

    def __post_init__(self) -> None:
        Leaf.__post_init__(self)
        shape, shard_shape, spec = tuple(self.shape), self.shard_shape, self.spec
        if shard_shape is not None and list(map(type, shard_shape)) != list(map(type, shape)):
            raise ValueError(
                f"{self.path}: shards of shape {tuple(shard_shape)} of an array of shape {shape}"
            )
        if spec is not None and len(spec.axes) > len(shape):
            raise ValueError(
                f"{self.path}: a spec with {len(spec.axes)} entries for an array of shape {shape}"
            )
        if spec is not None and len(set(spec.used)) < len(spec.used):
            raise ValueError(f"{self.path}: a spec with the same mesh axis twice")
        if any(axis.shape != shape for axis in self.uneven):
            raise ValueError(f"{self.path}: an uneven axis of another shape than {shape}")
        if not all(0 <= axis < len(shape) for axis in self.batched_axes):
            raise ValueError(f"{self.path}: a batched axis that shape {shape} does not have")

    @property
    def host_memory_kind(self) -> str | None:
        """The memory kind in host memory; None for the default memory of the devices."""
        return self.memory_kind if self.is_in_host_memory else None

    @property
    def sharding_text(self) -> str:
        """The spec, or the class of the sharding, or that there is none."""
        return str(self.spec) if self.spec is not None else self.sharding or self.elsewhere or "no sharding"

    @property
    def elsewhere(self) -> Elsewhere | None:
        """Place of a leaf that takes no memory of JAX's devices; None for any other leaf."""
        return elsewhere(self.kind, self.sharding)

    @property
    def is_on_devices(self) -> bool:
        """Whether the bytes of the leaf count as device memory: not those elsewhere and in host memory."""
        return self.elsewhere is None and not self.is_in_host_memory

    @property
    def paths(self) -> tuple[str, ...]:
        """The path without and, if it differs, with the keys of boxes. Patterns match either."""
        return (self.path,) if self.full_path is None else (self.path, self.full_path)


def both_memories(nbytes: int, host_nbytes: int, host_memory_kinds: Iterable[str]) -> str:
    """Return bytes in device memory, and those in host memory if there are any, with their memory kinds.

    >>> both_memories(1024, 2048, ("pinned_host",)), both_memories(1024, 0, ())
    ('1.0 KiB and 2.0 KiB in pinned_host', '1.0 KiB')
    """
    on_host = f" and {format_bytes(host_nbytes)} in {', '.join(host_memory_kinds)}" if host_nbytes else ""
    return f"{format_bytes(nbytes)}{on_host}"


def require_meshes(rows: Iterable[TreeRow], meshes: Sequence[TreeMesh]) -> None:
    """Raise a ValueError if leaves have the same path, or one does not fit its mesh."""
    paths = []
    known: set[tuple[int, int, int, int]] = set()
    for row in rows:
        paths.append(row.path)
        # Leaves that are alike share their spec object.
        if row.mesh is None or (key := (row.mesh, id(row.spec), row.replicas, row.partial_sums)) in known:
            continue
        if not 0 <= row.mesh < len(meshes):
            raise ValueError(f"{row.path} is on mesh {format_number(row.mesh)} of {len(meshes)} meshes")
        mesh = meshes[row.mesh]
        require_names(row.path, row.spec, mesh.axes)
        for number, noun in ((row.replicas, "replicas"), (row.partial_sums, "partial sums")):
            if number > mesh.device_count:
                raise ValueError(f"{row.path}: {number} {noun} on {mesh.device_count} devices")
        known.add(key)
    require_own_paths("leaves", paths)


def axes_of(row: TreeRow, meshes: Sequence[TreeMesh]) -> MeshAxes | None:
    """Return the axes of the mesh of a leaf; None for a sharding without one.

    Args:
        row: The leaf.
        meshes: The meshes of its tree.
    """
    return None if row.mesh is None else meshes[row.mesh].axes


@dataclass(frozen=True, slots=True, kw_only=True)
class ElsewhereBytes:
    """Leaves that take no memory of JAX's devices, in one place.

    >>> print(ElsewhereBytes(place="on the host", leaf_count=2, nbytes=1024, unknown_count=1))
    on the host: 1.0 KiB + ?
    """

    place: Elsewhere
    """The place."""

    leaf_count: quantities.Size
    """Number of leaves."""

    nbytes: quantities.Total
    """Bytes of those whose size is known. An array at several paths counts once."""

    unknown_count: quantities.Size = 0
    """Number of leaves whose size is unknown."""

    def __str__(self) -> str:
        known = [format_bytes(self.nbytes)] if self.unknown_count < self.leaf_count else []
        return f"{self.place}: {' + '.join([*known, *['?'] * bool(self.unknown_count)])}"


def elsewhere_bytes(rows: Iterable[TreeRow]) -> tuple[ElsewhereBytes, ...]:
    """Return the leaves that take no memory of JAX's devices, by place."""
    places = by_key((row.elsewhere, row) for row in rows if row.elsewhere is not None)
    return tuple(
        ElsewhereBytes(
            place=place,
            leaf_count=len(leaves),
            nbytes=sum(row.nbytes or 0 for row in leaves if row.same_as is None),
            unknown_count=sum(row.nbytes is None for row in leaves),
        )
        for place, leaves in sorted(places.items(), reverse=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcessBytes:
    """Part of the difference between the fullest device and an even distribution, by cause."""

    cause: ExcessCause
    """Cause of this part."""

    axes: tuple[str, ...] = ()
    """For ``replicated over``, mesh axes over which the leaves are replicated, in the order of the mesh; for
    ``partial sums``, mesh axes over which they are partial sums. Empty for a sharding without a mesh, and for
    other causes."""

    nbytes: int
    """Bytes on the fullest device. Negative for leaves that are not on it (``device set``)."""

    leaf_count: quantities.Size
    """Number of leaves with this cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmatchedName:
    """A logical axis name that has no match."""

    name: str
    """The name."""

    similar: tuple[str, ...] = ()
    """Similar names that it could match: of a rule, those of leaves without a rule; of a leaf, those of
    rules."""

    def __str__(self) -> str:
        similar = f" (similar: {', '.join(map(repr, self.similar))})" if self.similar else ""
        return f"{self.name!r}{similar}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmatchedAxes:
    """Names that did not match when logical axes were replaced with mesh axes."""

    without_rule: tuple[UnmatchedName, ...] = ()
    """Logical axis names of leaves that have no rule. These array axes are replicated."""

    unused_rules: tuple[UnmatchedName, ...] = ()
    """Names of rules that no leaf has."""

    left_out: tuple[str, ...] = ()
    """Names in the rules of leaves that are not mesh axes. They are left out of the rules."""


MOST_OTHER_PATHS = 3
"""Maximum number of leaves that are not arrays whose paths a report has."""


def other_leaves_words(count: int, paths: Sequence[str]) -> str:
    """Return the number of leaves that are not arrays, with the first paths: ``2 leaves: step, name``."""
    names = ", ".join(path or "(root)" for path in paths)
    more = ", …" if count > len(paths) else ""
    return counted(count, "leaf", "leaves") + (f": {names}{more}" if names else "")


def shorter_leaves_words(count: int) -> str:
    """Return a number of leaves for which a spec for all leaves has too many entries.

    >>> shorter_leaves_words(1)
    '1 leaf with fewer axes than the spec: replicated'
    """
    return f"{counted(count, 'leaf', 'leaves')} with fewer axes than the spec: replicated"


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeReport(Displayed):
    """Shapes, shardings and bytes of the leaves of a tree. Returned by ``tree_report`` and ``load_tree``.

    Totals count an array at several paths once. They do not include NumPy leaves, leaves in host memory and
    leaves that are not in device memory, which have totals of their own.
    """

    name: str | None
    """Name passed by the user."""

    type_name: str
    """Name of the tree's class, such as ``dict``."""

    rows: tuple[TreeRow, ...]
    """The leaves, in JAX's flattening order."""

    meshes: tuple[TreeMesh, ...] = ()
    """Meshes and device sets of the leaves. Two entries can be equal: their devices then differ."""

    others: quantities.Size = 0
    """Number of leaves that are not arrays, such as Python numbers and functions. None is not a leaf, as in
    JAX; in a file it counts."""

    other_paths: tuple[str, ...] = ()
    """Paths of the first of them, at most ``MOST_OTHER_PATHS``; empty where they are not known."""

    elements: quantities.Size | None = 0
    """Number of elements of all leaves, wherever they are; None above 2^63 - 1."""

    parameters: quantities.Total | None = None
    """Number of elements of the leaves whose first key is ``params``, and of those in an ``nnx.Param``; None
    if there are none."""

    nbytes: quantities.Total = 0
    """Bytes of the leaves in device memory, without replicas."""

    device_count: quantities.Count = 1
    """Number of devices of all leaves together."""

    fullest_device_nbytes: quantities.Total = 0
    """Bytes of the leaves on the device that holds the most."""

    emptiest_device_nbytes: quantities.Total = 0
    """Bytes of the leaves on the device that holds the least."""

    ideal_nbytes: quantities.Total = 0
    """Bytes per device if all leaves were evenly distributed: ``nbytes / device_count``, rounded up."""

    excess: tuple[ExcessBytes, ...] = ()
    """``fullest_device_nbytes - ideal_nbytes`` by cause, the most bytes first. The parts add up."""

    avoidable_nbytes: quantities.Total = 0
    """Sum of ``avoidable_nbytes`` over the leaves on the fullest device."""

    numpy_nbytes: quantities.Total = 0
    """Bytes of NumPy leaves, which are on the host: in the memory of this process."""

    elsewhere: tuple[ElsewhereBytes, ...] = ()
    """Leaves that take no memory of JAX's devices, by place: NumPy leaves, and array-like ones, such as
    datasets in files and arrays of other libraries."""

    host_global_nbytes: quantities.Total = 0
    """Bytes of the leaves in host memory, without replicas."""

    host_nbytes: quantities.Total = 0
    """Bytes per device of leaves in host memory, such as ``pinned_host``: the maximum over the devices."""

    unknown_count: quantities.Size = 0
    """Number of leaves whose bytes per device are unknown, such as traced values. Totals per device include
    neither them nor leaves elsewhere."""

    unmatched_axes: UnmatchedAxes | None = None
    """Logical axes and rules that did not match; None for a tree that was not planned with rules."""

    shorter_count: quantities.Size = 0
    """Number of leaves that are planned as replicated because they have fewer axes than a spec that is for
    all leaves of the tree or of a subtree."""

    def __post_init__(self) -> None:
        if self.avoidable_nbytes > self.fullest_device_nbytes:
            raise ValueError("avoidable_nbytes is more than fullest_device_nbytes")
        require_meshes(self.rows, self.meshes)
        earlier: set[str] = set()
        for row in self.rows:
            if row.same_as is not None and row.same_as not in earlier:
                raise ValueError(f"{row.path} is the same as {row.same_as!r}, which is not an earlier leaf")
            earlier.add(row.path)

    @property
    def host_memory_kinds(self) -> tuple[str, ...]:
        """The memory kinds of the leaves in host memory, such as ``pinned_host``."""
        return tuple(dict.fromkeys(row.host_memory_kind for row in self.rows if row.host_memory_kind))
