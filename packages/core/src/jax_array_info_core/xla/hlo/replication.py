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

from .collectives import COLLECTIVES, Movement
from .dataflow import Value
from .loops import fft_flops, multiply_adds
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
    representative,
)

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


COSTLY = frozenset(
    {
        *("cholesky", "convolution", "custom-call", "dot", "fft", "ragged-dot", "scaled-dot", "scatter"),
        *("sort", "triangular-solve"),
    }
)
"""Operations that every device repeats if their operands are whole."""

_GATHERING = frozenset({"all-gather", "all-reduce", "collective-broadcast"})
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

    flops: int
    """Floating-point operations of one execution; 0 if none are counted."""

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
        self._movements: dict[tuple[str, str], list[Movement]] = {}
        for one in movements:
            self._movements.setdefault((one.value.computation, one.instruction.name), []).append(one)
        self._moving = {name for name, _ in self._movements}
        self._parameters = [self._unknown if one is None else Held(self._axes.of(one)) for one in parameters]
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
        rest = iter(self._parameters)
        for one in self._module.parameters():
            states: list[State] = [next(rest, self._unknown) for _ in one.shapes]
            given.append(states if one.groups else states[0])
        self._run(self._module.computations[self._module.entry], given, (), is_fused=False)
        found: dict[int, Repeated] = {}
        for each in chain.from_iterable(self._found.values()):
            # What uses a sum in several ways repeats one value.
            scatters = (one.scatter for one in each.sources if one.scatter is not None)
            is_costly = each.instruction.opcode in COSTLY
            key = id(each.instruction if is_costly else next(scatters, each.instruction))
            of = found.setdefault(key, each)
            found[key] = of._replace(
                flops=max(of.flops, each.flops), is_sliced=of.is_sliced or each.is_sliced
            )
        return tuple(found.values())

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
        for one in computation.instructions:
            if one.opcode == "parameter":
                states[one.name] = given[one.parameter_number]
                continue
            operands = [states[name] for name in one.operands]
            state = self._state(computation, one, operands, (*path, one.name))
            if not is_fused and one.opcode not in ("tuple", "get-tuple-element", "while", "bitcast"):
                state = _kept(one, state)
            states[one.name] = state
        return states[computation.root.name]

    def _state(
        self,
        computation: Computation,
        one: Instruction,
        operands: Sequence[State],
        path: tuple[str, ...],
    ) -> State:
        """Return the result of an instruction."""
        opcode, first = one.opcode, operands[0] if operands else self._unknown
        if opcode == "tuple":
            return [*operands]
        if opcode == "get-tuple-element" and isinstance(first, list):
            return first[int(one.op.tuple_index)]
        if opcode == "partition-id" and self._is_numbered:
            return Held(self._axes.all, numbers=np.arange(self._axes.count(self._axes.all))[:, None])
        if opcode.endswith(("-done", "-update")) or opcode == "get-tuple-element":
            return first
        if opcode.removesuffix("-start") in COLLECTIVES or opcode in _UNKNOWN:
            moved = self._movements.get((computation.name, one.name), [])
            pairs = zip(moved, map(self._joined, operands), strict=False)
            results: list[State] = [self._moved(each, held, path) for each, held in pairs]
            return results[0] if len(results) == 1 else results or self._unknown
        if (calls := calls_of(one)) and calls[0].role != "unknown":
            result = self._called(one, operands, path)
            return _scattered(one, result) if _is_scatter(one) and isinstance(result, list) else result
        arrays = [self._joined(each) for each in operands]
        numbers = computed(one, [each.numbers for each in arrays])
        if numbers is not None:
            return Held(self._axes.varied(numbers), numbers=numbers)
        found = self._together(arrays)
        if opcode == "dynamic-slice":
            # What depends on the device in an unknown way may still be the same in a group.
            is_known = all(each.numbers is not None or not each.varies for each in arrays[1:])
            lost = arrays[0].sources - found.sources if is_known else frozenset[Value]()
            self._found[path] = [*self._parts(computation.name, arrays[0], lost)]
            return found._replace(maker=None)
        self._found[path] = [*self._alike(computation, one, arrays[0] if opcode == "gather" else found)]
        if _is_scatter(one):
            return found._replace(scatter=one)
        if opcode in _SINGLE and (by := [each.scatter for each in arrays if each.scatter is not None]):
            sizes = {math.prod(shape.dims) for shape in by[0].shapes}
            return found._replace(scatter=by[0] if _size(one) in sizes else None)
        return found

    def _alike(self, computation: Computation, one: Instruction, held: Held) -> Iterator[Repeated]:
        """Yield what all devices compute alike in an instruction: its result, or the sums that it uses.

        An instruction that costs little counts where it uses sums of scatters, which all devices hold, too.

        Args:
            computation: Its computation.
            one: The instruction.
            held: Its result; of a gather, the array whose elements it takes.
        """
        names = held.sources if one.shapes and one.opcode not in _PASSING_ON else frozenset[Value]()
        if names and one.opcode in COSTLY and not _WITHOUT_KERNEL.search(one.custom_call_target):
            flops = 2 * (multiply_adds(one, computation) or 0) + fft_flops(one, computation)
            largest = max(one.shapes, key=lambda shape: shape.nbytes)
            yield self._new(one, computation.name, largest, names, flops)
        for name, moved in self._sums.items() if one.opcode not in COSTLY else ():
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
        flops: int = 0,
        *,
        is_sliced: bool = False,
    ) -> Repeated:
        sources = tuple(one for name, one in self._sources.items() if name in names)
        axes = reduce(or_, (one.axes for one in sources), 0)
        return Repeated(instruction, computation, shape, sources, self._axes.count(axes), flops, is_sliced)

    def _together(self, arrays: Sequence[Held]) -> Held:
        """Return what is computed from some arrays."""
        varies = reduce(or_, (each.varies for each in arrays), 0)
        whole = self._whole(varies, frozenset[Value]().union(*(each.sources for each in arrays)))
        maker = next((each.maker for each in arrays if each.sources or each.scatter), None)
        return Held(varies, whole, maker)

    def _whole(self, varies: int, names: frozenset[Value]) -> frozenset[Value]:
        """Return the sources over whose axes a value is the same."""
        return frozenset(name for name in names if not self._sources[name].axes & varies)

    def _called(self, one: Instruction, operands: Sequence[State], path: tuple[str, ...]) -> State:
        """Return the result of a fusion, a call, a loop or a conditional."""
        computations = self._module.computations
        if one.opcode == "while":
            body, condition = (computations[called(one, role)] for role in ("body", "condition"))
            state = operands[0]
            for _ in range(_MOST_TURNS):
                goes_on = self._run(condition, [state], path, is_fused=False)
                turned = self._run(body, [state], path, is_fused=False)
                after = self._merged([state, turned, Held(self._joined(goes_on).varies)])
                if _axes_of(after) == _axes_of(state):
                    return after
                state = after
            return self._unknown
        if one.opcode == "fusion":
            return self._fused(computations[calls_of(one)[0].name], operands, path)
        results = [
            self._run(
                computations[call.name],
                [operands[place]] if call.role == "branch" else operands,
                (*path, call.name),
                is_fused=False,
            )
            for place, call in enumerate(calls_of(one), 1)
        ]
        if one.opcode == "conditional":
            results.append(Held(self._joined(operands[0]).varies))
        return self._merged(results)

    def _fused(self, fused: Computation, operands: Sequence[State], path: tuple[str, ...]) -> State:
        """Return the result of a fusion. If it repeats nothing, it is that of all alike ones."""
        facts = tuple(map(_facts, operands))
        is_plain = fused.name not in self._moving and None not in facts
        key = (fused.once(representative).name, facts) if is_plain else None
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
        return state if isinstance(state, Held) else self._together([self._joined(each) for each in state])

    def _merged(self, states: Sequence[State]) -> State:
        """Return what is known of a value that is one of several."""
        if len(states) == 1:
            return states[0]
        tuples = [each for each in states if isinstance(each, list)]
        if tuples and all(len(each) == len(tuples[0]) for each in tuples):
            others = [each for each in states if not isinstance(each, list)]
            return [self._merged([*parts, *others]) for parts in zip(*tuples, strict=True)]
        arrays = [self._joined(each) for each in states]
        maker = next((each.maker for each in reversed(arrays) if each.maker), None)
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
        if kind in _GATHERING:
            varies = held.varies & ~group
        else:
            varies = held.varies | self._axes.exchanged(moved.groups)
            self._found[path] = [*self._parts(moved.value.computation, held, names - held.sources)]
        return Held(varies, self._whole(varies, names), held.maker)


