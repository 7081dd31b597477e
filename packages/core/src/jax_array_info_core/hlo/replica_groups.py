"""Replica groups of collectives, and the mesh axes that they span."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..layouts.layout import MAX_AXES, MAX_DEVICES
from ..layouts.notation import Scanner
from ..layouts.xla_sharding import DividedMesh, NamedMesh, arranged, read_arrangement, read_mesh, read_parts
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
    shape = scanner.listed(lambda: scanner.number(least=1), "]")
    if len(shape) != 2:
        scanner.fail("expected the number and the size of the groups", 0)
    scanner.expect(r"<=\s*\[", "'<=['")
    dims, permutation = read_arrangement(scanner)
    _check_sizes(scanner, dims)
    if math.prod(dims) != math.prod(shape):
        count, listed = format_number(math.prod(shape)), format_number(math.prod(dims))
        scanner.fail(f"groups of {count} devices, but a list of {listed}", 0)
    return arranged(dims, permutation).reshape(shape)


def read_mesh_groups(scanner: Scanner, mesh: NamedMesh) -> NDArray[np.int64]:
    """Read groups such as ``{'b':(2)2}``, from behind their mesh."""
    _check_sizes(scanner, mesh.dims)
    scanner.expect(r"\{", "'{'")
    parts = read_parts(scanner, mesh)
    divided = DividedMesh(scanner, mesh, parts)
    along = divided.taken(parts)
    pieces = list(divided.pieces)
    order = [pieces.index(piece) for piece in (*(set(pieces) - set(along)), *along)]
    positions = mesh.device_ids.reshape(tuple(divided.pieces.values())).transpose(order)
    return positions.reshape(-1, math.prod(divided.pieces[piece] for piece in along))


def _check_sizes(scanner: Scanner, sizes: Sequence[int]) -> None:
    """Raise an error for sizes whose array would be too large."""
    if math.prod(sizes) > MAX_DEVICES or len(sizes) > MAX_AXES:
        scanner.fail(f"expected up to {format_number(MAX_DEVICES)} devices")


NO_DEVICE = -1
"""Filler at the end of a group that is smaller than the largest one."""


def read_groups(text: str, device_count: int) -> NDArray[np.int64]:
    """Return the groups of devices that exchange data with each other.

    A device is its position in ``mesh.devices.flat``, not its id.

    Args:
        text: Replica groups in one of XLA's notations: a list such as ``{{0,2},{1,3}}``, where ``{}`` is one
            group of all devices; ``[2,2]<=[2,2]T(1,0)``; or axes of a mesh such as
            ``mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'a','b':(2)2}``. XLA chooses the names of these
            axes, so they need not be those of the user's mesh.
        device_count: Number of devices that run the program.

    Returns:
        Positions, of shape (groups, size of the largest group). Smaller groups end with -1.

    Raises:
        NotationError: (a ValueError) If the text is not a notation of groups, or does not fit the number of
            devices. The message marks the error.

    >>> read_groups("[2,2]<=[2,2]T(1,0)", 4).tolist()
    [[0, 2], [1, 3]]
    >>> read_groups("mesh['a'=2,'b'=4] {'b':(2)2}", 8).tolist()
    [[0, 1], [2, 3], [4, 5], [6, 7]]
    """
    scanner = Scanner(text)
    if (mesh := read_mesh(scanner)) is not None:
        groups = read_mesh_groups(scanner, mesh)
    elif scanner.take(r"\["):
        groups = read_iota_groups(scanner)
    else:
        lists = read_lists(scanner) or [list(range(device_count))]
        groups = filled(lists)
    scanner.end()
    _check(scanner, groups, device_count)
    named = groups[groups != NO_DEVICE]
    if len(named) != len(np.unique(named)):
        scanner.fail("a device is in two groups", 0)
    return groups


def filled(lists: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Return lists as the rows of an array. Shorter ones end with -1."""
    size = max(map(len, lists), default=0)
    rows = [[*one, *[NO_DEVICE] * (size - len(one))] for one in lists]
    return np.array(rows, np.int64).reshape(len(rows), size)


def read_pairs(text: str, device_count: int) -> NDArray[np.int64]:
    """Return the pairs (source, target) of a collective-permute, of shape (pairs, 2).

    Args:
        text: Pairs such as ``{{0,1},{1,0}}``.
        device_count: Number of devices that run the program.

    Raises:
        NotationError: (a ValueError) If the text is not a list of pairs of devices.
    """
    scanner = Scanner(text)
    lists = read_lists(scanner)
    scanner.end()
    if any(len(one) != 2 for one in lists):
        scanner.fail("expected pairs", 0)
    pairs = np.array(lists, np.int64).reshape(-1, 2)
    _check(scanner, pairs, device_count)
    return pairs


