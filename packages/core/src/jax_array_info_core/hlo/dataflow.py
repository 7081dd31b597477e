"""Sources and consumers of values, across fusions, calls, branches and loops."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from .calls import called, calls_of
from .module import Computation, Instruction, Module

IDENTITIES = frozenset({"copy", "bitcast", "copy-start", "copy-done", "optimization-barrier", "opt-barrier"})
"""Operations whose result has the value of their operand."""

MOVES = frozenset(
    {
        *("all-gather", "all-to-all", "collective-broadcast", "collective-permute", "ragged-all-to-all"),
        *("bitcast-convert", "convert", "pad", "reduce-precision", "reshape", "transpose"),
        *("dynamic-slice", "slice", "dynamic-slice-start", "slice-start"),
    }
)
"""Operations whose result has the values of their first operand: in part, in another order, converted."""


class Value(NamedTuple):
    """A result of an instruction."""

    computation: str
    name: str
    element: int | None = None
    """Index of an element of a tuple; None for the whole result."""


class CallSite(NamedTuple):
    """An instruction that runs a computation."""

    computation: str
    instruction: Instruction
    first_operand: int
    """Index of the operand that is the computation's parameter 0."""


class Dataflow:
    """Connections between the values of a program."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.sites: dict[str, list[CallSite]] = {}
        """Call sites of each computation, without those of reducers and comparators."""
        for computation in module.computations.values():
            for instruction in computation.instructions:
                for name, first in _called(instruction):
                    self.sites.setdefault(name, []).append(CallSite(computation.name, instruction, first))
        self._users: dict[str, dict[str, list[tuple[Instruction, int]]]] = {}

    def instruction(self, value: Value) -> Instruction | None:
        """Return the instruction of a value; None if it was not read."""
        computation = self.module.computations.get(value.computation)
        return None if computation is None else computation.by_name.get(value.name)

    def argument(self, value: Value) -> Instruction | None:
        """Return the parameter of the program that a value is a copy, a part or another form of.

        None if the value is computed. An argument that a loop passes on unchanged is found in each iteration.
        """
        for at in self._before(value):
            instruction = self.instruction(at)
            if at.computation == self.module.entry and instruction and instruction.opcode == "parameter":
                return instruction
        return None

    def _before(self, value: Value, moves: frozenset[str] = MOVES) -> Iterator[Value]:
        """Yield a value and those that it is taken from, up to the one that is computed."""
        seen: set[Value] = set()
        at: Value | None = value
        while at is not None and at not in seen:
            seen.add(at)
            yield at
            at = self._source(at, moves)

    def _source(self, value: Value, moves: frozenset[str]) -> Value | None:
        """Return the value that a value is taken from; None if it is computed."""
        instruction = self.instruction(value)
        if instruction is None:
            return None
        within, element, operands = value.computation, value.element, instruction.operands
        opcode = instruction.opcode
        if opcode == "parameter":
            return self._outside(value, int(instruction.literal))
        if opcode == "while" and not self._is_invariant(instruction, element):
            return None
        if opcode in ("fusion", "call", "async-start"):
            return self._result(instruction, element)
        if opcode == "get-tuple-element":
            index = instruction.attributes.get("index", "")
            return Value(within, operands[0], int(index)) if operands and index.isdecimal() else None
        if opcode == "tuple" or (
            opcode.removesuffix("-start") in moves and element is not None and len(operands) > 1
        ):
            is_element = element is not None and element < len(operands)
            return Value(within, operands[element], None) if element is not None and is_element else None
        if not operands:
            return None
        if opcode in IDENTITIES or opcode == "while" or opcode.endswith("-done"):
            return Value(within, operands[0], element)
        if opcode.removesuffix("-start") in moves or opcode in moves:
            return Value(within, operands[0])
        return None

    def _outside(self, value: Value, number: int) -> Value | None:
        """Return the operand that a parameter of a computation stands for."""
        sites = self.sites.get(value.computation, [])
        if len(sites) != 1:
            return None
        site = sites[0]
        if site.instruction.opcode == "while" and not self._is_invariant(site.instruction, value.element):
            return None
        number += site.first_operand
        operands = site.instruction.operands
        return Value(site.computation, operands[number], value.element) if number < len(operands) else None

    def _result(self, instruction: Instruction, element: int | None) -> Value | None:
        """Return the result of the computation that a fusion or a call runs."""
        for name, _ in _called(instruction):
            computation = self.module.computations.get(name)
            if computation is not None and computation.root is not None:
                return Value(name, computation.root.name, element)
        return None

    def _is_invariant(self, loop: Instruction, element: int | None) -> bool:
        """Return whether each iteration of a loop passes on an element of its tuple unchanged."""
        body = self.module.computations.get(called(loop, "body") or "")
        if body is None or body.root is None or element is None:
            return False
        for at in self._before(Value(body.name, body.root.name, element), frozenset()):
            instruction = body.by_name.get(at.name) if at.computation == body.name else None
            if instruction is not None and instruction.opcode == "parameter":
                return at.element == element
        return False

    def consumers(self, value: Value, *, at_most: int = 2_000) -> Iterator[Instruction]:
        """Yield the instructions that use a value, then those that use their results, nearest first.

        Yielded are the instructions inside of fusions, calls, branches and loops. Only the first instructions
        are searched, since a value may reach all that follow.
        """
        seen = {value}
        level = [value]
        while level and len(seen) < at_most:
            following: list[Value] = []
            for at in level:
                following += (new for new in self._after(at) if new not in seen)
                seen.update(following)
            for at in following:
                instruction = self.instruction(at)
                if instruction is not None and at.element is None and instruction.opcode != "parameter":
                    yield instruction
            level = list(dict.fromkeys(following))

    def _after(self, value: Value) -> Iterator[Value]:
        """Yield the values that are computed from a value in one step."""
        within, element = value.computation, value.element
        for user, operand in self._users_in(within).get(value.name, ()):
            if user.opcode == "get-tuple-element":
                if element is None or user.attributes.get("index") == str(element):
                    yield Value(within, user.name)
            elif user.opcode == "tuple":
                yield Value(within, user.name, operand)
            elif targets := list(_called(user)):
                for name, first in targets:
                    parameter = self._parameters(name).get(operand - first)
                    if parameter is not None:
                        yield Value(name, parameter, element)
            else:
                is_identity = user.opcode in IDENTITIES or user.opcode.endswith("-done")
                yield Value(within, user.name, element if is_identity else None)
        computation = self.module.computations.get(within)
        root = computation.root if computation is not None else None
        if root is not None and root.name == value.name:
            for site in self.sites.get(within, ()):
                if called(site.instruction, "condition") != within:
                    yield Value(site.computation, site.instruction.name, element)

    def _parameters(self, name: str) -> Mapping[int, str]:
        """Return the names of the parameters of a computation by number."""
        computation = self.module.computations.get(name)
        if computation is None:
            return {}
        return {int(one.literal): one.name for one in computation.instructions if one.opcode == "parameter"}

    def _users_in(self, name: str) -> dict[str, list[tuple[Instruction, int]]]:
        """Return the users of each value in a computation, each with the index of the operand."""
        if name not in self._users:
            computation = self.module.computations.get(name)
            self._users[name] = {} if computation is None else _users(computation)
        return self._users[name]


def _users(computation: Computation) -> dict[str, list[tuple[Instruction, int]]]:
    users: dict[str, list[tuple[Instruction, int]]] = {}
    for instruction in computation.instructions:
        for index, operand in enumerate(instruction.operands):
            users.setdefault(operand, []).append((instruction, index))
    return users


def _called(instruction: Instruction) -> Iterator[tuple[str, int]]:
    """Yield the computations that an instruction runs on its operands, and the first operand of each."""
    branches = itertools.count(1)
    for call in calls_of(instruction):
        if call.role != "unknown":
            yield call.name, next(branches) if call.role == "branch" else 0
