"""Values that every device of a group computes or holds whole, although they are sharded before."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .collectives import COLLECTIVES, Movement
from .flops import fft_flops, multiply_adds
from .module import (
    PASSING,
    ArrayShape,
    Computation,
    Instruction,
    Module,
    Passing,
    called,
    calls_of,
    operations,
)

SAME = 0
"""Number of the labels of a value that is the same on all devices."""

_GATHERING = frozenset({"all-gather", "all-reduce", "collective-broadcast"})
"""Collectives whose result is the same in all of a group."""
_UNKNOWN = frozenset({"infeed", "recv", "rng", "rng-get-and-update-state"})
_REQUESTED = re.compile(r"/(?:all_gather|p?broadcast|reduce_scatter|p(?:max|min|sum))\w*$")
"""End of an ``op_name`` that is a collective of the user, as in ``shard_map``."""
_MOST_TURNS = 8
"""Number of turns of a loop until nothing changes. What still changes is unknown."""
_DEEPEST = 100
_MOST_NUMBERS = 1 << 16
_SAME_NUMBERS = operations(Passing.NUMBER) | {"broadcast"}
_SINGLE = PASSING.keys() | {"add", "divide", "multiply", "negate", "subtract"}
"""Operations whose elements are each made of those at one place."""
_ARITHMETIC: Mapping[str, Callable[..., NDArray[np.int64]]] = {
    "add": np.add,
    "and": np.bitwise_and,
    "clamp": lambda least, value, most: np.minimum(np.maximum(value, least), most),
    "maximum": np.maximum,
    "minimum": np.minimum,
    "multiply": np.multiply,
    "subtract": np.subtract,
}


class Labels:
    """Partitions of devices by the value that they hold: devices with one label hold the same.

    Args:
        count: Number of devices.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.of: list[NDArray[np.int64]] = []
        """Label of each device, of each partition by its number."""
        self._numbers: dict[bytes, int] = {}
        self._both: dict[tuple[int, int], int] = {}
        self.add(np.zeros(count, np.int64))

    def add(self, values: NDArray[np.int64]) -> int:
        """Return the number of the partition by the values of devices, of shape (devices,) or more."""
        _, first, found = np.unique(
            values.reshape(self.count, -1), axis=0, return_index=True, return_inverse=True
        )
        labels = np.argsort(np.argsort(first))[found.ravel()]
        number = self._numbers.setdefault(labels.tobytes(), len(self.of))
        if number == len(self.of):
            self.of.append(labels)
        return number

    def both(self, one: int | None, other: int | None) -> int | None:
        """Return the partition by two values together; None if one is not known."""
        if one is None or other is None or SAME in (one, other):
            return None if None in (one, other) else max(one or 0, other or 0)
        key = min(one, other), max(one, other)
        if key not in self._both:
            self._both[key] = self.add(np.stack([self.of[one], self.of[other]], axis=1))
        return self._both[key]

    def is_same_in(self, groups: int, labels: int | None) -> bool:
        """Return whether devices of a group are known to hold the same."""
        return labels is not None and self.both(groups, labels) == groups


class Source(NamedTuple):
    """A collective after which all devices of a group hold the same whole value."""

    movement: Movement
    """The collective."""

    groups: int
    """Number of the partition of the devices into its groups."""

    scatter: Instruction | None
    """The scatter whose parts it sums; None if it gathers shards."""


class Held(NamedTuple):
    """What is known of an array on all devices."""

    labels: int | None
    """Number of the partition by its values; None if it is not known."""

    sources: frozenset[int] = frozenset()
    """Numbers of the collectives that it is computed from, in whose groups it is the same."""

    maker: tuple[Instruction, ArrayShape] | None = None
    """The instruction that has it in memory, and its type."""

    scatter: Instruction | None = None
    """The scatter that makes it, up to operations on single elements."""

    numbers: NDArray[np.int64] | None = None
    """Its integers on each device, of shape (devices or 1, elements)."""


State = Held | list["State"]
"""What is known of the result of an instruction, of a tuple by element."""
UNKNOWN = Held(None)


class Repeated(NamedTuple):
    """A whole value that each device of a group computes, or holds to use a part of it."""

    instruction: Instruction
    """What computes it."""

    computation: str
    """Name of its computation."""

    shape: ArrayShape
    """Its type."""

    sources: tuple[Source, ...]
    """Collectives after which it is whole."""

    flops: int
    """Floating-point operations of one execution; 0 if none are counted."""

    is_sliced: bool
    """Whether each device uses its own part of it."""


