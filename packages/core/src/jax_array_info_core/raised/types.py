"""Array types with shardings, as JAX prints them in its errors, and the bytes of changing them."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..compat.arrays import array_facts, known_by_type
from ..compat.values import is_array, is_tracer
from ..layouts.dtypes import bits_of_name, named_in_full
from ..layouts.layout import mesh_layout
from ..layouts.spec import Spec, effective_axes
from ..layouts.traffic import held_shards, missing_elements

Axes = tuple[tuple[str, ...], ...]
"""Mesh axes of each array axis."""

TYPE = re.compile(r"\b([a-z][a-z_]{0,9}\d{0,3}\w{0,12})\[([^\[\]]{0,400})\](?:\{([^{}]{0,200})\})?")
"""A type: ``float32[8@x,8]``, ``f32[8@(x,y)]``, ``f32[8]{U:x}``."""
_LENGTH = re.compile(r"(\d+)(?:@(?:\(([^()]*)\)|([^,()]+)))?")
SPEC = re.compile(r"P\(([^()]{0,200}(?:\([^()]{0,100}\)[^()]{0,200}){0,20})\)")
"""A spec: ``P('x', None)``, ``P(('x', 'y'),)``."""
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

    sizes: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Size of each mesh axis; empty if the mesh is not known."""

    def __str__(self) -> str:
        lengths = ",".join(map(_length_text, self.shape, self.axes))
        unreduced = f"{{U:{','.join(self.unreduced)}}}" if self.unreduced else ""
        return f"{self.dtype}[{lengths}]{unreduced}"

    @property
    def used(self) -> set[str]:
        """Mesh axes that shard the array."""
        return {name for names in self.axes for name in names}

    @property
    def shard_nbytes(self) -> int | None:
        """Bytes of a shard; None if they are not known."""
        if (bits := bits_of_name(named_in_full(self.dtype))) is None or not self.used <= set(self.sizes):
            return None
        return -(-math.prod(self.shape) // math.prod(self.sizes[name] for name in self.used)) * bits // 8

    def divides(self, axis: int, names: Sequence[str]) -> bool:
        """Return whether an array axis can be sharded over some mesh axes."""
        return self.shape[axis] % math.prod(self.sizes.get(name, 1) for name in names) == 0

    def resharded_nbytes(self, axes: Axes) -> int | None:
        """Return the bytes that a device sends to reshard the array; None if they are not known."""
        bits = bits_of_name(named_in_full(self.dtype))
        used = {name for entry in axes for name in entry}
        if bits is None or self.unreduced or not self.used | used <= set(self.sizes):
            return None
        source, target = (held_shards(mesh_layout(self.shape, self.sizes, one)) for one in (self.axes, axes))
        return int(missing_elements(self.shape, source, target).max()) * bits // 8

    def without(self, dims: Collection[int]) -> Iterator[Axes]:
        """Yield shardings without mesh axes on some dimensions: moved to another dimension, then dropped."""
        moved = tuple(name for dim in sorted(dims) for name in self.axes[dim])
        rest = tuple(() if dim in dims else names for dim, names in enumerate(self.axes))
        for dim, names in enumerate(rest):
            if moved and not names and dim not in dims and self.sizes and self.divides(dim, moved):
                yield tuple(moved if one == dim else entry for one, entry in enumerate(rest))
                break
        yield rest


def _length_text(length: int, names: Sequence[str]) -> str:
    over = names[0] if len(names) == 1 else f"({','.join(names)})"
    return f"{length}@{over}" if names else str(length)


def short_name(dtype: str) -> str:
    """Return the short name of a dtype in JAX's errors, ``f32`` for ``float32``."""
    for long, short in _SHORT:
        if dtype.startswith(long):
            return short + dtype[len(long) :]
    return dtype


def type_of(value: Any) -> ArrayType | None:
    """Return the type of an array or a traced value; None for any other value."""
    if is_tracer(value):
        known, shape, dtype = known_by_type(value.aval), value.aval.shape, str(value.aval.dtype)
    elif is_array(value) and (facts := array_facts(value, reads_value=False)):
        known, shape, dtype = facts.known, facts.shape, facts.dtype
    else:
        return None
    if not all(isinstance(length, int) for length in shape):
        return None
    described = known.sharding.description
    spec, mesh = (described.spec, described.mesh) if described else (None, None)
    sizes = mesh.shape if mesh else {}
    axes = effective_axes(spec or Spec(()), {}, len(shape))
    unreduced = spec.unreduced if spec else ()
    return ArrayType(dtype=short_name(dtype), shape=tuple(shape), axes=axes, unreduced=unreduced, sizes=sizes)


def types_in(text: str) -> list[ArrayType]:
    """Return the types in a message, in its order."""
    found = []
    for dtype, inside, marks in TYPE.findall(text):
        lengths = list(_LENGTH.finditer(inside))
        if ",".join(one[0] for one in lengths) != inside.replace(" ", ""):
            continue
        axes = tuple(tuple((one[2] or one[3] or "").replace(",", " ").split()) for one in lengths)
        unreduced = tuple(re.findall(r"\w+", marks[2:])) if marks.startswith("U:") else ()
        shape = tuple(int(one[1]) for one in lengths)
        found.append(ArrayType(dtype=short_name(dtype), shape=shape, axes=axes, unreduced=unreduced))
    return found


def axes_in(text: str) -> Axes | None:
    """Return the entries of a spec that is printed as ``P('x', None)`` or ``('x', None)``; None if it is not one."""
    try:
        entries = ast.literal_eval(text.removeprefix("PartitionSpec").removeprefix("P"))
    except (SyntaxError, ValueError):
        return None
    entries = entries if isinstance(entries, tuple) else (entries,)
    names = tuple(entry if isinstance(entry, tuple) else (entry,) if entry else () for entry in entries)
    return names if all(isinstance(name, str) for entry in names for name in entry) else None


def specs_in(text: str) -> list[Axes]:
    """Return the specs in a message, in its order."""
    return [axes for one in SPEC.finditer(text) if (axes := axes_in(f"({one[1].rstrip(', ')},)")) is not None]


def fitted(axes: Axes, rank: int) -> Axes:
    """Return the entries of a spec, one for each axis of an array."""
    return (*axes, *[()] * (rank - len(axes)))[:rank]


def with_sizes(one: ArrayType, sizes: Mapping[str, int]) -> ArrayType:
    """Return a type on a mesh of known sizes."""
    return one if one.sizes else replace(one, sizes=sizes)
