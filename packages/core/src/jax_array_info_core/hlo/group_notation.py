"""Notations of groups of devices: lists, iota and mesh axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..layouts.layout import MAX_DEVICES
from ..layouts.scanner import Scanner
from ..quantities import format_number

_MAX_DIGITS = 18
"""Most digits of a number in a list, with its brackets and blanks."""


def read_lists(scanner: Scanner) -> list[list[int]]:
    """Read lists such as ``{{0,2},{1,3}}``."""
    # One pattern for the whole text: item by item, 65,536 devices would take a second.
    body = scanner.expect(r"\{\s*(?:\{[0-9,\s]*\}[,\s]*)*\}", "'{{…}}', '[…]' or 'mesh[…]'")
    inner = body[1:-1].strip()
    if not inner:
        return []
    texts = [one.strip("{}, \n\t") for one in inner.split("}")]
    if len(max(inner.replace("}", ",").split(","), key=len)) > _MAX_DIGITS:
        scanner.fail(f"expected numbers of at most {_MAX_DIGITS} digits", 0)
    return [[int(number) for number in one.split(",") if number.strip()] for one in texts if one]


def read_iota_groups(scanner: Scanner) -> NDArray[np.int64]:
    """Read groups such as ``[2,4]<=[4,2]T(1,0)``, from behind the first bracket."""
    shape = _sizes(scanner)
    if len(shape) != 2:
        scanner.fail("expected the number and the size of the groups", 0)
    scanner.expect(r"<=\s*\[", "'<=['")
    positions = _arranged(scanner, _sizes(scanner))
    if positions.size != math.prod(shape):
        count, listed = format_number(math.prod(shape)), format_number(positions.size)
        scanner.fail(f"groups of {count} devices, but a list of {listed}", 0)
    return positions.reshape(shape)


def read_mesh_groups(scanner: Scanner) -> NDArray[np.int64]:
    """Read groups such as ``mesh['a'=2,'b'=4] {'b':(2)2}``, from behind ``mesh``."""
    scanner.expect(r"\[", "'['")
    axes: dict[str, int] = {}

    def axis() -> None:
        at = scanner.position
        name = _axis_name(scanner)
        scanner.expect("=", "'='")
        if name in axes:
            scanner.fail("this mesh axis is listed twice", at)
        axes[name] = scanner.number(least=1)

    scanner.listed(axis, "]")
    sizes = tuple(axes.values())
    _check_sizes(scanner, sizes)
    positions = np.arange(math.prod(sizes))
    if scanner.take(r",\s*device_ids\s*=\s*\("):
        if scanner.take(r"\["):
            positions = _arranged(scanner, _sizes(scanner))
        else:
            positions = np.array(scanner.separated(scanner.number, ","), np.int64)
        scanner.expect(r"\)", "')'")
    if not np.array_equal(np.sort(positions), np.arange(math.prod(sizes))):
        scanner.fail(f"expected the devices 0…{math.prod(sizes) - 1}, each once", 0)
    scanner.expect(r"\{", "'{'")

    def part() -> tuple[str, int, int]:
        at = scanner.position
        name = _axis_name(scanner)
        if name not in axes:
            scanner.fail("this is not an axis of the mesh", at)
        before, size = 1, axes[name]
        if scanner.take(r":\s*\("):
            before = scanner.number(least=1)
            scanner.expect(r"\)", "')'")
            size = scanner.number(least=1)
            if axes[name] % (before * size):
                scanner.fail(f"this is not a part of an axis of size {axes[name]}", at)
        return name, before, size

    parts = scanner.listed(part, "}")
    return _groups_over(positions, axes, parts, scanner)


def _groups_over(
    positions: NDArray[np.int64],
    axes: Mapping[str, int],
    parts: Sequence[tuple[str, int, int]],
    scanner: Scanner,
) -> NDArray[np.int64]:
    """Return the groups over parts (name, size of what is before it, size) of the axes of a mesh."""
    shape: list[int] = []
    place: dict[tuple[str, int], int] = {}
    for name, size in axes.items():
        done = 1
        for _, before, count in sorted(part for part in parts if part[0] == name):
            if before % done or (name, before) in place:
                scanner.fail(f"the parts of axis {name!r} overlap", 0)
            shape += [before // done, count]
            place[name, before] = len(shape) - 1
            done = before * count
        shape.append(size // done)
    along = [place[name, before] for name, before, _ in parts]
    others = [axis for axis in range(len(shape)) if axis not in along]
    group_size = math.prod(shape[axis] for axis in along)
    return _transposed(positions, shape, [*others, *along]).reshape(-1, group_size)


def _axis_name(scanner: Scanner) -> str:
    """Read the name of a mesh axis, in quotes or not."""
    return scanner.expect(r"'[^']*'|\"[^\"]*\"|[^\s\[\](){}=,:'\"]+", "the name of a mesh axis").strip("'\"")


def _sizes(scanner: Scanner) -> tuple[int, ...]:
    """Read sizes up to a closing bracket."""
    sizes = scanner.listed(lambda: scanner.number(least=1), "]")
    _check_sizes(scanner, sizes)
    return sizes


def _check_sizes(scanner: Scanner, sizes: tuple[int, ...]) -> None:
    """Raise an error for sizes whose array would be too large."""
    if math.prod(sizes) > MAX_DEVICES:
        scanner.fail(f"expected up to {format_number(MAX_DEVICES)} devices")


def _arranged(scanner: Scanner, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the devices 0…n−1 in a shape, flat, transposed if a permutation such as ``T(1,0)`` follows."""
    permutation = tuple(range(len(shape)))
    if scanner.take(r"T\s*\("):
        at = scanner.position
        permutation = scanner.listed(scanner.number, ")")
        if sorted(permutation) != list(range(len(shape))):
            scanner.fail(f"expected a permutation of {len(shape)} axes", at)
    return _transposed(np.arange(math.prod(shape)), shape, permutation)


def _transposed(
    positions: NDArray[np.int64], shape: Sequence[int], permutation: Sequence[int]
) -> NDArray[np.int64]:
    """Return the positions in a shape, transposed and flat."""
    # Axes of size 1 change no order, and with them there could be more axes than NumPy allows.
    kept = [axis for axis in permutation if shape[axis] > 1]
    order = sorted(kept)
    return positions.reshape([shape[axis] for axis in order]).transpose(list(map(order.index, kept))).ravel()