class Replication:
    """A search for whole values: an interpretation of the program by which devices hold the same.

    Args:
        module: The program.
        movements: Its collectives.
        count: Number of devices.
        parameters: Label of each device, for each array of the parameters; None if it is not known.
        is_numbered: Whether ``partition-id`` counts all devices.
    """

    def __init__(
        self,
        module: Module,
        movements: Sequence[Movement],
        count: int,
        parameters: Sequence[NDArray[np.int64] | None],
        *,
        is_numbered: bool = True,
    ) -> None:
        self._module = module
        self._labels = Labels(count)
        self._movements: dict[tuple[str, str], list[Movement]] = {}
        for one in movements:
            self._movements.setdefault((one.value.computation, one.instruction.name), []).append(one)
        self._parameters = [UNKNOWN if one is None else Held(self._labels.add(one)) for one in parameters]
        self._is_numbered = is_numbered
        self._sources: dict[tuple[str, str, int | None], Source] = {}
        self._found: dict[tuple[str, ...], Repeated] = {}

    def repeated(self) -> tuple[Repeated, ...]:
        """Return the whole values, in the order of the program."""
        entry = self._module.computations.get(self._module.entry)
        if entry is None or not self._movements:
            return ()
        given: list[State] = []
        rest = iter(self._parameters)
        for one in self._module.parameters():
            states: list[State] = [next(rest, UNKNOWN) for _ in one.shapes]
            given.append(states if one.groups else states[0] if states else UNKNOWN)
        self._run(entry, given, (), is_fused=False)
        found: dict[int, Repeated] = {}
        for each in self._found.values():
            of = found.setdefault(id(each.instruction), each)
            found[id(each.instruction)] = of._replace(
                flops=max(of.flops, each.flops),
                is_sliced=of.is_sliced or each.is_sliced,
            )
        return tuple(found.values())

    def _of(self, numbers: frozenset[int]) -> tuple[Source, ...]:
        every = [*self._sources.values()]
        return tuple(every[number] for number in sorted(numbers))

    def _run(
        self, computation: Computation, given: Sequence[State], path: tuple[str, ...], *, is_fused: bool
    ) -> State:
        """Return the result of a computation.

        Args:
            computation: The computation.
            given: Its parameters.
            path: Names of the instructions that run it, the outermost first.
            is_fused: Whether its values are not in memory.
        """
        states: dict[str, State] = {}
        last: State = UNKNOWN
        for one in computation.instructions:
            operands = [states.get(name, UNKNOWN) for name in one.operands]
            if one.opcode == "parameter":
                number = one.parameter_number
                state = given[number] if number < len(given) else UNKNOWN
            else:
                state = self._state(computation, one, operands, path)
                if not is_fused and one.opcode not in ("tuple", "get-tuple-element", "while", "bitcast"):
                    state = _kept(one, state)
            states[one.name] = state
            if one.is_root:
                last = state
        return last

    def _state(
        self,
        computation: Computation,
        one: Instruction,
        operands: Sequence[State],
        path: tuple[str, ...],
    ) -> State:
        """Return the result of an instruction."""
        opcode, first = one.opcode, operands[0] if operands else UNKNOWN
        plain = opcode.removesuffix("-start")
        if opcode == "tuple":
            return [*operands]
        if opcode == "get-tuple-element" and isinstance(first, list):
            index = one.element
            return first[index] if index is not None and index < len(first) else UNKNOWN
        if opcode == "constant":
            return Held(SAME, numbers=_integers(one))
        if opcode == "partition-id":
            numbers = np.arange(self._labels.count)
            return Held(self._labels.add(numbers), numbers=numbers[:, None]) if self._is_numbered else UNKNOWN
        if opcode.endswith(("-done", "-update")) or opcode == "get-tuple-element":
            return first
        if plain in COLLECTIVES or opcode in _UNKNOWN:
            moved = self._movements.get((computation.name, one.name), [])
            results: list[State] = [
                self._moved(each, _joined(of, self)) for each, of in zip(moved, operands, strict=False)
            ]
            if opcode == "reduce-scatter":
                for each, of in zip(moved, operands, strict=False):
                    self._summed(each, _joined(of, self), (*path, one.name))
            return results[0] if len(results) == 1 else results or UNKNOWN
        if len(path) < _DEEPEST and (calls := calls_of(one)) and calls[0].role != "unknown":
            result = self._called(one, operands, (*path, one.name))
            return _scattered(one, result) if _is_scatter(one) and isinstance(result, list) else result
        arrays = [_joined(each, self) for each in operands]
        if opcode == "dynamic-slice":
            return self._sliced(computation, one, arrays, path)
        found = self._together(arrays)
        if _is_scatter(one):
            found = found._replace(scatter=one)
        elif opcode in _SINGLE and (by := [each.scatter for each in arrays if each.scatter is not None]):
            sizes = {math.prod(shape.dims) for shape in by[0].shapes}
            found = found._replace(scatter=by[0] if _size(one) in sizes else None)
        if opcode in _ARITHMETIC or opcode in _SAME_NUMBERS:
            found = found._replace(numbers=_computed(one, arrays))
        if found.sources and one.shapes:
            flops = 2 * (multiply_adds(one, computation) or 0) + (fft_flops(one, computation) or 0)
            if flops or opcode == "fft":
                self._found[(*path, one.name)] = Repeated(
                    one, computation.name, one.shapes[0], self._of(found.sources), flops, is_sliced=False
                )
                return found
        self._found.pop((*path, one.name), None)
        return found

    def _together(self, arrays: Sequence[Held]) -> Held:
        """Return what is computed from some arrays."""
        labels: int | None = SAME
        for each in arrays:
            labels = self._labels.both(labels, each.labels)
        whole = self._whole(labels, frozenset[int]().union(*(each.sources for each in arrays)))
        return Held(
            labels, whole, next((each.maker for each in arrays if each.sources or each.scatter), None)
        )

    def _whole(self, labels: int | None, numbers: frozenset[int]) -> frozenset[int]:
        """Return the sources in whose groups a value is the same."""
        sources = [*self._sources.values()] if numbers else []
        return frozenset(one for one in numbers if self._labels.is_same_in(sources[one].groups, labels))

    def _new(self, moved: Movement, groups: int, scatter: Instruction | None) -> int:
        """Return the number of a source."""
        key = moved.value.computation, moved.instruction.name, moved.value.element
        if key not in self._sources or self._sources[key].groups != groups:
            self._sources[key] = Source(moved, groups, scatter)
        return [*self._sources].index(key)

    def _called(self, one: Instruction, operands: Sequence[State], path: tuple[str, ...]) -> State:
        """Return the result of a fusion, a call, a loop or a conditional."""
        computations = self._module.computations
        if one.opcode == "while":
            body, state = computations.get(called(one, "body") or ""), operands[0] if operands else UNKNOWN
            for _ in range(_MOST_TURNS if body is not None else 0):
                assert body is not None
                after = self._merged([state, self._run(body, [state], path, is_fused=False)])
                if _labels_of(after) == _labels_of(state):
                    return after
                state = after
            return UNKNOWN
        calls = [computations.get(call.name) for call in calls_of(one)]
        results = [
            self._run(
                each,
                operands[1 + place : 2 + place] if one.opcode == "conditional" else operands,
                (*path, each.name),
                is_fused=one.opcode == "fusion",
            )
            for place, each in enumerate(calls)
            if each is not None
        ]
        if one.opcode == "conditional" and operands:
            results.append(_joined(operands[0], self)._replace(numbers=None))
        return self._merged(results)

    def _merged(self, states: Sequence[State]) -> State:
        """Return what is known of a value that is one of several."""
        if len(states) == 1:
            return states[0]
        tuples = [each for each in states if isinstance(each, list)]
        if tuples and all(len(each) == len(tuples[0]) for each in tuples):
            others = [each for each in states if not isinstance(each, list)]
            return [self._merged([*parts, *others]) for parts in zip(*tuples, strict=True)]
        arrays = [_joined(each, self) for each in states]
        found = self._together(arrays)
        return found._replace(maker=next((each.maker for each in reversed(arrays) if each.maker), None))

    def _moved(self, moved: Movement, held: Held) -> Held:
        """Return the result of a collective."""
        kind, labels, groups = moved.instruction.opcode.removesuffix("-start"), held.labels, moved.groups
        if moved.pairs is not None and labels is not None:
            values = np.full(self._labels.count, -1)
            values[moved.pairs[:, 1]] = self._labels.of[labels][moved.pairs[:, 0]]
            return Held(self._labels.add(values))
        if groups is None or groups.size != self._labels.count or int(np.min(groups)) < 0:
            return UNKNOWN
        if labels is None:
            if len(groups) > 1 or kind not in _GATHERING:
                return UNKNOWN
            parts = [self._new(moved, SAME, held.scatter)] if held.scatter is not None else []
            return Held(SAME, frozenset(parts), held.maker)
        _, found = np.unique(self._labels.of[labels][groups], axis=0, return_inverse=True)
        values = np.empty(self._labels.count, np.int64)
        values[groups] = found.reshape(-1, 1)
        if kind not in _GATHERING:
            places = np.empty_like(values)
            places[groups] = np.arange(groups.shape[1])
            return Held(self._labels.add(np.stack([values, places], axis=1)))
        after = self._labels.add(values)
        sources = self._whole(after, held.sources)
        values[groups] = np.arange(len(groups)).reshape(-1, 1)
        own = self._labels.add(values)
        is_new = not self._labels.is_same_in(own, labels) and groups.shape[1] > 1
        if is_new and not _is_of_user(moved) and (kind == "all-gather" or held.scatter is not None):
            sources |= {self._new(moved, own, None if kind == "all-gather" else held.scatter)}
        return Held(after, sources, held.maker)

    def _summed(self, moved: Movement, held: Held, path: tuple[str, ...]) -> None:
        """Add what a scatter makes, if each device gets its part of the sum."""
        self._found.pop(path, None)
        if (
            held.scatter is not None
            and held.scatter.shapes
            and moved.groups is not None
            and not _is_of_user(moved)
        ):
            source = Source(moved, SAME, held.scatter)
            maker = held.maker or (held.scatter, held.scatter.shapes[0])
            self._found[path] = Repeated(
                maker[0], moved.value.computation, maker[1], (source,), 0, is_sliced=True
            )

    def _sliced(
        self, computation: Computation, one: Instruction, arrays: Sequence[Held], path: tuple[str, ...]
    ) -> Held:
        """Return a part of an array, and add the array if devices use parts of their own."""
        array, places = arrays[0], arrays[1:]
        self._found.pop((*path, one.name), None)
        if array.numbers is not None and len(places) == 1 and places[0].numbers is not None:
            table, at = array.numbers, places[0].numbers
            if len(table) == 1 and at.shape[1] == 1 and _size(one) == 1:
                numbers = table[0][np.clip(at[:, 0], 0, table.shape[1] - 1)]
                full = np.broadcast_to(numbers, (self._labels.count,))
                return Held(self._labels.add(full), numbers=full[:, None])
        labels = array.labels
        for each in places:
            # What depends on the device in an unknown way may still be the same in a group.
            known = each.labels if each.labels == SAME or each.numbers is not None else None
            labels = self._labels.both(labels, known)
        if labels is None:
            return UNKNOWN
        kept = self._whole(labels, array.sources)
        if (lost := array.sources - kept) and array.maker is not None:
            self._found[(*path, one.name)] = Repeated(
                array.maker[0], computation.name, array.maker[1], self._of(lost), 0, is_sliced=True
            )
        return Held(labels, kept)


