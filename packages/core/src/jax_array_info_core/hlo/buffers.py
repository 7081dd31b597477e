"""Buffers of a program, and the values that share them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from .module import ArrayShape, Computation, Instruction


class Scope(NamedTuple):
    """A computation at one place of the schedule."""

    computation: Computation
    """The computation."""

    caller: Instruction | None = None
    """The instruction that runs it; None for the entry."""

    outer: Scope | None = None
    """Where that instruction is."""

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

    def unite(self, one: int, other: int) -> None:
        """Give two values the same buffer."""
        first, second = sorted((self.root(one), self.root(other)))
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
        spans: dict[int, list[list[int]]] = {}
        for value, span in enumerate(self._spans):
            spans.setdefault(self.root(value), []).append(span)
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
        for root, found in spans.items():
            self._buffers[root].spans = [(start, end) for start, end in found]
        return [self._buffers[root] for root in spans]


def _follow(some: list[list[int]], others: list[list[int]], time: int) -> bool:
    """Return whether values are never live at the same time, except at one time that is given."""
    return all(
        one[1] < other[0] or other[1] < one[0] or one[1] == time == other[0]
        for one in some
        for other in others
    )
