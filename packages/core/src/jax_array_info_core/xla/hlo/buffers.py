"""Buffers of a program, and the instructions that share them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...base.grouping import by_key
from .dataflow import Value
from .messages import ArrayShape
from .module import Computation, Instruction, Passing, operations

_VIEWS = operations(Passing.VIEW)
_IN_PLACE = ("dynamic-update-slice", "scatter", "set-dimension-size")
# Operations whose result is an element of the tuple that the matching start returns.
_FIRST_IS_RESULT = ("copy-start", "recv")
_ALL_ARE_RESULTS = ("all-reduce-start",)

# Elementwise operations: each element of the result depends on the same element of the operands.
_ELEMENTWISE = frozenset(
    {
        *("abs", "cbrt", "ceil", "cosine", "erf", "exponential", "exponential-minus-one", "floor", "log"),
        *("log-plus-one", "logistic", "negate", "round-nearest-afz", "round-nearest-even", "rsqrt", "sign"),
        *("sine", "sqrt", "tan", "tanh", "convert", "copy", "reduce-precision", "is-finite", "imag", "real"),
        *("add", "atan2", "complex", "divide", "maximum", "minimum", "multiply", "power", "remainder"),
        *("and", "not", "or", "xor", "count-leading-zeros", "popcnt", "shift-left"),
        *("shift-right-arithmetic", "shift-right-logical", "clamp", "compare", "select", "subtract"),
    }
)

OperandArray = tuple[int, int]
"""An operand, and the index of an array in it."""


def shared_leaves(instruction: Instruction, operands: Sequence[Instruction]) -> list[OperandArray | None]:
    """Return where each array of a result has its memory from; None for an array with memory of its own.

    Loops, branches, calls and fusions are not handled here, apart from the aliases that they declare.

    Args:
        instruction: The instruction.
        operands: Its operands.
    """
    memories: list[OperandArray | None] = [None] * len(instruction.shapes)
    if is_elementwise(instruction) or instruction.opcode == "broadcast":
        return memories
    if instruction.opcode == "tuple":
        return [*_leaves(operands)]
    if instruction.opcode == "get-tuple-element":
        element = instruction.element
        return [(0, leaf) for leaf, group in enumerate(operands[0].groups) if group == element]
    if instruction.opcode in _VIEWS:
        return [*_leaves(operands[:1])]
    if instruction.opcode in _IN_PLACE:
        # A scatter of several arrays updates its first operands.
        return [(leaf, 0) for leaf in range(len(instruction.shapes))]
    if instruction.opcode.endswith("-start") or instruction.opcode == "send":
        _share_start(instruction, operands, memories)
    elif instruction.opcode.endswith("-done"):
        results = result_places(operands[0])[: len(memories)]
        memories[: len(results)] = [(0, place) for place in results]
    else:
        for alias in instruction.op.output_operand_aliasing:
            number = alias.operand_index
            leaf = _place(operands[number], alias.operand_shape_index)
            memories[_place(instruction, alias.output_shape_index)] = number, leaf
    return memories


def _leaves(operands: Sequence[Instruction]) -> Iterator[OperandArray]:
    """Yield all arrays of some operands."""
    return ((k, leaf) for k, operand in enumerate(operands) for leaf in range(len(operand.shapes)))


def _share_start(
    instruction: Instruction, operands: Sequence[Instruction], memories: list[OperandArray | None]
) -> None:
    """Mark the operands in the result of a start: ``((operands), results, …)``."""
    if instruction.opcode in _ALL_ARE_RESULTS:
        return
    group = 1 if instruction.opcode == "copy-start" else 0
    places = [place for place, element in enumerate(instruction.groups) if element == group]
    for place, leaf in zip(places, _leaves(operands), strict=False):
        memories[place] = leaf
    if instruction.opcode.removesuffix("-start") in _IN_PLACE:
        for place in result_places(instruction)[:1]:
            memories[place] = (0, 0)


def result_places(start: Instruction) -> list[int]:
    """Return the places of the arrays that are the result, in what an asynchronous start returns.

    Other operations return nothing but their result.
    """
    is_start = start.opcode.endswith(("-start", "-update")) or start.opcode in ("send", "recv")
    if not is_start or start.opcode in _ALL_ARE_RESULTS or not start.groups:
        return list(range(len(start.shapes)))
    group = 0 if start.opcode in _FIRST_IS_RESULT else 1
    return [place for place, element in enumerate(start.groups) if element == group]


def _place(instruction: Instruction, index: Sequence[int]) -> int:
    """Return the position of an array in the result of an instruction from its index in the tuple."""
    return instruction.groups.index(index[0]) if index else 0


def fused_updates(fused: Computation) -> Mapping[int, OperandArray]:
    """Return the arrays that a fusion updates in place: their place in its result, and the operand.

    They are those whose element of the root is a dynamic-update-slice or a scatter of a parameter.
    """
    updates: dict[int, OperandArray] = {}
    for place, part in enumerate(root_parts(fused)):
        if (update := updates_in_place(fused, part)) is not None:
            updated = _before_bitcasts(fused, fused.by_name[update.operands[0]])
            if updated.opcode == "parameter":
                updates[place] = updated.parameter_number, 0
    return updates


def root_parts(computation: Computation) -> list[Instruction]:
    """Return the instructions that are the elements of a computation's result."""
    root = computation.root
    return [computation.by_name[name] for name in root.operands] if root.opcode == "tuple" else [root]


def updates_in_place(computation: Computation, part: Instruction) -> Instruction | None:
    """Return the dynamic-update-slice or scatter whose result, perhaps bitcast, an instruction is."""
    made = _before_bitcasts(computation, part)
    return made if made.opcode.removesuffix("-start") in _IN_PLACE else None