def _is_of_user(moved: Movement) -> bool:
    return _REQUESTED.search(moved.instruction.op_name or "") is not None


def _kept(one: Instruction, state: State) -> State:
    """Return the result of an instruction whose results are in memory."""
    if isinstance(state, list):
        if len(state) != len(one.shapes):
            return state
        pairs = zip(state, one.shapes, strict=True)
        return [each._replace(maker=(one, of)) if isinstance(each, Held) else each for each, of in pairs]
    return state._replace(maker=(one, max(one.shapes, key=lambda of: of.nbytes))) if one.shapes else state


def _joined(state: State, of: Replication) -> Held:
    """Return what is known of all elements of a tuple together."""
    if isinstance(state, Held):
        return state
    return of._together([_joined(each, of) for each in state])


def _is_scatter(one: Instruction) -> bool:
    """Return whether an instruction is a scatter, or the loop into which older backends for CPU divide it."""
    is_loop = one.opcode == "while" and (one.op_name or "").rpartition("/")[2].startswith("scatter")
    return one.opcode == "scatter" or is_loop


def _scattered(one: Instruction, parts: list[State]) -> State:
    """Return the result of a loop that is a scatter."""
    return [each._replace(scatter=one) if isinstance(each, Held) else each for each in parts]


def _labels_of(state: State) -> object:
    return state.labels if isinstance(state, Held) else tuple(map(_labels_of, state))


def _size(one: Instruction) -> int:
    return int(np.prod(one.shapes[0].dims)) if one.shapes else 0


def _integers(one: Instruction) -> NDArray[np.int64] | None:
    """Return the integers of a constant with one axis at most; None for others, and those left out."""
    if not one.shapes or "int" not in one.shapes[0].dtype or len(one.shapes[0].dims) > 1:
        return None
    numbers = one.integers if _size(one) <= _MOST_NUMBERS else None
    return None if numbers is None or not len(numbers) else numbers[None]


def _computed(one: Instruction, arrays: Sequence[Held]) -> NDArray[np.int64] | None:
    """Return the integers of a result; None if they are not known."""
    numbers = [each.numbers for each in arrays]
    if not one.shapes or "int" not in one.shapes[0].dtype or not numbers:
        return None
    if one.opcode in _ARITHMETIC:
        if any(each is None or each.shape[1] != _size(one) for each in numbers):
            return None
        return _ARITHMETIC[one.opcode](*numbers)
    first = numbers[0]
    is_whole = first is not None and first.shape[1] == _size(one) and len(one.shapes[0].dims) < 2
    return first if is_whole else None