def _primes(number: int) -> Iterator[int]:
    """Yield the prime factors of a number, the least first."""
    while number > 1:
        least = next(one for one in range(2, number + 1) if not number % one)
        yield least
        number //= least


def _kept(one: Instruction, state: State) -> State:
    """Return the result of an instruction whose results are in memory."""
    if isinstance(state, list):
        if len(state) != len(one.shapes):
            return state
        pairs = zip(state, one.shapes, strict=True)
        return [each._replace(maker=(one, of)) if isinstance(each, Held) else each for each, of in pairs]
    return state._replace(maker=(one, max(one.shapes, key=lambda of: of.nbytes))) if one.shapes else state


def _is_scatter(one: Instruction) -> bool:
    """Return whether an instruction is a scatter, or the loop into which older backends for CPU divide it."""
    is_loop = one.opcode == "while" and (one.op_name or "").rpartition("/")[2].startswith("scatter")
    return one.opcode == "scatter" or is_loop


def _scattered(one: Instruction, parts: list[State]) -> State:
    """Return the result of a loop that is a scatter."""
    return [each._replace(scatter=one) if isinstance(each, Held) else each for each in parts]


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


def _size(one: Instruction) -> int:
    return math.prod(one.shapes[0].dims) if one.shapes else 0


def is_of_user(moved: Movement) -> bool:
    """Return whether a collective is one that the program asks for, as in ``shard_map``."""
    return _REQUESTED.search(moved.instruction.op_name or "") is not None
