"""Sources and consumers of values, across fusions, calls, branches and loops."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple

from .module import PASSING, Computation, Instruction, Module, Passing, called, calling, calls_of, operations
from .slices import rendezvous

_IDENTITIES = operations(Passing.SAME)

_JOINS = frozenset({"all-gather", "all-to-all", "collective-broadcast", "collective-permute", "concatenate"})
"""Operations whose result has the values of all operands, or whose results have the values of one each."""

_CALLS = frozenset({"async", "call", "fusion"})
"""Operations whose result is that of the computation that they run; asynchronous ones end with ``-start``."""

_NEAR = 200
"""Number of values in a search for consumers or producers: one may reach all of a program."""
_FAR = 1000
"""Number of values in a search for all that a value depends on."""

_DEEPEST = 100
"""Number of loops in loops, more than there are in programs."""


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


_Use = tuple[int, Instruction, int]
"""A use of a value: place of the user in its computation, the user, and the index of the operand."""


class Step(NamedTuple):
    """A value that is computed from another one in one step."""

    user: Instruction | None
    """The instruction that uses the other one; None if that is the result of a computation."""

    operand: int
    """Index of the operand; 0 for the result of a computation."""

    value: Value
    """The value: the result of the user, or a parameter of a computation that it runs."""


class Dataflow:
    """Connections between the values of a program."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._depth = 0
        self._invariant: dict[tuple[str, int], bool] = {}
        self._users: dict[str, dict[str, list[_Use]]] = {}
        self._users_of_elements: dict[tuple[str, str], dict[int | None, list[_Use]]] = {}
        self._parameters: dict[str, dict[int, str]] = {}
        self._following: dict[Value, tuple[Value, ...]] = {}

    @cached_property
    def sites(self) -> dict[str, list[CallSite]]:
        """Call sites of each computation, without those of reducers and comparators."""
        found: dict[str, list[CallSite]] = {}
        for computation in self.module.computations.values():
            for instruction in computation.where(calling):
                for name, first in _called(instruction):
                    found.setdefault(name, []).append(CallSite(computation.name, instruction, first))
        return found

    @cached_property
    def ends(self) -> dict[tuple[str, str], Instruction]:
        """Between slices: the recv of each send, and the send of each recv, by computation and name."""
        ends = map(_ends_between_slices, self.module.computations.values())
        return {place: one for found in ends for place, one in found.items()}

    def instruction(self, value: Value) -> Instruction | None:
        """Return the instruction of a value; None if it was not read."""
        computation = self.module.computations.get(value.computation)
        return None if computation is None else computation.by_name.get(value.name)

    def argument(self, value: Value) -> Instruction | None:
        """Return the parameter of the program that a value is a copy, a part or another form of.

        None if the value is computed. An argument that a loop passes on unchanged is found in each iteration.
        """
        found: Instruction | None = None
        seen: set[Value] = set()
        pending = [value]
        while pending:
            at = pending.pop()
            if at in seen:
                continue
            seen.add(at)
            instruction = self.instruction(at)
            if instruction is not None and self._is_argument(at, instruction):
                if found is not None and found is not instruction:
                    return None
                found = instruction
            elif sources := self.sources(at):
                pending += sources
            else:
                return None
        return found

    def producers(self, value: Value) -> Iterator[Instruction]:
        """Yield the instructions that a value is computed from, nearest first."""
        return (instruction for _, instruction in itertools.islice(self.walk(value), _NEAR))

    def walk(
        self,
        start: Value,
        *,
        stops: Callable[[Instruction], bool] = lambda _: False,
        is_within_turn: bool = False,
    ) -> Iterator[tuple[Value, Instruction]]:
        """Yield the values that a value is computed from, and the instruction of each, nearest first.

        A value that a loop changes is computed from those of the turn before, and those before the loop.

        Args:
            start: The value, which is yielded, too.
            stops: A function that returns whether not to search what an instruction computes from.
            is_within_turn: Whether to search in one turn of the loop around the value only.
        """
        seen: set[Value] = set()
        waiting = [start]
        for value in waiting:
            instruction = self.instruction(value)
            if instruction is None or value in seen or len(seen) >= _FAR:
                continue
            seen.add(value)
            yield value, instruction
            if not stops(instruction):
                waiting += self._before(value, instruction, is_within_turn)

    def changes_in_turns(self, value: Value) -> bool:
        """Return whether a value depends on one that the loop around it changes, such as its counter."""
        return any(
            one.opcode == "parameter" and self._is_changed(at)
            for at, one in self.walk(value, is_within_turn=True)
        )

    def _is_changed(self, parameter: Value) -> bool:
        sites = [site.instruction for site in self.sites.get(parameter.computation, ())]
        return any(one.opcode == "while" and not self.is_invariant(one, parameter.element) for one in sites)

    def _before(self, value: Value, instruction: Instruction, is_within_turn: bool) -> list[Value]:
        """Return the values that a value is computed from in one step."""
        within, element, operands = value.computation, value.element, instruction.operands
        sites = self.sites.get(within, []) if instruction.opcode == "parameter" else []
        if is_within_turn and any(site.instruction.opcode == "while" for site in sites):
            return []
        if sources := self.sources(value, is_exact=is_within_turn):
            return sources
        is_predicated = instruction.opcode == "conditional"
        if (is_predicated or instruction.opcode == "while") and (ends := self._ends(instruction, element)):
            return [*ends, *(Value(within, name) for name in operands[:is_predicated])]
        found = [Value(within, name) for name in operands]
        for site in sites:
            if site.instruction.opcode == "while":
                found += self._ends(site.instruction, element)
            number = instruction.parameter_number + site.first_operand
            names = site.instruction.operands[number : number + 1]
            found += [Value(site.computation, name, element) for name in names]
        return found

    def _is_argument(self, value: Value, instruction: Instruction) -> bool:
        return instruction.opcode == "parameter" and value.computation == self.module.entry

    def sources(self, value: Value, *, is_exact: bool = False) -> list[Value]:
        """Return the values that a value is a copy of or, unless ``is_exact``, a form of; [] if none."""
        instruction = self.instruction(value)
        if instruction is None:
            return []
        within, element, operands = value.computation, value.element, instruction.operands
        opcode = instruction.opcode
        plain = opcode.removesuffix("-start")
        if opcode == "parameter":
            return self.outside(value, instruction.parameter_number)
        if plain in _CALLS:
            return self._ends(instruction, element)
        if opcode == "get-tuple-element":
            index = instruction.element
            return [] if index is None else [Value(within, name, index) for name in operands]
        if (
            opcode in _IDENTITIES
            or opcode.endswith("-done")
            or (opcode == "while" and self.is_invariant(instruction, element))
        ):
            return [Value(within, name, element) for name in operands[:1]]
        is_join = plain in _JOINS or "ConcatBitcast" in instruction.custom_call_target
        if opcode == "tuple" or (is_join and not is_exact):
            names = operands if element is None else operands[element : element + 1]
            return [Value(within, name) for name in names]
        if opcode == "recv" and not is_exact and (send := self.ends.get((within, instruction.name))):
            return [Value(within, name) for name in send.operands[:1]]
        # Further operands are indices, offsets and padding.
        return [Value(within, name) for name in operands[:1] if plain in PASSING and not is_exact]

    def same(self, value: Value) -> list[Value]:
        """Return the values that a value is a copy of, in one step; [] if it is computed."""
        return self.sources(value, is_exact=True)

    def outside(self, value: Value, number: int) -> list[Value]:
        """Return the value that a parameter of its computation has in each execution; [] if it varies."""
        sites = self.sites.get(value.computation, [])
        if len(sites) != 1:
            return []
        site = sites[0]
        if site.instruction.opcode == "while" and not self.is_invariant(site.instruction, value.element):
            return []
        number += site.first_operand
        names = site.instruction.operands[number : number + 1]
        return [Value(site.computation, name, value.element) for name in names]

    def _ends(self, instruction: Instruction, element: int | None) -> list[Value]:
        """Return the results of the computations that a fusion, a call, a conditional or a loop runs."""
        names = (call.name for call in calls_of(instruction) if call.role not in ("condition", "unknown"))
        computations = (self.module.computations.get(name) for name in names)
        return [Value(one.name, one.root.name, element) for one in computations if one and one.root]

    def is_invariant(self, loop: Instruction, element: int | None) -> bool:
        """Return whether each iteration of a loop passes on an element of its tuple unchanged."""
        body = self.module.computations.get(called(loop, "body") or "")
        if body is None or body.root is None or element is None:
            return False
        if (body.name, element) not in self._invariant:
            # A damaged text may have a loop that contains itself.
            self._invariant[body.name, element] = False
            if self._depth < _DEEPEST:
                self._depth += 1
                self._invariant[body.name, element] = self._reaches_parameter(body, body.root, element)
                self._depth -= 1
        return self._invariant[body.name, element]

    def _reaches_parameter(self, body: Computation, root: Instruction, element: int) -> bool:
        """Return whether an element of a loop's result is the same element of its parameter."""
        seen: set[Value] = set()
        at = Value(body.name, root.name, element)
        while at not in seen:
            seen.add(at)
            instruction = self.instruction(at)
            if instruction is not None and instruction.opcode == "parameter" and at.computation == body.name:
                return at.element == element
            sources = self.sources(at, is_exact=True)
            if len(sources) != 1:
                return False
            at = sources[0]
        return False

    def consumers(
        self, value: Value, *, is_end: Callable[[Instruction], bool] = lambda instruction: False
    ) -> Iterator[Instruction]:
        """Yield the instructions that use a value, then those that use their results, nearest first.

        Yielded are the instructions inside of fusions, calls, branches and loops.

        Args:
            value: The value.
            is_end: A function that returns whether not to search the users of an instruction.
        """
        seen = {value}
        level = [value]
        while level and len(seen) < _NEAR:
            following = dict.fromkeys(new for at in level for new in self._after(at) if new not in seen)
            seen.update(following)
            level = []
            for at in following:
                instruction = self.instruction(at)
                if instruction is not None and instruction.opcode != "parameter" and at.element is None:
                    yield instruction
                    if is_end(instruction):
                        continue
                level.append(at)

    def _after(self, value: Value) -> tuple[Value, ...]:
        """Return the values that are computed from a value in one step."""
        found = self._following.get(value)
        if found is None:
            found = self._following[value] = tuple(step.value for step in self.steps(value))
        return found

    def steps(self, value: Value) -> Iterator[Step]:
        """Yield each value that is computed from a value in one step."""
        within, element = value.computation, value.element
        for _, user, operand in self._users_of(value):
            if user.opcode == "get-tuple-element":
                yield Step(user, operand, Value(within, user.name))
            elif user.opcode == "tuple":
                yield Step(user, operand, Value(within, user.name, operand))
            elif operand == 0 and (recv := self.ends.get((within, user.name))) is not None:
                yield Step(user, operand, Value(within, user.name))
                yield Step(user, operand, Value(within, recv.name, 0))
            elif targets := _called(user):
                for name, first in targets:
                    parameter = self._parameters_of(name).get(operand - first)
                    if parameter is not None:
                        yield Step(user, operand, Value(name, parameter, element))
            else:
                is_identity = user.opcode in _IDENTITIES or user.opcode.endswith("-done")
                yield Step(user, operand, Value(within, user.name, element if is_identity else None))
        computation = self.module.computations.get(within)
        root = computation.root if computation is not None else None
        if root is not None and root.name == value.name:
            for site in self.sites.get(within, ()):
                if called(site.instruction, "condition") != within:
                    yield Step(None, 0, Value(site.computation, site.instruction.name, element))
                    if called(site.instruction, "body") == within:
                        names = [*self._parameters_of(within).values()]
                        yield from (Step(None, 0, Value(within, name, element)) for name in names)

    def _parameters_of(self, name: str) -> Mapping[int, str]:
        """Return the names of the parameters of a computation by number."""
        if name not in self._parameters:
            computation = self.module.computations.get(name)
            instructions = () if computation is None else computation.instructions
            found = {one.parameter_number: one.name for one in instructions if one.opcode == "parameter"}
            self._parameters[name] = found
        return self._parameters[name]

    def _users_of(self, value: Value) -> Sequence[_Use]:
        """Return the users of a value in its computation, in the order of the schedule."""
        users = self._users_in(value.computation).get(value.name, [])
        if value.element is None:
            return users
        # A combined collective may have thousands of elements.
        key = value.computation, value.name
        if key not in self._users_of_elements:
            by_element = self._users_of_elements[key] = {}
            for use in users:
                by_element.setdefault(use[1].element, []).append(use)
        by_element = self._users_of_elements[key]
        found = [*by_element.get(value.element, ()), *by_element.get(None, ())]
        return sorted(found, key=itemgetter(0))

    def _users_in(self, name: str) -> dict[str, list[_Use]]:
        """Return the users of each value in a computation."""
        if name not in self._users:
            computation = self.module.computations.get(name)
            self._users[name] = {} if computation is None else _users(computation)
        return self._users[name]


def _ends_between_slices(computation: Computation) -> dict[tuple[str, str], Instruction]:
    """Return the recv of each send between slices of a computation, and the send of each recv."""
    sends, recvs = (
        {rendezvous(one): one for one in computation.instructions if one.opcode == opcode}
        for opcode in ("send", "recv")
    )
    found = {}
    for name in sends.keys() & recvs.keys() - {None}:
        found[computation.name, sends[name].name] = recvs[name]
        found[computation.name, recvs[name].name] = sends[name]
    return found


def _users(computation: Computation) -> dict[str, list[_Use]]:
    users: dict[str, list[_Use]] = {}
    for place, instruction in enumerate(computation.instructions):
        for index, operand in enumerate(instruction.operands):
            users.setdefault(operand, []).append((place, instruction, index))
    return users


def _called(instruction: Instruction) -> Sequence[tuple[str, int]]:
    """Return the computations that an instruction runs on its operands, and the first operand of each."""
    calls = calls_of(instruction)
    if not calls:
        return ()
    branches = itertools.count(1)
    return [
        (call.name, next(branches) if call.role == "branch" else 0)
        for call in calls
        if call.role != "unknown"
    ]
