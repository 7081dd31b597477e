"""Array types with shardings, as JAX prints them in its errors, and the bytes of changing them."""

from __future__ import annotations

import ast
import contextlib
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...base.errors import LayoutError
from ...compat.arrays import array_facts, known_by_type
from ...compat.values import is_array, is_tracer
from ...geometry.layouts.dtypes import bits_of_name, named_in_full, packed_nbytes
from ...geometry.layouts.layout import mesh_layout
from ...geometry.layouts.spec import MeshAxes, Spec, as_spec, effective_axes, shard_dims
from ...geometry.layouts.traffic import held_shards, missing_elements

Axes = tuple[tuple[str, ...], ...]
"""Mesh axes of each array axis."""

_TYPE = re.compile(r"\b(bool|[a-z]{1,9}\d\w{0,12})\[([^\[\]]{0,400})\](?:\{U:([^{}]{0,200})\})?")
"""A type: ``float32[8@x,8]``, ``f32[8@(x,y)]``, ``f32[8]{U:x}``."""
_LENGTH = re.compile(r"(\d+)(?:@(\([^()]*\)|[^,()]+))?")
_SPEC = re.compile(
    r"(?:\bP|\bPartitionSpec|(?<= ))(\((?:(?:None|'\w+'|\((?:'\w+'(?:, )?)+,?\))(?:, |,)?){0,64}\))"
)
_MESH = re.compile(r"Mesh\(((?:'\w+': \d+(?:, )?){1,16})(?:axis_types=\(([\w, ]{0,200})\))?")
_SHORT = (("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "i"), ("complex", "c"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayType:
    """The type of an array, with its sharding over mesh axes."""

    dtype: str
    """Short name of the dtype, such as ``f32``."""

    shape: tuple[int, ...]
    """Global shape."""

    axes: Axes
    """Mesh axes of each array axis, one entry for each axis."""

    unreduced: tuple[str, ...] = ()
    """Mesh axes over which the values are partial sums."""

    mesh: MeshAxes | None = field(default=None, compare=False)
    """The mesh; None if it is not known."""

    def __str__(self) -> str:
        lengths = map(_length_text, self.shape, self.axes)
        return f"{self.dtype}[{','.join(lengths)}]" + (
            f"{{U:{','.join(self.unreduced)}}}" if self.unreduced else ""
        )

    @property
    def bits(self) -> int | None:
        """Bits of an element; None if they are not known."""
        return bits_of_name(named_in_full(self.dtype) or self.dtype)

    @property
    def sizes(self) -> Mapping[str, int]:
        """Size of each mesh axis; empty if the mesh is not known."""
        return self.mesh.shape if self.mesh else {}

    @property
    def used(self) -> set[str]:
        """Mesh axes that shard the array."""
        return {name for names in self.axes for name in names}

    def divides(self, dim: int, names: Sequence[str], length: int | None = None) -> bool:
        """Return whether a dimension, or one of another length, can be sharded over some mesh axes."""
        return (self.shape[dim] if length is None else length) % math.prod(
            self.sizes.get(name, 1) for name in names
        ) == 0

    def fits(self, axes: Axes) -> bool:
        """Return whether the array can have a sharding."""
        return all(self.divides(dim, names) for dim, names in enumerate(axes))

    def nbytes_of(self, axes: Axes) -> int | None:
        """Return the bytes of a shard; None if they are not known."""
        used = {name for names in (*axes, *self.axes) for name in names}
        if not used <= {*self.sizes}:
            return None
        return packed_nbytes(shard_dims(self.shape, Spec(axes), self.sizes), self.bits)

    def resharded_nbytes(self, axes: Axes) -> int | None:
        """Return the bytes that a device sends to reshard the array; None if they are not known."""
        axes = fitted(axes, len(self.shape))
        if self.unreduced or self.nbytes_of(axes) is None or not self.fits(axes):
            return None
        source, target = (
            held_shards(mesh_layout(self.shape, self.sizes, spec)) for spec in (self.axes, axes)
        )
        return packed_nbytes([int(missing_elements(self.shape, source, target).max())], self.bits)

    def without(self, dims: Collection[int]) -> Iterator[Axes]:
        """Yield shardings that leave out some dimensions: moved to another dimension, then dropped."""
        moved = tuple(name for dim in sorted({*dims}) for name in self.axes[dim])
        remaining = tuple(() if dim in dims else names for dim, names in enumerate(self.axes))
        free = [
            dim
            for dim, names in enumerate(remaining)
            if not names and dim not in dims and self.divides(dim, moved)
        ]
        if moved and free and self.mesh:
            yield tuple(moved if dim == free[0] else names for dim, names in enumerate(remaining))
        yield remaining


def _length_text(length: int, names: tuple[str, ...]) -> str:
    """Return the length of a dimension with its mesh axes, as JAX prints them: ``8@(x,y)``."""
    over = names[0] if len(names) == 1 else f"({','.join(names)})"
    return f"{length}@{over}" if names else str(length)


def fitted(axes: Axes, rank: int) -> Axes:
    """Return the entries of a spec, one for each axis of an array."""
    return (*axes, *[()] * (rank - len(axes)))[:rank]


def _short_name(dtype: str) -> str:
    """Return the short name of a dtype in JAX's errors, ``f32`` for ``float32``."""
    return next((short + dtype[len(long) :] for long, short in _SHORT if dtype.startswith(long)), dtype)


def type_of(value: Any) -> ArrayType | None:
    """Return the type of a JAX or NumPy array or a traced value; None for any other value."""
    if is_tracer(value):
        described = known_by_type(value.aval).sharding.description
    elif is_array(value) and (facts := array_facts(value, reads_value=False)):
        described = facts.known.sharding.description
    elif type(value) is np.ndarray:
        described = None
    else:
        return None
    if not all(isinstance(length, int) for length in value.shape):
        return None
    spec = (described.spec if described else None) or Spec(())
    return ArrayType(
        dtype=_short_name(str(value.dtype)),
        shape=tuple(value.shape),
        axes=effective_axes(spec, {}, len(value.shape)),
        unreduced=spec.unreduced,
        mesh=described.mesh if described else None,
    )


# Messages


def types_in(text: str, mesh: MeshAxes | None) -> list[ArrayType]:
    """Return the types in a message, in its order."""
    array_types = []
    for dtype, inside, unreduced in _TYPE.findall(text):
        lengths = _LENGTH.findall(inside)
        shape, over = tuple(int(length) for length, _ in lengths), tuple(re.findall(r"\w+", unreduced))
        axes = tuple(tuple(re.findall(r"\w+", names)) for _, names in lengths)
        array_types.append(
            ArrayType(dtype=_short_name(dtype), shape=shape, axes=axes, unreduced=over, mesh=mesh)
        )
    return array_types


def specs_in(text: str) -> list[Axes]:
    """Return the specs in a message, such as ``P('x', None)`` and ``('x', None)``, in its order."""
    specs = []
    for literal in _SPEC.findall(text):
        with contextlib.suppress(SyntaxError, ValueError):
            specs.append(as_spec(ast.literal_eval(literal)).axes)
    return specs


def mesh_in(text: str) -> MeshAxes | None:
    """Return the first mesh in a message; None if there is none that can be."""
    if (match := _MESH.search(text)) is None:
        return None
    names, sizes = zip(*re.findall(r"'(\w+)': (\d+)", match[1]), strict=True)
    types = tuple(re.findall(r"\w+", match[2] or ""))
    with contextlib.suppress(LayoutError):
        return MeshAxes(names, tuple(map(int, sizes)), types if len(types) == len(names) else ())
    return None
