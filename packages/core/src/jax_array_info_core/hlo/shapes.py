"""Types of the values of a program."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..layouts.dtypes import bits_of_name, named_in_full, packed_nbytes
from .messages import BUFFER, PRIMITIVES, TUPLE

WITHOUT_DATA = ("token", "opaque")
_UNKNOWN = "unknown type"
"""Start of the name of a type that is not known, such as ``unknown type 40``."""


class ArrayShape(NamedTuple):
    """Type of an array on one device."""

    dtype: str
    """Name in JAX, such as ``float32``; the name in XLA for types that JAX lacks, such as ``token``."""

    dims: tuple[int, ...]
    """Shape."""

    nbytes: int
    """Bytes, packed below 8 bits; 0 for tokens and other types without data."""

    memory_space: int = 0
    """XLA's memory space: 0 for the default, such as HBM; others, such as 1 for VMEM on TPU."""

    @property
    def is_unknown(self) -> bool:
        """Whether the size of its elements is not known."""
        return self.dtype.startswith(_UNKNOWN)


class Type(NamedTuple):
    """Type of the result of an instruction."""

    shapes: tuple[ArrayShape, ...]
    """Arrays, nested tuples flattened."""

    groups: tuple[int, ...]
    """Index of the outermost tuple element of each; empty if the type is not a tuple."""


def dtype_of(name: str) -> str | None:
    """Return JAX's name of a type of XLA, such as ``float32`` for ``f32``.

    XLA's own name for types without data, such as ``token``. None if the type is not known.
    """
    return name if name in WITHOUT_DATA else named_in_full(name)


class Types:
    """The types in a program. Few of them differ."""

    def __init__(self) -> None:
        self._known: dict[bytes, Type] = {}

    def of(self, shape: Any) -> Type:
        """Return the type that a ``ShapeProto`` describes."""
        key = shape.SerializeToString()
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._new(shape)
        return found

    def _new(self, shape: Any) -> Type:
        if shape.element_type != TUPLE:
            return Type((_array_shape(shape),), ())
        parts = [self.of(part).shapes for part in shape.tuple_shapes]
        groups = (place for place, part in enumerate(parts) for _ in part)
        return Type(tuple(leaf for part in parts for leaf in part), tuple(groups))


def _array_shape(shape: Any) -> ArrayShape:
    while shape.element_type == BUFFER:
        shape = shape.tuple_shapes[0]
    number, dims = shape.element_type, tuple(shape.dimensions)
    dtype = dtype_of(PRIMITIVES[number]) if 0 < number < len(PRIMITIVES) else None
    nbytes = 0 if dtype is None or dtype in WITHOUT_DATA else packed_nbytes(dims, bits_of_name(dtype))
    return ArrayShape(dtype or f"{_UNKNOWN} {number}", dims, nbytes or 0, shape.layout.memory_space)
