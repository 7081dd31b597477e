"""Devices that communicate: replica groups, and programs for several slices."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...geometry.layouts.layout import MAX_DEVICES
from ...geometry.layouts.xla_sharding import arranged
from .messages import NEWEST_FIELD, unknown_fields
from .module import Instruction

_LISTS = re.compile(r"\{(?:\{(?:\d{1,18}+(?!\d),?)*+\},?)*+\}")
_AS_JSON = str.maketrans("{}", "[]")


def read_lists(text: str) -> list[list[int]]:
    """Return the lists in a text such as ``{{0,2},{1,3}}``.

    Raises:
        ValueError: If the text has another form.
    """
    if _LISTS.fullmatch(text) is None:
        raise ValueError(f"expected lists of devices, not {text!r}")
    lists: list[list[int]] = json.loads(text.translate(_AS_JSON))
    return lists


NO_DEVICE = -1
"""Filler at the end of a group that is smaller than the largest one."""


def replica_groups(op: Any, device_count: int) -> NDArray[np.int64]:
    """Return the groups of devices that exchange data with each other.

    A device is its position in ``mesh.devices.flat``, not its id.

    Args:
        op: The ``HloInstructionProto`` of a collective. Without a list, all devices are one group.
        device_count: Number of devices that run the program.

    Returns:
        Positions, of shape (groups, size of the largest group). Smaller groups end with -1.

    Raises:
        ValueError: If the groups do not fit the number of devices, or may be in a form that is not known.
    """
    listed = op.collective_device_list
    lists = [list(group.replica_ids) for group in listed.replica_groups or op.replica_groups]
    iota = op.iota_collective_device_list if op.HasField("iota_collective_device_list") else listed.iota
    if op.HasField("mesh_axes_replica_group_list"):
        groups = _mesh_groups(op.mesh_axes_replica_group_list, device_count)
    elif iota.num_replica_groups:
        places = _arranged(iota.iota_reshape_dims, iota.iota_transpose_perm, device_count)
        groups = places.reshape(iota.num_replica_groups, iota.num_devices_per_group)
    elif any(lists):
        groups = filled(lists)
    elif newer := {number for number in unknown_fields(op) if number > NEWEST_FIELD}:
        raise ValueError(f"the groups may be in the unknown field {min(newer)}")
    else:
        groups = np.arange(device_count)[None]
    _check(groups, device_count)
    named = groups[groups != NO_DEVICE]
    if len(named) != len(np.unique(named)):
        raise ValueError("a device is in two groups")
    return groups


DEVICE_LISTS = ("collective_device_list", "iota_collective_device_list", "mesh_axes_replica_group_list")
"""Messages of an instruction that list groups of devices, in newer versions."""


def has_devices(op: Any) -> bool:
    """Return whether an instruction names groups or pairs of devices."""
    return bool(op.replica_groups or op.source_target_pairs) or any(map(op.HasField, DEVICE_LISTS))


def _arranged(dims: Sequence[int], permutation: Sequence[int], device_count: int) -> NDArray[np.int64]:
    """Return the devices 0, 1, … in an array, transposed."""
    if math.prod(dims) > device_count:
        raise ValueError(f"a list of {math.prod(dims)} devices, of {device_count}")
    return arranged(dims, permutation or range(len(dims)))


def _mesh_groups(listed: Any, device_count: int) -> NDArray[np.int64]:
    """Return the groups of devices that differ along some axes of a mesh, or along parts of axes.

    A part of size ``s`` after ``b`` major parts is a digit of the coordinates along its axis. The devices of
    a group are the same in all others.
    """
    mesh = listed.mesh
    sizes = [axis.size for axis in mesh.axes]
    if min(sizes, default=1) < 1:
        raise ValueError(f"a mesh of sizes {sizes}")
    if mesh.device_ids:
        devices = np.array(mesh.device_ids, np.int64)
    else:
        iota = mesh.iota_transform
        devices = _arranged(iota.reshape_dims or [math.prod(sizes)], iota.transpose_perm, device_count)
    devices = devices.reshape(sizes).ravel()
    others = np.indices(sizes).reshape(len(sizes), len(devices))
    digits: list[NDArray[np.int64]] = []
    count = 1
    for reference in listed.axes:
        axis, part = reference.mesh_axis_index, reference.sub_axis_info
        before, size = (part.pre_size, part.size) if reference.HasField("sub_axis_info") else (1, sizes[axis])
        if before * size < 1 or sizes[axis] % (before * size):
            raise ValueError(f"{sizes[axis]} devices are not divided by {before * size}")
        stride = sizes[axis] // (before * size)
        digits.append(others[axis] // stride % size)
        others[axis] -= digits[-1] * stride
        count *= size
    order = np.lexsort((*digits[::-1], *others[::-1], np.zeros_like(devices)))
    if np.ptp(others[:, order].reshape(len(sizes), len(order) // count, count), axis=2).any():
        raise ValueError("parts of an axis overlap")
    return devices[order].reshape(-1, count)


def filled(lists: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Return lists as the rows of an array. Shorter ones end with -1."""
    size = max(map(len, lists), default=0)
    rows = [[*row, *[NO_DEVICE] * (size - len(row))] for row in lists]
    return np.array(rows, np.int64).reshape(len(rows), size)


