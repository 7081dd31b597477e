"""Buffers of a scheduled program, and when they are live."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .aliases import elementwise_parameters, fused_updates, is_elementwise, shared_leaves
from .module import ArrayShape, Computation, Instruction, Module

_NAME = re.compile(r"%?([\w.\-]+)")
# XLA gives each loop and branch a computation of its own. Text that calls one from many places is not
# followed into it more often than this, so that nonsense ends.
_MOST_CALLS = 16
_DEEPEST = 100
_UNCHANGED = frozenset(("copy", "convert", "transpose", "reshape", "copy-start"))


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
    """Memory of one value, or of several that follow each other, as the values that a loop carries."""

    shape: ArrayShape
    """Type of the first value."""

    start: int
    """Time of the first value's instruction."""

    end: int
    """Time of the last use."""

    is_temporary: bool
    """Whether it is neither an argument, an output nor a constant."""

    writers: list[Writer] = field(default_factory=list)
    """Instructions that write it, in the order of the schedule."""

    updates: list[Writer] = field(default_factory=list)
    """Those that update a part of it, inside of a loop that carries it."""

    is_read_by_loop: bool = False
    """Whether a later loop reads it after a loop has filled it part by part."""


def buffers_of(module: Module) -> list[Buffer]:
    """Return the buffers of a program, with the times of the schedule at which they are live.

    A loop's body is at the loop's place in the schedule, once; so are branches, one after the other. Values
    inside of a fusion have no buffer.
    """
    entry = module.computations.get(module.entry)
    if entry is None:
        return []
    schedule = _Schedule(module)
    for leaf in schedule.run(Scope(entry), ()):
        schedule.buffer(leaf).is_temporary = False
    return schedule.finish()


