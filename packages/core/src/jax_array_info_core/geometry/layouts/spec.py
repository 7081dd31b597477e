"""Partition specs: conversion from any form, mesh axes that could be added, and uneven axes."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import sys
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...base.errors import LayoutError, SpecError, UnsupportedValueError
from ...base.quantities import LARGEST, format_number
from ...base.text import plain_text


@dataclass(frozen=True, slots=True)
class MeshAxes:
    """The axes of a device mesh."""

    names: tuple[str, ...]
    """Axis names, in the order of the mesh."""

    sizes: tuple[int, ...]
    """Number of devices along each axis."""

    types: tuple[str, ...] = ()
    """``Auto``, ``Explicit`` or ``Manual`` for each axis; empty in versions of JAX without axis types."""

    def __post_init__(self) -> None:
        count = len(self.names)
        if len(self.sizes) != count or len(self.types) not in (0, count):
            raise LayoutError(
                f"a mesh with {count} names, {len(self.sizes)} sizes and {len(self.types)} types of axes"
            )
        if len(set(self.names)) < count:
            raise LayoutError(f"a mesh with two axes of the same name: {self.names}")
        if any(size < 1 for size in self.sizes) or math.prod(self.sizes) > LARGEST:
            raise LayoutError(f"a mesh of sizes {self.sizes}")

    @property
    def shape(self) -> dict[str, int]:
        """Size of each axis by name, like ``Mesh.shape``."""
        return dict(zip(self.names, self.sizes, strict=True))

    @property
    def types_text(self) -> str:
        """The type of the axes, ``Explicit``; by name where they differ: ``data Explicit, model Auto``."""
        if len(set(self.types)) == 1:
            return self.types[0]
        return ", ".join(f"{name} {type_}" for name, type_ in zip(self.names, self.types, strict=False))


def other_types(mesh: MeshAxes | None, other: MeshAxes | None) -> bool:
    """Return whether an axis that two meshes have is known to be of another type in the second.

    JAX calls arrays on such meshes differently sharded. A mesh from a file has no types.

    >>> one, other = (MeshAxes(("data",), (4,), (type_,)) for type_ in ("Auto", "Explicit"))
    >>> other_types(one, other), other_types(one, MeshAxes(("data",), (4,)))
    (True, False)
    """
    if mesh is None or other is None:
        return False
    types = dict(zip(other.names, other.types, strict=False))
    return any(types.get(name, type_) != type_ for name, type_ in zip(mesh.names, mesh.types, strict=False))


@dataclass(frozen=True, slots=True)
class Spec:
    """A PartitionSpec as plain values: the mesh axes over which each array axis is sharded."""

    axes: tuple[tuple[str, ...], ...]
    """Mesh axes of each array axis, major to minor; empty for an unsharded axis."""

    unconstrained: tuple[int, ...] = ()
    """Indices of the array axes that the spec leaves to XLA."""

    unreduced: tuple[str, ...] = ()
    """Mesh axes over which the values are partial sums."""

    def __post_init__(self) -> None:
        for axis in self.unconstrained:
            if not 0 <= axis < len(self.axes):
                raise LayoutError(
                    f"a spec of {len(self.axes)} entries that leaves axis {format_number(axis)} to XLA"
                )

    @property
    def used(self) -> tuple[str, ...]:
        """All mesh axes that the spec names, in its order."""
        return (*itertools.chain.from_iterable(self.axes), *self.unreduced)

    def __str__(self) -> str:
        unconstrained = set(self.unconstrained)
        entries = tuple(
            "UNCONSTRAINED" if axis in unconstrained else _entry(names)
            for axis, names in enumerate(self.axes)
        )
        text = ", ".join(entries) + ("," if len(entries) == 1 else "")
        if self.unreduced:
            text = ", ".join((*entries, f"unreduced={{{', '.join(map(repr, self.unreduced))}}}"))
        return f"P({text})"


def _entry(names: tuple[str, ...]) -> str:
    """Return one entry of a PartitionSpec as JAX prints it."""
    return repr((names[0] if len(names) == 1 else names) if names else None)


def entry_code(names: tuple[str, ...]) -> str:
    """Return the code of one entry of a spec."""
    quoted = [f'"{name}"' for name in names]
    return "None" if not names else quoted[0] if len(names) == 1 else f"({', '.join(quoted)})"


def spec_code(spec: Spec, name: str = "P") -> str:
    """Return the code of a spec, without trailing None.

    Args:
        spec: The spec.
        name: The program's name for ``PartitionSpec``.

    >>> spec_code(Spec((("data", "fsdp"), (), ("model",), ())))
    'P(("data", "fsdp"), None, "model")'
    """
    axes = [*spec.axes]
    while axes and not axes[-1]:
        axes.pop()
    return f"{name}({', '.join(map(entry_code, axes))})"


def require_names(what: str, spec: Spec | None, mesh: MeshAxes | None) -> None:
    """Raise an error if a spec names an axis that its mesh does not have.

    Raises:
        LayoutError: (a ValueError) If it does.
    """
    if spec is None or mesh is None:
        return
    if unknown := sorted(set(spec.used).difference(mesh.names)):
        names = ", ".join(map(repr, unknown))
        raise LayoutError(f"{what}: a spec with {names} over a mesh with {mesh.names}")


def effective_axes(spec: Spec, sizes: Mapping[str, int], ndim: int) -> tuple[tuple[str, ...], ...]:
    """Return the mesh axes that shard each array axis, without mesh axes of size 1.

    Specs with the same result shard an array in the same way: ``P('x')``, ``P(('x',), None)`` and, if ``y``
    has size 1, ``P(('x', 'y'))``. Names that are not mesh axes are kept, and so are non-empty entries beyond
    the axes of the array. ``unconstrained`` and ``unreduced`` are not considered.

    Args:
        spec: The spec.
        sizes: Size of each mesh axis by name; empty without a mesh.
        ndim: Number of axes of the array.

    >>> effective_axes(Spec((("x", "y"),)), {"x": 8, "y": 1}, 2)
    (('x',), ())
    """
    axes = [tuple(name for name in names if sizes.get(name) != 1) for names in spec.axes]
    axes += [()] * (ndim - len(axes))
    return without_last(axes, ndim)


def without_last(axes: Sequence[tuple[str, ...]], least: int = 0) -> tuple[tuple[str, ...], ...]:
    """Return the entries of a spec without the last ones that are empty, but at least as many as given."""
    while len(axes) > least and not axes[-1]:
        axes = axes[:-1]
    return tuple(axes)


class Placement(NamedTuple):
    """What specs have in common that place an array alike on one mesh."""

    axes: tuple[tuple[str, ...], ...]
    """Mesh axes that shard each array axis, major to minor, without those of size 1."""

    unreduced: frozenset[str]
    """Mesh axes of size 2 or more over which the values are partial sums."""

    unconstrained: tuple[int, ...]
    """Array axes that are left to XLA."""

    sizes: frozenset[tuple[str, int | None]]
    """Name and size of each mesh axis that is used; the size of a name that is not a mesh axis is None."""


def placement(spec: Spec, sizes: Mapping[str, int]) -> Placement:
    """Return a value that is equal for two specs exactly if they place an array alike on a mesh.

    Mesh axes of size 1 and trailing entries of None make no difference. The order of the mesh axes in an
    entry does. On meshes with other axes, specs with equal placements are sharded alike over other devices.

    Args:
        spec: The spec.
        sizes: Size of each mesh axis by name; empty without a mesh.

    >>> one, other = Spec((("x", "y"),)), Spec((("x",), ()))
    >>> placement(one, {"x": 8, "y": 1}) == placement(other, {"x": 8, "y": 1})
    True
    """
    axes = effective_axes(spec, sizes, 0)
    unreduced = frozenset(name for name in spec.unreduced if sizes.get(name) != 1)
    used = frozenset((name, sizes.get(name)) for names in (*axes, unreduced) for name in names)
    return Placement(axes, unreduced, spec.unconstrained, used)


def same_spec(
    spec: Spec,
    sizes: Mapping[str, int],
    other: Spec,
    other_sizes: Mapping[str, int],
    *,
    on_any_mesh: bool = False,
) -> bool:
    """Return whether two specs, each on a mesh with the given sizes of axes, place an array alike.

    Args:
        spec: A spec.
        sizes: Size of each mesh axis by name; empty without a mesh.
        other: Another spec.
        other_sizes: Size of each axis of its mesh.
        on_any_mesh: Whether the sizes of the axes may differ. A spec that is written in the same way is then
            the same, even if an axis has size 1 on one of the meshes.

    >>> spec = Spec((("x",),))
    >>> same_spec(spec, {"x": 8}, spec, {"x": 1}), same_spec(spec, {"x": 8}, spec, {"x": 1}, on_any_mesh=True)
    (False, True)
    """
    placed, others = placement(spec, sizes), placement(other, other_sizes)
    if placed == others or not on_any_mesh:
        return placed == others
    return placed[:3] == others[:3] or placement(spec, {}) == placement(other, {})


def shard_dims(shape: Sequence[Any], spec: Spec, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of the largest shard of an array, padded where it is uneven.

    >>> shard_dims((8, 10), Spec(((), ("x",))), {"x": 4})
    (8, 3)
    """
    axes = effective_axes(spec, sizes, len(shape))
    counts = (math.prod(sizes[name] for name in names) for names in axes)
    return tuple(-(-dim // count) for dim, count in zip(shape, counts, strict=True))


def effective_spec(spec: Spec, sizes: Mapping[str, int]) -> Spec:
    """Return a spec without mesh axes of size 1 and without trailing entries of None.

    >>> str(effective_spec(Spec((("x", "y"), ("y",))), {"x": 8, "y": 1}))
    "P('x',)"
    """
    least = max((axis + 1 for axis in spec.unconstrained), default=0)
    return replace(spec, axes=effective_axes(spec, sizes, least))


def some_axes(axes: MeshAxes, names: Container[str]) -> MeshAxes:
    """Return the axes of a mesh with the given names."""
    chosen = [number for number, name in enumerate(axes.names) if name in names]
    return MeshAxes(
        tuple(axes.names[number] for number in chosen),
        tuple(axes.sizes[number] for number in chosen),
        tuple(axes.types[number] for number in chosen) if axes.types else (),
    )


MAX_CANDIDATES = 2500
"""Maximum number of assignments that are compared; only meshes of many axes have more."""


@functools.lru_cache(maxsize=4096)
def finer_axes(
    shard_shape: tuple[int, ...], mesh_axes: tuple[tuple[str, int], ...]
) -> tuple[tuple[str, ...], ...]:
    """Return the mesh axes over which each array axis of a shard could additionally be sharded.

    Each mesh axis shards at most one array axis, whose length must be divisible by it. Among the assignments
    with the most shards, the one with the fewest and longest array axes is returned.

    Args:
        shard_shape: Shape of the shard.
        mesh_axes: Name and size of each mesh axis that does not shard the array yet.

    >>> finer_axes((2048, 26), (("fsdp", 4), ("expert", 2)))
    (('fsdp', 'expert'), ())
    """
    candidates: dict[tuple[int, ...], tuple[tuple[str, ...], ...]] = {shard_shape: ((),) * len(shard_shape)}
    kept_count = max(1, MAX_CANDIDATES // max(1, len(shard_shape) * len(mesh_axes)))
    for name, size in mesh_axes:
        if size <= 1:
            continue
        more = dict(candidates)
        for shape, axes in candidates.items():
            for axis, dim in enumerate(shape):
                if dim and dim % size == 0:
                    finer = (*shape[:axis], dim // size, *shape[axis + 1 :])
                    candidate = (*axes[:axis], (*axes[axis], name), *axes[axis + 1 :])
                    if finer not in more or _used(candidate) < _used(more[finer]):
                        more[finer] = candidate
        if len(more) > kept_count:
            kept = sorted(more, key=lambda shape: (math.prod(shape), _used(more[shape])))[:kept_count]
            more = {shape: more[shape] for shape in kept}
        candidates = more

    def preference(shape: tuple[int, ...]) -> tuple[int, int, int]:
        axes = candidates[shape]
        length = sum(dim for dim, names in zip(shard_shape, axes, strict=True) if names)
        return math.prod(shape), _used(axes), -length

    return candidates[min(candidates, key=preference)]


MIN_SHARD_ELEMENTS = 1024
"""Number of elements per device below which no array is advised to be sharded."""
_LARGE = 256 * MIN_SHARD_ELEMENTS
"""Number of elements from which an array is sharded over some of the mesh axes rather than over none."""


def advised_axes(
    shard_shape: tuple[int, ...], mesh_axes: tuple[tuple[str, int], ...]
) -> tuple[tuple[str, ...], ...]:
    """Return the mesh axes over which each array axis of a shard should additionally be sharded.

    These are the ``finer_axes`` if each device then holds at least 1,024 elements. Else they are none, or for
    a large array, those of as many mesh axes as leave each device so many, the smallest ones left out first.

    Args:
        shard_shape: Shape of the shard.
        mesh_axes: Name and size of each mesh axis that does not shard the array yet.

    >>> advised_axes((8192,), (("data", 4), ("fsdp", 512)))
    ((),)
    >>> advised_axes((4096, 4096), (("data", 64), ("fsdp", 512)))
    (('fsdp',), ())
    """
    count, free, sizes = math.prod(shard_shape), mesh_axes, dict(mesh_axes)
    while True:
        axes = finer_axes(shard_shape, free)
        if count // math.prod(sizes[name] for names in axes for name in names) >= MIN_SHARD_ELEMENTS:
            return axes
        if count < _LARGE:
            return ((),) * len(shard_shape)
        smallest = min(free, key=lambda axis: axis[1])
        free = tuple(axis for axis in free if axis is not smallest)


def _used(axes: Sequence[tuple[str, ...]]) -> int:
    """Return the number of array axes that are sharded."""
    return sum(map(bool, axes))


@dataclass(frozen=True, slots=True)
class UnevenAxis:
    """An array axis that is not divisible by its number of shards. ``str()`` describes the problem and a fix.

    >>> from jax_array_info_core import uneven_axes
    >>> [axis] = uneven_axes((17, 16), {"x": 8}, ("x",))
    >>> print(str(axis).partition(": ")[2])
    17 % 8 = 1. Pad it to 24, or leave it unsharded.
    """

    axis: int
    """Index of the array axis."""

    shape: tuple[int, ...]
    """Global shape of the array."""

    names: tuple[str, ...]
    """Mesh axes over which it is sharded; empty if they are not known."""

    count: int
    """Number of shards: the product of the sizes of the mesh axes in ``names``."""

    fitting: tuple[str, ...]
    """The combination of mesh axes that splits the array axis evenly into as many shards as possible; empty
    if there is none. Mesh axes that the spec uses for other array axes are excluded."""

    fitting_count: int
    """Number of shards over the mesh axes in ``fitting``; 1 if it is empty."""

    def __post_init__(self) -> None:
        if not 0 <= self.axis < len(self.shape) or min(self.count, self.fitting_count) < 1:
            raise LayoutError(f"an uneven axis {format_number(self.axis)} of shape {self.shape}")

    @property
    def padded(self) -> int:
        """The next larger length that is divisible by ``count``."""
        return -(-self.shape[self.axis] // self.count) * self.count

    def __str__(self) -> str:
        dim, count = self.shape[self.axis], format_number(self.count)
        divisor = f"{count} shards"
        if self.names:
            axes = "axis" if len(self.names) == 1 else "axes"
            divisor = f"mesh {axes} {_entry(self.names)} of size {count}"
        remedy = "leave it unsharded"
        if self.fitting:
            size = format_number(self.fitting_count)
            remedy = f"shard it over {_entry(self.fitting)} of size {size}"
        return (
            f"axis {self.axis} of shape {self.shape} is not divisible by {divisor}: "
            f"{dim} % {count} = {dim % self.count}. Pad it to {format_number(self.padded)}, or {remedy}."
        )


SpecLike = Sequence[str | Sequence[str] | None] | Spec
"""A PartitionSpec, or any sequence of None, mesh axis names and tuples of names."""


def as_spec(spec: Any) -> Spec:
    """Return a PartitionSpec, or a sequence of None, names and tuples of names, as a ``Spec``.

    Raises:
        SpecError: If ``spec`` is a str, such as ``"data"`` for ``("data",)``, or not a sequence.
    """
    if isinstance(spec, Spec):
        return spec
    if isinstance(spec, str):
        raise SpecError([f"{spec!r} is one name, not a spec: write ({spec!r},)"])
    try:
        entries = spec_entries(spec)
    except TypeError:
        shown = plain_text(spec, repr)
        raise SpecError(
            [f"a spec must be a PartitionSpec or a sequence of None, names and tuples of names, got {shown}"]
        ) from None
    unconstrained = _unconstrained()
    unreduced = getattr(spec, "unreduced", None)
    return Spec(
        tuple([() if entry is unconstrained else _names(entry) for entry in entries]),
        tuple([axis for axis, entry in enumerate(entries) if entry is unconstrained]),
        tuple(sorted(map(plain_text, unreduced))) if unreduced else (),
    )


def _names(entry: Any) -> tuple[str, ...]:
    """Return the mesh axes of one entry."""
    if entry is None:
        return ()
    return tuple(map(plain_text, entry)) if isinstance(entry, (tuple, list)) else (plain_text(entry),)


def spec_entries(spec: Any) -> tuple[Any, ...]:
    """Return the entries of a PartitionSpec; since JAX 0.10, some specs are not iterable."""
    return tuple(getattr(spec, "_partitions", spec))


def _unconstrained() -> object:
    """Return the entry ``PartitionSpec.UNCONSTRAINED``; if JAX is not loaded, an object equal to no entry."""
    jax = sys.modules.get("jax")
    return object() if jax is None else jax.sharding.PartitionSpec.UNCONSTRAINED


def mesh_sizes(mesh: Any) -> dict[str, int]:
    """Return the size of each mesh axis as an int: the given sizes may be NumPy integers.

    Args:
        mesh: A Mesh, an AbstractMesh, or the size of each mesh axis by name.

    Raises:
        SpecError: (a ValueError) If a size is not an integer.
        UnsupportedValueError: (a ValueError) If ``mesh`` is not a mesh.

    >>> mesh_sizes({"data": 4})
    {'data': 4}
    """
    if type(mesh) is dict and all(type(name) is str and type(mesh[name]) is int for name in mesh):
        return mesh
    sizes, problems = {}, []
    if isinstance(mesh, MeshAxes) or hasattr(mesh, "axis_names"):
        mesh = mesh.shape
    if not isinstance(mesh, Mapping):
        raise UnsupportedValueError(
            f"mesh must be a Mesh, an AbstractMesh or a mapping of axis names to sizes, got {type(mesh)}"
        )
    for name, size in mesh.items():
        text = plain_text(name)
        if isinstance(size, bool) or not hasattr(size, "__index__"):
            problems.append(
                f"the size of mesh axis {text!r} must be an integer, got {plain_text(size, repr)}"
            )
        else:
            sizes[text] = operator.index(size)
    if problems:
        raise SpecError(problems)
    return sizes