def _before_bitcasts(computation: Computation, instruction: Instruction) -> Instruction:
    """Return the instruction whose result, perhaps bitcast, an instruction has."""
    while instruction.opcode == "bitcast":
        instruction = computation.by_name[instruction.operands[0]]
    return instruction


def is_elementwise(instruction: Instruction) -> bool:
    """Return whether an instruction can write its result over an operand of the same size."""
    return instruction.opcode in _ELEMENTWISE


def elementwise_parameters(fused: Computation) -> frozenset[int]:
    """Return the parameters of a fusion over which it can write its result.

    Only elementwise operations use them, up to the root.
    """
    other: set[str] = set()
    for instruction in reversed(fused.instructions):
        is_way = instruction is fused.root and instruction.opcode == "tuple"
        if instruction.name in other or not (is_way or instruction.opcode in _ELEMENTWISE):
            other.update(instruction.operands)
    return frozenset(
        parameter.parameter_number for parameter in fused.parameters if parameter.name not in other
    )


class Scope(NamedTuple):
    """A computation at one place of the schedule."""

    computation: Computation
    """The computation."""

    outer: Scope | None = None
    """Where the instruction is that runs it; None for the entry."""

    loops: int = 0
    """Number of loops around it."""


class Writer(NamedTuple):
    """An instruction that writes a buffer."""

    scope: Scope
    """Where it is."""

    instruction: Instruction
    """The instruction."""

    leaf: int
    """Place of the array in its result."""

    @property
    def value(self) -> Value:
        """What it writes, with the arrays that are in the same tuple element."""
        groups = self.instruction.groups
        element = groups[self.leaf] if groups else None
        return Value(self.scope.computation.name, self.instruction.name, element)


@dataclass(slots=True)
class Buffer:
    """Memory of one value, or of several that are never live at the same time, as those of a loop."""

    shape: ArrayShape
    """Type of the first value."""

    is_temporary: bool
    """Whether it is neither an argument, an output nor a constant."""

    is_output: bool = False
    """Whether it is an output that has no argument's memory."""

    writers: list[Writer] = field(default_factory=list)
    """Instructions that write it, in the order of the schedule."""

    updates: list[Writer] = field(default_factory=list)
    """Those that update a part of it, inside of a loop that carries it."""

    is_read_by_loop: bool = False
    """Whether a later loop reads it after a loop has updated it part by part."""

    spans: list[tuple[int, int]] = field(default_factory=list)
    """First and last time of each value."""


class Buffers:
    """Values, which are numbers, and the buffer that each of them has."""

    def __init__(self) -> None:
        self._buffers: list[Buffer] = []
        self._parents: list[int] = []
        self._spans: list[list[int]] = []
        self._handed_on: list[tuple[int, int, int]] = []

    def new(self, shape: ArrayShape, time: int, *, is_temporary: bool = True) -> int:
        """Return a new value with a buffer of its own."""
        number = len(self._parents)
        self._buffers.append(Buffer(shape, is_temporary))
        self._parents.append(number)
        self._spans.append([time, time])
        return number

    def use(self, value: int, time: int) -> None:
        """Keep a value until a time that is not before any earlier use."""
        self._spans[value][1] = time

    def root(self, value: int) -> int:
        """Return a number that all values of the same buffer have."""
        parents = self._parents
        while parents[value] != value:
            parents[value] = parents[parents[value]]
            value = parents[value]
        return value

    def of(self, value: int) -> Buffer:
        """Return the buffer of a value."""
        return self._buffers[self.root(value)]

    def unite(self, value: int, other: int) -> None:
        """Give two values the same buffer."""
        first, second = sorted((self.root(value), self.root(other)))
        if first == second:
            return
        kept, gone = self._buffers[first], self._buffers[second]
        self._parents[second] = first
        kept.is_temporary = kept.is_temporary and gone.is_temporary
        kept.is_output = kept.is_output or gone.is_output
        kept.is_read_by_loop = kept.is_read_by_loop or gone.is_read_by_loop
        kept.writers += gone.writers
        kept.updates += gone.updates

    def hand_on(self, time: int, operand: int, result: int) -> None:
        """Note that an instruction can write a result over an operand, if this is its last use."""
        self._handed_on.append((time, operand, result))

    def finish(self) -> list[Buffer]:
        """Return the buffers, after operands have ended where a result is written over them."""
        spans = by_key((self.root(value), span) for value, span in enumerate(self._spans))
        # The last ones first, so that a chain of operands that ends in an output is in the output's memory.
        for time, operand, result in reversed(self._handed_on):
            before, after = self.root(operand), self.root(result)
            over, new = self._buffers[before], self._buffers[after]
            is_last = self._spans[operand][1] == time == self._spans[result][0]
            if (
                not is_last
                or before == after
                or not over.is_temporary
                or over.shape.nbytes != new.shape.nbytes
            ):
                continue
            if new.is_output and _follow(spans[before], spans[after], time):
                self.unite(operand, result)
                spans[self.root(result)] = spans.pop(before) + spans.pop(after)
            elif new.is_temporary and _follow(spans[before], spans[after], time):
                self._spans[operand][1] = time - 1
        for root, ranges in spans.items():
            self._buffers[root].spans = [(start, end) for start, end in ranges]
        return [self._buffers[root] for root in spans]


def _follow(some: list[list[int]], others: list[list[int]], time: int) -> bool:
    """Return whether values are never live at the same time, except at one time that is given."""
    return all(
        span[1] < other[0] or other[1] < span[0] or span[1] == time == other[0]
        for span in some
        for other in others
    )