class _Schedule:
    """A walk through the schedule. Buffers are numbers; united ones form trees in ``parents``."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.buffers: list[Buffer] = []
        self.parents: list[int] = []
        self.now = 0
        self.calls: dict[str, int] = {}
        self.depth = 0
        self.filled: set[int] = set()
        self.updated: list[tuple[int, Writer]] = []
        self.handed_on: list[tuple[int, int, int]] = []
        self.in_place: dict[str, Mapping[int, tuple[int, int]]] = {}
        self.elementwise: dict[str, frozenset[int]] = {}

    def find(self, number: int) -> int:
        parents = self.parents
        while parents[number] != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number

    def buffer(self, number: int) -> Buffer:
        return self.buffers[self.find(number)]

    def new(self, shape: ArrayShape, *, is_temporary: bool = True) -> int:
        self.buffers.append(Buffer(shape, self.now, self.now, is_temporary))
        self.parents.append(len(self.parents))
        return len(self.parents) - 1

    def unite(self, one: int, other: int) -> None:
        first, second = sorted((self.find(one), self.find(other)))
        if first == second:
            return
        kept, gone = self.buffers[first], self.buffers[second]
        self.parents[second] = first
        kept.end = max(kept.end, gone.end)
        kept.is_temporary = kept.is_temporary and gone.is_temporary
        kept.writers += gone.writers
        kept.updates += gone.updates
        kept.is_read_by_loop = kept.is_read_by_loop or gone.is_read_by_loop
        if second in self.filled:
            self.filled.add(first)

    def run(self, scope: Scope, arguments: Sequence[Sequence[int]]) -> list[int]:
        """Run a computation, and return the buffers of its result."""
        values: dict[str, Sequence[int]] = {}
        by_name = scope.computation.by_name
        result: Sequence[int] = ()
        for one in scope.computation.instructions:
            self.now += 1
            operands = [values.get(name, ()) for name in one.operands]
            for operand in () if one.opcode in ("tuple", "get-tuple-element", "bitcast") else operands:
                for number in operand:
                    self.buffer(number).end = self.now
            leaves = self._called(scope, one, operands)
            if leaves is None:
                leaves = self._plain(scope, one, operands, [by_name.get(name) for name in one.operands], arguments)
            values[one.name] = leaves
            if one.is_root:
                result = leaves
        self.now += 1
        for number in result:
            self.buffer(number).end = self.now
        return list(result)

    def _plain(
        self,
        scope: Scope,
        one: Instruction,
        operands: Sequence[Sequence[int]],
        instructions: Sequence[Instruction | None],
        arguments: Sequence[Sequence[int]],
    ) -> list[int]:
        """Return the buffers of the result of an instruction that runs no computation in memory."""
        if one.opcode == "parameter":
            number = int(one.literal) if one.literal.isdecimal() else -1
            if 0 <= number < len(arguments) and len(arguments[number]) == len(one.shapes):
                return list(arguments[number])
            return [self.new(shape, is_temporary=False) for shape in one.shapes]
        if one.opcode == "constant":
            return [self.new(shape, is_temporary=False) for shape in one.shapes]
        if one.opcode == "fusion" and "output_to_operand_aliasing" not in one.attributes:
            updates = self._fused_updates(one)
            shared = [updates.get(place) for place in range(len(one.shapes))]
        else:
            found = shared_leaves(one, instructions)
            if found is None:
                return [self.new(shape, is_temporary=False) for shape in one.shapes]
            shared = found
        is_write = one.opcode not in ("tuple", "get-tuple-element", "bitcast", "opt-barrier")
        leaves = []
        for place, (shape, leaf) in enumerate(zip(one.shapes, shared, strict=True)):
            operand = operands[leaf[0]] if leaf is not None and leaf[0] < len(operands) else ()
            if leaf is not None and leaf[1] < len(operand):
                number = operand[leaf[1]]
                if is_write and not one.opcode.endswith(("-start", "-done")):
                    writer = Writer(scope, one, place)
                    self.buffer(number).writers.append(writer)
                    self.updated.append((number, writer))
            else:
                number = self.new(shape)
                self.buffers[number].writers.append(Writer(scope, one, place))
                self._hand_on(one, operands, number)
            leaves.append(number)
        return leaves

    def _hand_on(self, one: Instruction, operands: Sequence[Sequence[int]], result: int) -> None:
        """Note the operands that may end where the result begins, because it can be written over them."""
        if is_elementwise(one):
            over: Sequence[int] = range(len(operands))
        elif one.opcode == "fusion":
            over = sorted(self._elementwise(one))
        else:
            over = ()
        for k in over:
            if k < len(operands) and len(operands[k]) == 1:
                self.handed_on.append((self.now, operands[k][0], result))
        if one.opcode in _UNCHANGED and operands and operands[0] and self.find(operands[0][0]) in self.filled:
            self.filled.add(result)

    def _called(self, scope: Scope, one: Instruction, operands: Sequence[Sequence[int]]) -> list[int] | None:
        """Run the computations of a loop, a branch or a call; None for other instructions."""
        if one.opcode == "while" and len(operands) == 1:
            return self._loop(scope, one, list(operands[0]))
        if one.opcode == "conditional":
            text = one.attributes.get("branch_computations") or ",".join(
                one.attributes.get(name, "") for name in ("true_computation", "false_computation")
            )
            results = [
                self._inside(scope, one, name, [operand])
                for name, operand in zip(_NAME.findall(text), operands[1:], strict=False)
            ]
            known = [result for result in results if result is not None and len(result) == len(one.shapes)]
            if not known:
                return None
            for other in known[1:]:
                for number, same in zip(known[0], other, strict=True):
                    self.unite(number, same)
            return known[0]
        if one.opcode == "call":
            result = self._inside(scope, one, one.attributes.get("to_apply", ""), operands)
            return result if result is not None and len(result) == len(one.shapes) else None
        if one.opcode == "async-start":
            flat = [number for operand in operands for number in operand]
            result = self._inside(scope, one, one.attributes.get("calls", ""), operands)
            rest = len(one.shapes) - len(flat) - len(result or ())
            if result is None or rest < 0:
                return None
            return [*flat, *result, *(self.new(shape) for shape in one.shapes[len(one.shapes) - rest :])]
        return None

    def _loop(self, scope: Scope, one: Instruction, carried: list[int]) -> list[int] | None:
        """Run a loop once. What it carries has one buffer before, inside and after it."""
        if len(carried) != len(one.shapes):
            return None
        first_update = len(self.updated)
        self._inside(scope, one, one.attributes.get("condition", ""), [carried])
        result = self._inside(scope, one, one.attributes.get("body", ""), [carried])
        if result is None or len(result) != len(carried):
            return None
        inside = self.updated[first_update:]
        changed = {self.find(number) for number, _ in inside}
        for before, after in zip(carried, result, strict=True):
            if self.find(before) == self.find(after) and self.find(before) not in changed:
                if self.find(before) in self.filled:
                    self.buffer(before).is_read_by_loop = True
            else:
                self.unite(before, after)
        roots = {self.find(number) for number in carried}
        for number, writer in inside:
            if self.find(number) in roots:
                self.filled.add(self.find(number))
                buffer = self.buffer(number)
                if writer not in buffer.updates:
                    buffer.updates.append(writer)
        return carried

    def _inside(
        self, scope: Scope, one: Instruction, name: str, arguments: Sequence[Sequence[int]]
    ) -> list[int] | None:
        """Run a computation that an instruction calls; None if there is none, or it is called too often."""
        found = _NAME.search(name)
        computation = self.module.computations.get(found[1]) if found else None
        if computation is None or self.depth >= _DEEPEST:
            return None
        calls = self.calls.get(computation.name, 0)
        if calls >= _MOST_CALLS:
            return None
        self.calls[computation.name] = calls + 1
        self.depth += 1
        result = self.run(Scope(computation, one, scope, scope.loops + (one.opcode == "while")), arguments)
        self.depth -= 1
        return result

    def _fused(self, one: Instruction) -> Computation | None:
        found = _NAME.search(one.attributes.get("calls", ""))
        return self.module.computations.get(found[1]) if found else None

    def _fused_updates(self, one: Instruction) -> Mapping[int, tuple[int, int]]:
        name = one.attributes.get("calls", "")
        if name not in self.in_place:
            fused = self._fused(one)
            self.in_place[name] = {} if fused is None else fused_updates(fused)
        return self.in_place[name]

    def _elementwise(self, one: Instruction) -> frozenset[int]:
        name = one.attributes.get("calls", "")
        if name not in self.elementwise:
            fused = self._fused(one)
            self.elementwise[name] = frozenset() if fused is None else elementwise_parameters(fused)
        return self.elementwise[name]

    def finish(self) -> list[Buffer]:
        """Let operands end where a result is written over them, and return the buffers."""
        taken: set[int] = set()
        for time, number, result in self.handed_on:
            before, after = self.find(number), self.find(result)
            over, new = self.buffers[before], self.buffers[after]
            is_last = over.end == time and new.start == time and over.is_temporary
            if is_last and before != after and after not in taken and over.shape.nbytes == new.shape.nbytes:
                over.end = time - 1
                taken.add(after)
        return [buffer for number, buffer in enumerate(self.buffers) if self.parents[number] == number]