def pairs_of(op: Any, device_count: int) -> NDArray[np.int64]:
    """Return the pairs (source, target) of a collective-permute, of shape (pairs, 2).

    Arguments and errors are those of ``replica_groups``.
    """
    return _checked_pairs([(pair.source, pair.target) for pair in op.source_target_pairs], device_count)


def read_pairs(text: str, device_count: int) -> NDArray[np.int64]:
    """Return the pairs of a send, which are text such as ``{{0,1},{1,0}}``.

    Raises:
        ValueError: If the text is not a list of pairs of devices.
    """
    pairs = read_lists(text)
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"expected pairs, not {text!r}")
    return _checked_pairs(pairs, device_count)


def _checked_pairs(lists: Sequence[Sequence[int]], device_count: int) -> NDArray[np.int64]:
    pairs = np.array(lists, np.int64).reshape(-1, 2)
    _check(pairs, device_count)
    return pairs


def _check(positions: NDArray[np.int64], device_count: int) -> None:
    """Raise an error for a position that is not a device."""
    if positions.size and np.max(positions) >= device_count:
        raise ValueError(f"there is no device {np.max(positions)} among {device_count}")


def group_axes(groups: NDArray[np.int64], mesh: Mapping[str, int]) -> tuple[str, ...] | None:
    """Return the mesh axes over which the devices of a group differ, in the order of the mesh.

    A part of an axis is written as in Shardy, ``x:(before)size``: ``x`` is divided into ``before`` major
    parts, and a group runs over ``size`` parts of each. On ``x`` of size 8, ``x:(2)4`` stands for the
    groups {0,1,2,3} and {4,5,6,7}, and ``x:(1)4`` for {0,2,4,6} and {1,3,5,7}.

    Args:
        groups: Positions in ``mesh.devices.flat``, of shape (groups, size), as from ``replica_groups``.
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
    offsets = values - values[0]
    done = 1
    while len(offsets) > 1:
        stride = int(offsets[1])
        steps = np.arange(len(offsets)) * stride
        count = len(offsets) if np.array_equal(offsets, steps) else int(np.argmin(offsets == steps))
        if len(offsets) % count or stride % done or values[0] // stride % count:
            return None
        blocks = offsets.reshape(-1, count)
        if not np.array_equal(blocks, blocks[:, :1] + steps[:count]):
            return None
        digits.append((stride, count))
        done = stride * count
        offsets = blocks[:, 0]
    return digits[::-1] if size % done == 0 else None


def pair_axes(pairs: NDArray[np.int64], mesh: Mapping[str, int]) -> tuple[str, ...] | None:
    """Return the mesh axes along which the devices of some pair differ, in the order of the mesh.

    Args:
        pairs: Positions in ``mesh.devices.flat``, of shape (pairs, 2), as from ``pairs_of``.
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


_HANDLER = "_xla_host_transfer_handler_name", "xla_megascale_runtime"
_ONE_TO_ONE = "one-to-one"
_FIRST_DEVICE = 100_000
"""Device ids of a slice begin with its number times this."""
_NAME = re.compile(r"[a-z]+([-_][a-z]+)*")
_PRODUCT = re.compile(r"\{([\d,:]+)\}x\{([\d,:]+)\}")
"""Numbers of slices, and of the devices in each."""


class Axes:
    """The mesh axes, divided into axes of prime lengths, so that a mask of bits tells parts of an axis too.

    Args:
        mesh: Sizes of the mesh axes by name, the major first.
    """

    def __init__(self, mesh: Mapping[str, int]) -> None:
        divided = [(name, prime) for name, size in mesh.items() for prime in _primes(size)]
        self.names = [name for name, _ in divided]
        """Name of the mesh axis of each bit."""
        self.lengths = [prime for _, prime in divided]
        """Length of the axis of each bit."""
        self.all = self.of(mesh)
        """All axes."""
        self._spanned: dict[int, int] = {}
        """Axes that groups span, by the identity of their array, which collectives share."""

    def of(self, names: Collection[str]) -> int:
        """Return the axes of whole mesh axes."""
        return sum(1 << bit for bit, name in enumerate(self.names) if name in names)

    def count(self, axes: int) -> int:
        """Return the number of devices along axes."""
        return math.prod(length for bit, length in enumerate(self.lengths) if axes >> bit & 1)

    def varied(self, values: NDArray[np.int64]) -> int:
        """Return the axes along which values of shape (devices or 1, numbers) differ."""
        if len(values) == 1:
            return 0
        cube = values.reshape(*self.lengths, -1)
        return sum(1 << bit for bit in range(cube.ndim - 1) if (cube != cube.take([0], bit)).any())

    def spanned(self, groups: NDArray[np.int64] | None) -> int:
        """Return the axes whose devices are together in each group, of shape (groups, devices in each)."""
        if id(groups) not in self._spanned:
            self._spanned[id(groups)] = self._spanned_by(groups)
        return self._spanned[id(groups)]

    def _spanned_by(self, groups: NDArray[np.int64] | None) -> int:
        if groups is None or groups.size != self.count(self.all) or int(np.min(groups)) < 0:
            return 0
        owners = np.empty((groups.size, 1), np.int64)
        owners[groups, 0] = np.arange(len(groups))[:, None]
        return self.all & ~self.varied(owners)

    def exchanged(self, groups: NDArray[np.int64] | None) -> int:
        """Return the axes along which devices of a group may differ: all, if they are not known."""
        spanned = self.spanned(groups)
        return spanned if groups is not None and self.count(spanned) == groups.shape[1] else self.all


