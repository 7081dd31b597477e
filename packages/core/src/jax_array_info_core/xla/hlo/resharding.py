"""Values that XLA gathers whole, although each device then takes its own part: its full replication."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .collectives import Movement
from .dataflow import Dataflow, Value
from .module import PASSING
from .replication import computed, is_of_user

_PASSES = (PASSING.keys() - {"dynamic-slice", "ragged-all-to-all"}) | {"all-gather-done", "get-tuple-element"}
"""Operations whose result is all of their first operand, in another form, or an element of it."""
_MOVES_AXES = frozenset({"bitcast", "bitcast-convert", "pad", "reshape", "reverse", "slice", "transpose"})
"""Those of ``_PASSES`` whose result may have other axes, or a part or another order of them."""
_MARK = "is_spmd_generated"
"""Attribute of the operations that the partitioner adds, since JAX 0.12."""
_MOST = 4000
"""Number of values to which a gathered one is followed."""

_Place = tuple[str, str, int]
"""Computation and name of a gather, and the index of its operand."""


class Replicated(NamedTuple):
    """A value that each device has in part, gathers whole, and uses another part of."""

    gathers: tuple[Movement, ...]
    """The gathers, in the order of the program: with the last, the device has the whole."""

    parts: tuple[Value, ...]
    """The parts: each a dynamic-slice at a place that depends on the device."""

    before: NDArray[np.int64] | None
    """Index of the shard of each device along each axis, of shape (axes, devices); None if not known."""

    after: NDArray[np.int64] | None
    """Index of the part of each device, like ``before``."""

    is_asked: bool = False
    """Whether each device takes the part that it had: then the program asks for the whole in between."""


class _Uses(NamedTuple):
    """All uses of a gathered value."""

    parts: tuple[Value, ...]
    """The own parts of each device."""

    gathers: frozenset[_Place]
    """Further gathers."""

    keeps_axes: bool
    """Whether these have the same axes as the value, in the same order."""


def replicated_values(dataflow: Dataflow, moved: Sequence[Movement]) -> list[Replicated]:
    """Return the values that XLA replicates only to shard them again.

    These are the gathers that XLA adds, all of whose uses are parts that differ between the devices which
    gather, through operations that pass on values, fusions, calls, branches and loops, with the gathers that
    only feed such a gather.

    Args:
        dataflow: The connections between the values of the program.
        moved: The arrays that its collectives move.
    """
    gathers = {
        (movement.value.computation, movement.instruction.name, movement.value.element or 0): movement
        for movement in moved
        if movement.kind == "all-gather"
    }
    is_marked = any(_MARK in gather.instruction.frontend_attributes for gather in gathers.values())
    numbers = DeviceNumbers(dataflow)
    uses: dict[_Place, _Uses] = {}
    for place, gather in gathers.items():
        is_of_xla = _MARK in gather.instruction.frontend_attributes if is_marked else not is_of_user(gather)
        if is_of_xla and (used := _uses(dataflow, gather.value, gathers, numbers)) is not None:
            uses[place] = used
    while wrong := [place for place, use in uses.items() if not use.gathers <= uses.keys()]:
        for place in wrong:
            del uses[place]
    chains = (_with_feeders(place, gathers, uses, numbers) for place, use in uses.items() if use.parts)
    return [
        replicated
        for replicated in chains
        if all(
            _differs(part, replicated.gathers, numbers) and not _overlap(part, replicated.gathers, numbers)
            for part in replicated.parts
        )
    ]


def _with_feeders(
    last: _Place, gathers: Mapping[_Place, Movement], uses: Mapping[_Place, _Uses], numbers: DeviceNumbers
) -> Replicated:
    """Return what is replicated by a gather and those that only feed it."""
    chain = [last]
    for at in chain:
        chain += [place for place, use in uses.items() if at in use.gathers and place not in chain]
    ordered = tuple(gathers[place] for place in reversed(chain))
    parts = uses[last].parts
    count = numbers.count
    has_groups = all(gather.groups is not None and gather.groups.size == count for gather in ordered)
    if not has_groups or not all(uses[place].keeps_axes for place in chain):
        return Replicated(ordered, parts, None, None)
    before = _places_before(ordered, count)
    each = [_places_after(part, ordered[-1].shape.dims, numbers) for part in parts]
    is_same = all(places is not None and np.array_equal(places, each[0]) for places in each)
    after, is_asked = each[0] if is_same else None, is_same and np.array_equal(before, each[0])
    # What is divided among further devices may be so before and after.
    is_known = math.prod(gather.group_size for gather in ordered) == count
    return Replicated(ordered, parts, before if is_known else None, after if is_known else None, is_asked)


def _differs(part: Value, gathers: Sequence[Movement], numbers: DeviceNumbers) -> bool:
    """Return whether devices that gather a value from each other take different parts.

    If not, they all need what they gather, as of a weight that is then sharded along another mesh axis.
    """
    starts = [start for start in numbers.starts(part) if start is not None]
    return any(
        gather.groups is None
        or gather.groups.size != numbers.count
        or np.ptp(at[gather.groups % len(at), 0], axis=1).any()
        for gather in gathers
        for at in starts
    )


def _overlap(part: Value, gathers: Sequence[Movement], numbers: DeviceNumbers) -> bool:
    """Return whether parts overlap and have the order of shards that are gathered, as those of a running sum.

    The value then keeps its sharding, and each device needs more of it than its shard.
    """
    pairs = zip(numbers.dataflow.instruction(part).shapes[0].dims, numbers.starts(part), strict=True)
    return any(
        gather.groups is not None
        and gather.group_size == len(np.unique(starts))
        and bool((np.diff(starts[gather.groups % len(starts), 0]) > 0).all())
        for dim, starts in pairs
        if starts is not None and np.any(np.diff(np.unique(starts)) < dim)
        for gather in gathers
    )


def _places_before(gathers: Sequence[Movement], count: int) -> NDArray[np.int64]:
    """Return the index of the shard of each device, of shape (axes, devices)."""
    places = np.zeros((len(gathers[0].shape.dims), count), np.int64)
    for gather in gathers:
        along = places[gather.instruction.op.dimensions[0]]
        # The shards of the last gather are the largest.
        along[gather.groups] += (along.max() + 1) * np.arange(gather.group_size)
    return places


def _places_after(part: Value, whole: Sequence[int], numbers: DeviceNumbers) -> NDArray[np.int64] | None:
    """Return the index of the part of each device, of shape (axes, devices); None if it is not known."""
    instruction = numbers.dataflow.instruction(part)
    places = np.zeros((len(whole), numbers.count), np.int64)
    pairs = zip(instruction.shapes[0].dims, whole, numbers.starts(part), strict=True)
    for axis, (dim, length, starts) in enumerate(pairs):
        if dim < length:
            if starts is None or (starts % dim).any():
                return None
            places[axis] = starts[:, 0] // dim
    return places


def _uses(
    dataflow: Dataflow, start: Value, gathers: Mapping[_Place, Movement], numbers: DeviceNumbers
) -> _Uses | None:
    """Return the uses of a gathered value; None if one is not a part or a gather, and if there are none."""
    entry = dataflow.module.computations[dataflow.module.entry]
    parts: list[Value] = []
    further: set[_Place] = set()
    passed: set[str] = set()
    seen = {start}
    waiting = [start]
    for at in waiting:
        if at[:2] == (entry.name, entry.root.name) or len(seen) > _MOST:
            return None
        for user, operand, value in dataflow.steps(at):
            if user is not None and value.computation == at.computation:
                opcode, place = user.opcode, (at.computation, value.name, operand)
                if opcode == "dynamic-slice" and operand == 0 and any(map(_differ, numbers.starts(value))):
                    parts.append(value)
                    continue
                if place in gathers:
                    further.add(place)
                    continue
                if not (opcode == "tuple" or (operand == 0 and opcode in _PASSES)):
                    return None
                passed.add(opcode)
            if value not in seen:
                seen.add(value)
                waiting.append(value)
    if not (parts or further):
        return None
    return _Uses(tuple(dict.fromkeys(parts)), frozenset(further), not passed & _MOVES_AXES)


def _differ(starts: NDArray[np.int64] | None) -> bool:
    """Return whether parts start at different places, as far as they are known."""
    return starts is not None and bool(np.ptp(starts, axis=0).any())


class DeviceNumbers:
    """Integers that a program computes from the number of the device.

    Args:
        dataflow: The connections between the values of the program.
    """

    def __init__(self, dataflow: Dataflow) -> None:
        self.dataflow = dataflow
        self.count = dataflow.module.device_count
        """Number of devices."""
        self._known: dict[Value, NDArray[np.int64] | None] = {}

    def of(self, value: Value) -> NDArray[np.int64] | None:
        """Return the integers of a value, of shape (devices or 1, elements); None if they are not known."""
        if value not in self._known:
            self._known[value] = self._computed(value)
        return self._known[value]

    def starts(self, part: Value) -> list[NDArray[np.int64] | None]:
        """Return the start of the part of each device along each axis, as far as it is known."""
        names = self.dataflow.instruction(part).operands[1:]
        return [self.of(Value(part.computation, name)) for name in names]

    def _computed(self, value: Value) -> NDArray[np.int64] | None:
        instruction = self.dataflow.instruction(value)
        if instruction.opcode == "partition-id":
            return np.arange(self.count)[:, None]
        if (source := self.dataflow.same(value)) is not None:
            return self.of(source)
        return computed(
            instruction, [self.of(Value(value.computation, name)) for name in instruction.operands]
        )
