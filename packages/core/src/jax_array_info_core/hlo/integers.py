"""Integers that a program computes, such as the offsets of a device in an array."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from .module import Instruction, Passing, operations

_MOST_NUMBERS = 1 << 16
_SAME_NUMBERS = operations(Passing.NUMBER) | {"broadcast"}
_ARITHMETIC: Mapping[str, Callable[..., NDArray[np.int64]]] = {
    "add": np.add,
    "and": np.bitwise_and,
    "clamp": lambda least, value, most: np.minimum(np.maximum(value, least), most),
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "subtract": np.subtract,
}


def computed(one: Instruction, numbers: Sequence[NDArray[np.int64] | None]) -> NDArray[np.int64] | None:
    """Return the integers of a result with one axis at most, of shape (devices or 1, elements).

    None if they are not known, and for many.

    Args:
        one: The instruction.
        numbers: The integers of its operands.
    """
    shape = one.shapes[0] if one.shapes else None
    size = 0 if shape is None else math.prod(shape.dims)
    if shape is None or len(shape.dims) > 1 or "int" not in shape.dtype or size > _MOST_NUMBERS:
        return None
    if one.opcode == "constant":
        return None if one.integers is None else one.integers[None]
    numbers = numbers[: 1 if one.opcode in _SAME_NUMBERS else None]
    known = [each for each in numbers if each is not None]
    if not known or len(known) < len(numbers):
        return None
    if one.opcode == "dynamic-slice" and size == len(known[0]) == known[1].shape[1] == 1:
        return np.take(known[0][0], known[1], mode="clip")
    if any(each.shape[1] != size for each in known):
        return None
    if one.opcode in _SAME_NUMBERS:
        return known[0]
    return _ARITHMETIC[one.opcode](*known) if one.opcode in _ARITHMETIC else None