def _primes(number: int) -> Iterator[int]:
    """Yield the prime factors of a number, the least first."""
    while number > 1:
        least = next(divisor for divisor in range(2, number + 1) if not number % divisor)
        yield least
        number //= least


@dataclass(frozen=True, slots=True, eq=False)
class ProgramSlices:
    """The devices of a program for several slices, each as a position in ``mesh.devices.flat``."""

    members: NDArray[np.int64]
    """Devices of each slice, of shape ``(slices, devices of a slice)``, in the order of the mesh."""

    by_id: dict[int, int]
    """Devices by JAX's id."""

    @classmethod
    def of(cls, ids: NDArray[np.int64], slices: NDArray[np.int64]) -> ProgramSlices:
        """Return the slices of devices.

        Args:
            ids: JAX's id of each device, in the order of the mesh.
            slices: Slice of each device.

        Raises:
            ValueError: If the slices have different numbers of devices.
        """
        members = [np.flatnonzero(slices == number) for number in np.unique(slices)]
        return cls(np.stack(members), dict(zip(ids.tolist(), itertools.count())))

    @property
    def device_count(self) -> int:
        """Number of devices in all slices."""
        return self.members.size

    def everywhere(self, groups: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return groups or pairs of devices of one slice as those of all slices.

        Args:
            groups: Places in a slice, of shape ``(groups, size)``; -1 where a group is smaller.
        """
        return np.where(groups == NO_DEVICE, NO_DEVICE, self.members[:, groups]).reshape(-1, groups.shape[1])

    def positions(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the devices with some ids; -1 remains.

        Raises:
            ValueError: If there is no device with such an id.
        """
        try:
            positions = [
                NO_DEVICE if number == NO_DEVICE else self.by_id[number] for number in ids.ravel().tolist()
            ]
        except KeyError as error:
            raise ValueError(f"no device has the id {error}") from error
        return np.array(positions, np.int64).reshape(ids.shape)


def is_between_slices(instruction: Instruction) -> bool:
    """Return whether a send or a recv, or its end, is a transfer between slices."""
    name, handler = _HANDLER
    is_end = instruction.opcode.startswith(("send", "recv"))
    return is_end and instruction.frontend_attributes.get(name) == handler


def rendezvous(instruction: Instruction) -> str | None:
    """Return the name that a send and a recv have in common; None for others."""
    if not is_between_slices(instruction):
        return None
    return instruction.frontend_attributes.get("_xla_host_transfer_rendezvous")


def kind_between_slices(send: Instruction) -> str:
    """Return the collective that a send between slices starts, such as ``all-reduce``.

    It is known from the type of the transfer, or else from the name of the rendezvous, which has that of the
    operation in XLA or in JAX: ``all-reduce.1_0``.
    """
    fields = send.frontend_attributes
    text = fields.get("_xla_megascale_transfer_type") or rendezvous(send) or ""
    name = _NAME.match(text.lower())
    kind = name[0].replace("_", "-") if name else ""
    return "collective-permute" if kind == _ONE_TO_ONE else kind


def target_ids(send: Instruction) -> NDArray[np.int64]:
    """Return the ids of the devices of each group of a send between slices, or of each of its pairs.

    Returns:
        Device ids of shape ``(groups, size)``. Smaller groups end with -1.

    Raises:
        ValueError: If the text is not a notation of groups.
    """
    text = send.frontend_attributes.get("_xla_megascale_target", "").replace("->", ",")
    if (product := _PRODUCT.fullmatch(text)) is None:
        lists = read_lists(text)
    else:
        slices, within = map(_numbers, product.groups())
        if len(slices) * len(within) > MAX_DEVICES:
            raise ValueError(f"more than {MAX_DEVICES} devices in {text!r}")
        lists = [[number * _FIRST_DEVICE + entry for number in slices] for entry in within]
    if not lists or not all(lists):
        raise ValueError(f"no devices in {text!r}")
    return filled(lists)


def _numbers(text: str) -> list[int]:
    """Return numbers such as ``1,2`` or ``0:3``, a range with its end."""
    ends = [[int(end) for end in part.split(":")] for part in text.split(",")]
    return [number for first, *last in ends for number in range(first, max(last, default=first) + 1)]
