"""Values that are equal on all devices along mesh axes over which an operand was sharded before."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain
from operator import or_
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...base.grouping import by_key
from .collectives import COLLECTIVES, Movement
from .dataflow import Value
from .messages import ArrayShape
from .module import (
    PASSING,
    Computation,
    Instruction,
    Module,
    Passing,
    called,
    calls_of,
    operations,
)
from .replica_groups import Axes

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


def computed(
    instruction: Instruction, numbers: Sequence[NDArray[np.int64] | None]
) -> NDArray[np.int64] | None:
    """Return the integers of a result with one axis at most, of shape (devices or 1, elements).

    None if they are not known, and for many.

    Args:
        instruction: The instruction.
        numbers: The integers of its operands.
    """
    shape = instruction.shapes[0] if instruction.shapes else None
    size = 0 if shape is None else math.prod(shape.dims)
    if shape is None or len(shape.dims) > 1 or "int" not in shape.dtype or size > _MOST_NUMBERS:
        return None
    if instruction.opcode == "constant":
        return None if instruction.integers is None else instruction.integers[None]
    numbers = numbers[: 1 if instruction.opcode in _SAME_NUMBERS else None]
    known = [values for values in numbers if values is not None]
    if not known or len(known) < len(numbers):
        return None
    if instruction.opcode == "dynamic-slice" and size == len(known[0]) == known[1].shape[1] == 1:
        return np.take(known[0][0], known[1], mode="clip")
    if any(values.shape[1] != size for values in known):
        return None
    if instruction.opcode in _SAME_NUMBERS:
        return known[0]
    return _ARITHMETIC[instruction.opcode](*known) if instruction.opcode in _ARITHMETIC else None


COSTLY = frozenset(
    {
        *("cholesky", "custom-call", "fft", "scatter", "sort", "triangular-solve"),
    }
)
"""Operations whose result every device computes whole if their operands are whole."""

GATHERING = frozenset({"all-gather", "all-reduce", "collective-broadcast"})
"""Collectives whose result is the same in all of a group."""
_UNKNOWN = frozenset({"infeed", "partition-id", "recv", "rng", "rng-get-and-update-state"})
_REQUESTED = re.compile(r"/(?:all_gather|p?broadcast|reduce_scatter|p(?:max|min|sum))\w*$")
"""End of an ``op_name`` that is a collective of the user, as in ``shard_map``."""
_WITHOUT_KERNEL = re.compile(r"Async|Bitcast|Buffer|Dynamic|InBound|MoveTo|Shard|Static|X64|annotate")
"""Part of the targets with which XLA marks values that nothing computes."""
_MOST_TURNS = 8
"""Number of turns of a loop until nothing changes. What still changes is unknown."""
_SINGLE = PASSING.keys() | {"add", "divide", "multiply", "negate", "subtract"}
"""Operations whose elements are each made of those at one place."""
_PASSING_ON = operations(Passing.MOVE) | operations(Passing.COPY)


class Source(NamedTuple):
    """A collective after which all devices of a group hold the same whole value."""

    movement: Movement
    """The collective."""

    axes: int
    """Axes over which the value is the same."""

    scatter: Instruction | None
    """The scatter whose parts it sums; None if it gathers shards."""


class Held(NamedTuple):
    """What is known of an array on all devices."""

    varies: int
    """Axes along which it may differ."""

    sources: frozenset[Value] = frozenset()
    """Results of the collectives that it is computed from, over whose axes it is the same."""

    maker: tuple[Instruction, ArrayShape] | None = None
    """The instruction that has it in memory, and its type."""

    scatter: Instruction | None = None
    """The scatter that makes it, up to operations on single elements."""

    numbers: NDArray[np.int64] | None = None
    """Its integers on each device, of shape (devices or 1, elements)."""


State = Held | list["State"]
"""What is known of the result of an instruction, of a tuple by element."""


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

    devices: int
    """Number of devices on which it is the same."""

    is_sliced: bool
    """Whether each device uses its own part of it."""


class Replication:
    """A search for whole values: an interpretation of the program by the axes along which values differ.

    Args:
        module: The program.
        movements: Its collectives.
        mesh: Sizes of the mesh axes by name. Their product is the number of devices.
        parameters: Mesh axes that shard each array of the parameters; None if they are not known.
        is_numbered: Whether ``partition-id`` counts all devices.
    """

    def __init__(
        self,
        module: Module,
        movements: Sequence[Movement],
        mesh: Mapping[str, int],
        parameters: Sequence[Collection[str] | None],
        *,
        is_numbered: bool = True,
    ) -> None:
        self._module = module
        self._axes = Axes(mesh)
        self._unknown = Held(self._axes.all)
        self._movements = by_key(
            ((movement.value.computation, movement.instruction.name), movement) for movement in movements
        )
        self._moving = {name for name, _ in self._movements}
        self._parameters = [
            self._unknown if names is None else Held(self._axes.of(names)) for names in parameters
        ]
        self._is_numbered = is_numbered
        self._sources: dict[Value, Source] = {}
        self._sums: dict[Value, Movement] = {}
        self._found: dict[tuple[str, ...], Sequence[Repeated]] = {}
        self._results: dict[Hashable, State] = {}
        self._walked: set[tuple[str, ...]] = set()
        """Fusions that may have added to what is found: a later turn of their loop takes it back."""

    def repeated(self) -> tuple[Repeated, ...]:
        """Return the whole values, in the order of the program."""
        if not self._movements:
            return ()
        given: list[State] = []
        parameters = iter(self._parameters)
        for parameter in self._module.parameters():
            states: list[State] = [next(parameters, self._unknown) for _ in parameter.shapes]
            given.append(states if parameter.groups else states[0])
        self._run(self._module.computations[self._module.entry], given, (), is_fused=False)
        by_maker: dict[int, Repeated] = {}
        for value in chain.from_iterable(self._found.values()):
            # What uses a sum in several ways repeats one value.
            scatters = (source.scatter for source in value.sources if source.scatter is not None)
            is_costly = value.instruction.opcode in COSTLY
            key = id(value.instruction if is_costly else next(scatters, value.instruction))
            known = by_maker.setdefault(key, value)
            by_maker[key] = known._replace(is_sliced=known.is_sliced or value.is_sliced)
        return tuple(by_maker.values())

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
        for instruction in computation.instructions:
            if instruction.opcode == "parameter":
                states[instruction.name] = given[instruction.parameter_number]
                continue
            operands = [states[name] for name in instruction.operands]
            state = self._state(computation, instruction, operands, (*path, instruction.name))
            if not is_fused and instruction.opcode not in ("tuple", "get-tuple-element", "while", "bitcast"):
                state = _kept(instruction, state)
            states[instruction.name] = state
        return states[computation.root.name]

    def _state(
        self,
        computation: Computation,
        instruction: Instruction,
        operands: Sequence[State],
        path: tuple[str, ...],
    ) -> State:
        """Return the result of an instruction."""
        opcode, first = instruction.opcode, operands[0] if operands else self._unknown
        if opcode == "tuple":
            return [*operands]
        if opcode == "get-tuple-element" and isinstance(first, list):
            return first[int(instruction.op.tuple_index)]
        if opcode == "partition-id" and self._is_numbered:
            return Held(self._axes.all, numbers=np.arange(self._axes.count(self._axes.all))[:, None])
        if opcode.endswith(("-done", "-update")) or opcode == "get-tuple-element":
            return first
        if opcode.removesuffix("-start") in COLLECTIVES or opcode in _UNKNOWN:
            moved = self._movements.get((computation.name, instruction.name), [])
            pairs = zip(moved, map(self._joined, operands), strict=False)
            results: list[State] = [self._moved(movement, held, path) for movement, held in pairs]
            return results[0] if len(results) == 1 else results or self._unknown
        if (calls := calls_of(instruction)) and calls[0].role != "unknown":
            result = self._called(instruction, operands, path)
            return (
                _scattered(instruction, result)
                if _is_scatter(instruction) and isinstance(result, list)
                else result
            )
        arrays = [self._joined(operand) for operand in operands]
        numbers = computed(instruction, [array.numbers for array in arrays])
        if numbers is not None:
            return Held(self._axes.varied(numbers), numbers=numbers)
        joined = self._together(arrays)
        if opcode == "dynamic-slice":
            # What depends on the device in an unknown way may still be the same in a group.
            is_known = all(array.numbers is not None or not array.varies for array in arrays[1:])
            lost = arrays[0].sources - joined.sources if is_known else frozenset[Value]()
            self._found[path] = [*self._parts(computation.name, arrays[0], lost)]
            return joined._replace(maker=None)
        self._found[path] = [
            *self._alike(computation.name, instruction, arrays[0] if opcode == "gather" else joined)
        ]
        if _is_scatter(instruction):
            return joined._replace(scatter=instruction)
        if opcode in _SINGLE and (by := [array.scatter for array in arrays if array.scatter is not None]):
            sizes = {math.prod(shape.dims) for shape in by[0].shapes}
            return joined._replace(scatter=by[0] if _size(instruction) in sizes else None)
        return joined

    def _alike(self, computation: str, instruction: Instruction, held: Held) -> Iterator[Repeated]:
        """Yield what all devices compute alike in an instruction: its result, or the sums that it uses.

        An instruction that costs little counts where it uses sums of scatters, which all devices hold, too.

        Args:
            computation: Its computation.
            instruction: The instruction.
            held: Its result; of a gather, the array whose elements it takes.
        """
        names = (
            held.sources
            if instruction.shapes and instruction.opcode not in _PASSING_ON
            else frozenset[Value]()
        )
        if (
            names
            and instruction.opcode in COSTLY
            and not _WITHOUT_KERNEL.search(instruction.custom_call_target)
        ):
            largest = max(instruction.shapes, key=lambda shape: shape.nbytes)
            yield self._new(instruction, computation, largest, names)
        for name, moved in self._sums.items() if instruction.opcode not in COSTLY else ():
            if name in names:
                yield self._new(moved.instruction, name.computation, moved.shape, frozenset({name}))

    def _parts(self, computation: str, held: Held, names: frozenset[Value]) -> Iterator[Repeated]:
        """Yield an array that devices use in parts of their own, if it is whole after some collectives."""
        if names and held.maker is not None:
            yield self._new(held.maker[0], computation, held.maker[1], names, is_sliced=True)

    def _new(
        self,
        instruction: Instruction,
        computation: str,
        shape: ArrayShape,
        names: frozenset[Value],
        *,
        is_sliced: bool = False,
    ) -> Repeated:
        sources = tuple(source for name, source in self._sources.items() if name in names)
        axes = reduce(or_, (source.axes for source in sources), 0)
        return Repeated(instruction, computation, shape, sources, self._axes.count(axes), is_sliced)

    def _together(self, arrays: Sequence[Held]) -> Held:
        """Return what is computed from some arrays."""
        varies = reduce(or_, (array.varies for array in arrays), 0)
        whole = self._whole(varies, frozenset[Value]().union(*(array.sources for array in arrays)))
        maker = next((array.maker for array in arrays if array.sources or array.scatter), None)
        return Held(varies, whole, maker)

    def _whole(self, varies: int, names: frozenset[Value]) -> frozenset[Value]:
        """Return the sources over whose axes a value is the same."""
        return frozenset(name for name in names if not self._sources[name].axes & varies)

    def _called(self, instruction: Instruction, operands: Sequence[State], path: tuple[str, ...]) -> State:
        """Return the result of a fusion, a call, a loop or a conditional."""
        computations = self._module.computations
        if instruction.opcode == "while":
            body, condition = (computations[called(instruction, role)] for role in ("body", "condition"))
            state = operands[0]
            for _ in range(_MOST_TURNS):
                goes_on = self._run(condition, [state], path, is_fused=False)
                turned = self._run(body, [state], path, is_fused=False)
                after = self._merged([state, turned, Held(self._joined(goes_on).varies)])
                if _axes_of(after) == _axes_of(state):
                    return after
                state = after
            return self._unknown
        if instruction.opcode == "fusion":
            return self._fused(computations[calls_of(instruction)[0].name], operands, path)
        results = [
            self._run(
                computations[call.name],
                [operands[place]] if call.role == "branch" else operands,
                (*path, call.name),
                is_fused=False,
            )
            for place, call in enumerate(calls_of(instruction), 1)
        ]
        if instruction.opcode == "conditional":
            results.append(Held(self._joined(operands[0]).varies))
        return self._merged(results)

    def _fused(self, fused: Computation, operands: Sequence[State], path: tuple[str, ...]) -> State:
        """Return the result of a fusion. If it repeats nothing, it is that of all alike ones."""
        facts = tuple(map(_facts, operands))
        is_plain = fused.name not in self._moving and None not in facts
        key = (fused.once(_first_alike).name, facts) if is_plain else None
        if key in self._results and path not in self._walked:
            return self._results[key]
        result = self._run(fused, operands, (*path, fused.name), is_fused=True)
        if key is None:
            self._walked.add(path)
        else:
            self._walked.discard(path)
            if _is_computed(result):
                self._results[key] = result
        return result

    def _joined(self, state: State) -> Held:
        """Return what is known of all elements of a tuple together."""
        return state if isinstance(state, Held) else self._together([self._joined(part) for part in state])

    def _merged(self, states: Sequence[State]) -> State:
        """Return what is known of a value that is one of several."""
        if len(states) == 1:
            return states[0]
        tuples = [state for state in states if isinstance(state, list)]
        if tuples and all(len(elements) == len(tuples[0]) for elements in tuples):
            others = [state for state in states if not isinstance(state, list)]
            return [self._merged([*parts, *others]) for parts in zip(*tuples, strict=True)]
        arrays = [self._joined(state) for state in states]
        maker = next((array.maker for array in reversed(arrays) if array.maker), None)
        return self._together(arrays)._replace(maker=maker)

    def _moved(self, moved: Movement, held: Held, path: tuple[str, ...]) -> Held:
        """Return the result of a collective, and add the sum of a scatter if devices get parts of it."""
        kind = moved.instruction.opcode.removesuffix("-start")
        group = self._axes.spanned(moved.groups)
        scatter = None if kind == "all-gather" else held.scatter
        is_sum = kind in ("all-reduce", "reduce-scatter") and scatter is not None
        self._found[path] = []
        names = held.sources
        if group & held.varies and not is_of_user(moved) and (is_sum or kind == "all-gather"):
            self._sources[moved.value] = Source(moved, group, scatter)
            if scatter is not None:
                self._sums[moved.value] = moved
            names |= {moved.value}
        if kind in GATHERING:
            varies = held.varies & ~group
        else:
            varies = held.varies | self._axes.exchanged(moved.groups)
            self._found[path] = [*self._parts(moved.value.computation, held, names - held.sources)]
        return Held(varies, self._whole(varies, names), held.maker)


def _kept(instruction: Instruction, state: State) -> State:
    """Return the result of an instruction whose results are in memory."""
    if isinstance(state, list):
        if len(state) != len(instruction.shapes):
            return state
        pairs = zip(state, instruction.shapes, strict=True)
        return [
            part._replace(maker=(instruction, shape)) if isinstance(part, Held) else part
            for part, shape in pairs
        ]
    return (
        state._replace(maker=(instruction, max(instruction.shapes, key=lambda shape: shape.nbytes)))
        if instruction.shapes
        else state
    )


def _is_scatter(instruction: Instruction) -> bool:
    """Return whether an instruction is a scatter, or the loop into which older backends for CPU divide it."""
    is_loop = instruction.opcode == "while" and (instruction.op_name or "").rpartition("/")[2].startswith(
        "scatter"
    )
    return instruction.opcode == "scatter" or is_loop


def _scattered(instruction: Instruction, parts: list[State]) -> State:
    """Return the result of a loop that is a scatter."""
    return [part._replace(scatter=instruction) if isinstance(part, Held) else part for part in parts]


def _first_alike(computation: Computation) -> Computation:
    return computation


def _facts(state: State) -> Hashable:
    """Return what is known of an array; None for one that is whole after a collective, and for tuples."""
    if isinstance(state, list) or state.sources or state.scatter:
        return None
    return state.varies, None if state.numbers is None else (state.numbers.shape, state.numbers.tobytes())


def _is_computed(state: State) -> bool:
    """Return whether a state knows no instruction: neither that of a fusion, nor that of its operands."""
    if isinstance(state, list):
        return all(map(_is_computed, state))
    return not (state.sources or state.maker or state.scatter)


def _axes_of(state: State) -> object:
    return state[:2] if isinstance(state, Held) else tuple(map(_axes_of, state))


def _size(instruction: Instruction) -> int:
    return math.prod(instruction.shapes[0].dims) if instruction.shapes else 0


def is_of_user(moved: Movement) -> bool:
    """Return whether a collective is one that the program asks for, as in ``shard_map``."""
    return _REQUESTED.search(moved.instruction.op_name or "") is not None