def _check(scanner: Scanner, positions: NDArray[np.int64], device_count: int) -> None:
    """Raise an error for a position that is not a device."""
    if positions.size and np.max(positions) >= device_count:
        largest, count = format_number(int(np.max(positions))), format_number(device_count)
        scanner.fail(f"there is no device {largest} among {count}", 0)


def group_axes(groups: NDArray[np.int64], mesh: Mapping[str, int]) -> tuple[str, ...] | None:
    """Return the mesh axes over which the devices of a group differ, in the order of the mesh.

    A part of an axis is written as in Shardy, ``x:(before)size``: ``x`` is divided into ``before`` major
    parts, and a group runs over ``size`` parts of each. On ``x`` of size 8, ``x:(2)4`` stands for the
    groups {0,1,2,3} and {4,5,6,7}, and ``x:(1)4`` for {0,2,4,6} and {1,3,5,7}.

    Args:
        groups: Positions in ``mesh.devices.flat``, of shape (groups, size), as from ``read_groups``.
        mesh: Size of each mesh axis by name.

    Returns:
        The axes; None if the groups do not follow them, such as groups of different sizes.

    >>> group_axes(np.array([[0, 1], [2, 3], [4, 5], [6, 7]]), {"x": 2, "y": 4})
    ('y:(2)2',)
    """
    sizes = tuple(mesh.values())
    if not groups.size or np.min(groups) < 0 or np.max(groups) >= math.prod(sizes):
        return None
    names: list[str] = []
    moving = np.zeros_like(groups)
    count = 1
    weight = math.prod(sizes)
    # The leading 1 allows for a mesh without axes.
    for (name, size), along in zip(mesh.items(), np.unravel_index(groups, (1, *sizes))[1:], strict=True):
        weight //= size
        digits = _digits(np.unique(along[0]), size)
        if digits is None:
            return None
        for stride, steps in digits:
            names.append(name if steps == size else f"{name}:({size // (stride * steps)}){steps}")
            moving += along // stride % steps * (stride * weight)
            count *= steps
    fixed = groups - moving
    follows = (
        count == groups.shape[1]
        and np.array_equal(fixed, np.broadcast_to(fixed[:, :1], fixed.shape))
        and len(np.unique(fixed[:, 0])) == len(groups)
        and len(np.unique(groups)) == groups.size
    )
    return tuple(names) if follows else None


def _digits(values: NDArray[np.int64], size: int) -> list[tuple[int, int]] | None:
    """Return the digits (stride, count) of an axis that run through all their values, major to minor.

    The other digits are constant. None if the values are not of this form.

    Args:
        values: Coordinates along the axis, sorted, each once.
        size: Size of the axis.
    """
    digits: list[tuple[int, int]] = []
    rest = values - values[0]
    done = 1
    while len(rest) > 1:
        stride = int(rest[1])
        steps = np.arange(len(rest)) * stride
        count = len(rest) if np.array_equal(rest, steps) else int(np.argmin(rest == steps))
        if len(rest) % count or stride % done or values[0] // stride % count:
            return None
        blocks = rest.reshape(-1, count)
        if not np.array_equal(blocks, blocks[:, :1] + steps[:count]):
            return None
        digits.append((stride, count))
        done = stride * count
        rest = blocks[:, 0]
    return digits[::-1] if size % done == 0 else None


def pair_axes(pairs: NDArray[np.int64], mesh: Mapping[str, int]) -> tuple[str, ...] | None:
    """Return the mesh axes along which the devices of some pair differ, in the order of the mesh.

    Args:
        pairs: Positions in ``mesh.devices.flat``, of shape (pairs, 2), as from ``read_pairs``.
        mesh: Size of each mesh axis by name.

    Returns:
        The axes; None if a position is not in the mesh.
    """
    sizes = tuple(mesh.values())
    if pairs.size and (np.min(pairs) < 0 or np.max(pairs) >= math.prod(sizes)):
        return None
    coordinates = np.unravel_index(pairs, (1, *sizes))[1:]
    return tuple(
        name
        for name, along in zip(mesh, coordinates, strict=True)
        if not np.array_equal(along[:, 0], along[:, 1])
    )


def longest_chain(pairs: NDArray[np.int64]) -> int:
    """Return the number of devices in the longest cycle or chain of pairs (source, target); 1 without any.

    Pairs of a device with itself do not count.
    """
    following = {source: target for source, target in pairs.tolist() if source != target}
    starts = following.keys() - set(following.values())
    longest = 1
    while following:
        # Chains first: what remains after them are cycles.
        at: int | None = starts.pop() if starts else next(iter(following))
        length = 0
        first = at
        while at is not None:
            length += 1
            at = following.pop(at, None)
            if at == first:
                break
        longest = max(longest, length)
    return longest
