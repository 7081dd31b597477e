"""Google Cloud's names of TPU slices, such as ``v5p-128``.

Source: the supported configurations of each TPU in Google Cloud's documentation, the pages v2, v3, v4, v5e,
v5p, v6e and tpu7x of docs.cloud.google.com/tpu/docs, which calls the names accelerator types. The sides are
those of the default topology of a size. Only these sizes have names. Other slices are written with sides.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class _Family(NamedTuple):
    """The slices of a chip."""

    prefix: str
    """First part of the names."""

    cores_per_chip: int
    """TensorCores of a chip. The second part of a name is their number in the slice."""

    slices: str
    """Chips along each side of every slice, the smallest slice first."""


_CUBES = "2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x8x8 8x8x8 8x8x16 8x16x16 16x16x16"
_SQUARES = "1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16"
_FAMILIES = {
    "v2": _Family("v2", 2, "2x2 4x4 8x8 8x16 16x16"),
    "v3": _Family("v3", 2, "2x2 4x4 8x8 8x16 16x16 16x32 32x32"),
    "v4": _Family("v4", 2, _CUBES.removesuffix(" 16x16x16")),
    "v5e": _Family("v5litepod", 1, _SQUARES),
    "v5p": _Family("v5p", 2, f"{_CUBES} 16x16x24"),
    "v6e": _Family("v6e", 1, _SQUARES),
    "tpu7x": _Family("tpu7x", 2, _CUBES),
}
_CHIPS = {prefix: chip for chip, family in _FAMILIES.items() for prefix in (chip, family.prefix)}


class NamedSlice(NamedTuple):
    """A slice that has a name."""

    name: str
    """Name, such as ``v5p-128``."""

    sides: tuple[int, ...]
    """Chips along each side."""


def chip_of(prefix: str) -> str | None:
    """Return the chip of names that begin with a prefix: ``v5e`` for ``v5litepod``; None if there is none."""
    return _CHIPS.get(prefix)


def named_slices(chip: str) -> dict[int, NamedSlice]:
    """Return the slices of a chip by the number in their names, the smallest first.

    Args:
        chip: Name of the chip, as in a topology: ``v5e``.

    >>> named_slices("v5p")[128]
    NamedSlice(name='v5p-128', sides=(4, 4, 4))
    """
    family = _FAMILIES[chip]
    found = {}
    for text in family.slices.split():
        sides = tuple(map(int, text.split("x")))
        number = math.prod(sides) * family.cores_per_chip
        found[number] = NamedSlice(f"{family.prefix}-{number}", sides)
    return found


def near_slices(chip: str, number: int) -> list[NamedSlice]:
    """Return the next smaller and the next larger slice with a name, as far as there are any."""
    slices = named_slices(chip)
    smaller = [one for size, one in slices.items() if size < number]
    larger = [one for size, one in slices.items() if size > number]
    return [*smaller[-1:], *larger[:1]]
