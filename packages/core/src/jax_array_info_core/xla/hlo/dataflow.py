"""Sources and consumers of values, across fusions, calls, branches and loops."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from .module import (
    PASSING,
    Computation,
    Instruction,
    Module,
    Passing,
    Role,
    called,
    calling,
    calls_of,
    operations,
)
from .replica_groups import rendezvous

_IDENTITIES = operations(Passing.SAME)

_JOINS = frozenset({"all-gather", "all-to-all", "collective-broadcast", "collective-permute", "concatenate"})
"""Operations whose result has the values of all operands, or whose results have the values of one each."""

ASYNC_COLLECTIVE = "AsyncCollective"
"""Part of the targets of TPU's custom calls that start and end a collective, which is an operand of them."""

REDUCTIONS = frozenset({"all-reduce", "reduce-scatter"})
"""Collectives that sum over devices, with as many results as operands, each computed from one of them."""

_CALLS = frozenset({"async", "call", "fusion"})
"""Operations whose result is that of the computation that they run; asynchronous ones end with ``-start``."""

_NEAR = 200
"""Number of values in a search for consumers or producers: one may reach all of a program."""
FAR = 1000
"""Number of values in a search for all that a value depends on."""


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
    role: Role
    """Part of the computation in it."""
    first_operand: int
    """Index of the operand that is the computation's parameter 0."""


_Use = tuple[Instruction, int]
"""A use of a value: the user, and the index of the operand."""


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
        self._invariant: dict[tuple[str, int], bool] = {}
        self._following: dict[Value, tuple[Value, ...]] = {}
        self._arguments: dict[Value, Value | None] = {}

    @cached_property
    def sites(self) -> dict[str, list[CallSite]]:
        """Call sites of each computation, without those of reducers and comparators."""
        sites: dict[str, list[CallSite]] = {name: [] for name in self.module.computations}
        for computation in self.module.computations.values():
            for instruction in computation.where(calling):
                for name, role, first in _called(instruction):
                    sites[name].append(CallSite(computation.name, instruction, role, first))
        return sites

    def callers(self, computation: str) -> Iterator[Instruction]:
        """Yield the instructions that run a computation, from the inside out."""
        while sites := self.sites[computation]:
            yield sites[0].instruction
            computation = sites[0].computation

    @cached_property
    def ends(self) -> dict[tuple[str, str], Instruction]:
        """Between slices: the recv of each send, and the send of each recv, by computation and name."""
        ends = map(_ends_between_slices, self.module.computations.values())
        return {place: end for pairs in ends for place, end in pairs.items()}

    def instruction(self, value: Value) -> Instruction:
        """Return the instruction of a value."""
        return self.module.computations[value.computation].by_name[value.name]

    def argument(self, value: Value) -> Value | None:
        """Return the parameter of the program that a value is a copy, a part or another form of.

        None if the value is computed. An argument that a loop passes on unchanged is found in each iteration,
        and one that a loop stacks part by part in the stack.
        """
        if value not in self._arguments:
            self._arguments[value] = self._find_argument(value)
        return self._arguments[value]

    def _find_argument(self, value: Value) -> Value | None:
        argument: Value | None = None
        seen: set[Value] = set()
        pending = [value]
        while pending:
            at = pending.pop()
            if at in seen:
                continue
            seen.add(at)
            instruction = self.instruction(at)
            if instruction.opcode == "parameter" and at.computation == self.module.entry:
                if argument not in (None, at):
                    return None
                argument = at
            elif sources := self.sources(at) or self._stacked(at, instruction):
                pending += sources
            elif not self._is_constant(at, instruction):
                return None
        return argument

    def _stacked(self, value: Value, instruction: Instruction) -> list[Value]:
        """Return the parts of a value that a loop fills part by part; [] for others."""
        if instruction.opcode == "dynamic-update-slice":
            return [Value(value.computation, name) for name in instruction.operands[:2]]
        is_carried = instruction.opcode == "while" or self._is_of_loop(value, instruction)
        return self._before(value, instruction, is_within_turn=False) if is_carried else []

    def _is_of_loop(self, value: Value, instruction: Instruction) -> bool:
        """Return whether a value is what a loop passes to each of its turns."""
        sites = self.sites[value.computation] if instruction.opcode == "parameter" else []
        return any(site.instruction.opcode == "while" for site in sites)

    def _is_constant(self, value: Value, instruction: Instruction) -> bool:
        """Return whether a value is a constant, one in each of its elements, or not yet written."""
        if instruction.custom_call_target == "AllocateBuffer":
            return True
        at: Value | None = value
        if instruction.opcode == "broadcast":
            at = Value(value.computation, instruction.operands[0])
        while at is not None and (instruction := self.instruction(at)).opcode != "constant":
            at = self.same(at)
        return at is not None

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
            if value in seen or len(seen) >= FAR:
                continue
            seen.add(value)
            instruction = self.instruction(value)
            yield value, instruction
            if not stops(instruction):
                waiting += self._before(value, instruction, is_within_turn)

    def changes_in_turns(self, value: Value) -> bool:
        """Return whether a value depends on one that the loop around it changes, such as its counter."""
        return any(
            instruction.opcode == "parameter" and self._is_changed(at)
            for at, instruction in self.walk(value, is_within_turn=True)
        )

    def _is_changed(self, parameter: Value) -> bool:
        sites = self.sites[parameter.computation]
        loops = (site.instruction for site in sites if site.instruction.opcode == "while")
        return any(not self.is_invariant(loop, parameter.element) for loop in loops)

    def _before(self, value: Value, instruction: Instruction, is_within_turn: bool) -> list[Value]:
        """Return the values that a value is computed from in one step."""
        within, element, operands = value.computation, value.element, instruction.operands
        sites = self.sites[within] if instruction.opcode == "parameter" else []
        if is_within_turn and self._is_of_loop(value, instruction):
            return []
        if sources := self.sources(value, is_exact=is_within_turn):
            return sources
        if instruction.opcode == "while":
            return self._ends(instruction, element)
        if instruction.opcode == "conditional":
            return [*self._ends(instruction, element), Value(within, operands[0])]
        if element is not None and instruction.opcode.removesuffix("-start") in REDUCTIONS:
            operands = operands[element : element + 1]
        values = [Value(within, name) for name in operands]
        for site in sites:
            if site.instruction.opcode == "while":
                values += self._ends(site.instruction, element)
            values.append(_operand(site, instruction, element))
        return values

    def sources(self, value: Value, *, is_exact: bool = False) -> list[Value]:
        """Return the values that a value is a copy of or, unless ``is_exact``, a form of; [] if none."""
        instruction = self.instruction(value)
        within, element, operands = value.computation, value.element, instruction.operands
        opcode = instruction.opcode
        plain = opcode.removesuffix("-start")
        if opcode == "parameter":
            return self._outside(value, instruction)
        if plain in _CALLS:
            return self._ends(instruction, element)
        if opcode == "get-tuple-element":
            return [Value(within, operands[0], instruction.element)]
        if (
            opcode in _IDENTITIES
            or opcode.endswith("-done")
            or instruction.custom_call_target == "Sharding"  # of a lowered program
            or (opcode == "while" and self.is_invariant(instruction, element))
        ):
            return [Value(within, name, element) for name in operands[:1]]
        if ASYNC_COLLECTIVE in instruction.custom_call_target and not is_exact:
            by_name = self.module.computations[within].by_name
            return [Value(within, name) for name in operands if by_name[name].opcode in _JOINS | REDUCTIONS]
        is_join = plain in _JOINS or "ConcatBitcast" in instruction.custom_call_target
        if opcode == "tuple" or (is_join and not is_exact):
            names = operands if element is None else operands[element : element + 1]
            return [Value(within, name) for name in names]
        if opcode == "recv" and not is_exact and (send := self.ends.get((within, instruction.name))):
            return [Value(within, name) for name in send.operands[:1]]
        # Further operands are indices, offsets and padding.
        return [Value(within, name) for name in operands[:1] if plain in PASSING and not is_exact]

    def same(self, value: Value, forms: Collection[str] = ()) -> Value | None:
        """Return the value that a value is a copy of, in one step; None if it is computed, and if it varies.

        Args:
            value: The value.
            forms: Further operations whose result counts as a copy of their first operand.
        """
        sources = self.sources(value, is_exact=True)
        if not sources and (instruction := self.instruction(value)).opcode in forms:
            return Value(value.computation, instruction.operands[0])
        return sources[0] if len(sources) == 1 else None

    def _outside(self, value: Value, parameter: Instruction) -> list[Value]:
        """Return the value that a parameter has in each execution of its computation; [] if it varies."""
        sites = self.sites[value.computation]
        if len(sites) != 1:
            return []
        loop = sites[0].instruction if sites[0].instruction.opcode == "while" else None
        is_kept = loop is None or self.is_invariant(loop, value.element)
        return [_operand(sites[0], parameter, value.element)] if is_kept else []

    def _ends(self, instruction: Instruction, element: int | None) -> list[Value]:
        """Return the results of the computations that a fusion, a call, a conditional or a loop runs."""
        names = (call.name for call in calls_of(instruction) if call.role not in ("condition", "unknown"))
        return [Value(name, self.module.computations[name].root.name, element) for name in names]

    def is_invariant(self, loop: Instruction, element: int | None) -> bool:
        """Return whether each iteration of a loop passes on an element of its tuple unchanged."""
        if element is None:
            return False
        body = self.module.computations[called(loop, "body")]
        key = body.name, element
        if key not in self._invariant:
            self._invariant[key] = self._reaches_parameter(body, element)
        return self._invariant[key]

    def _reaches_parameter(self, body: Computation, element: int) -> bool:
        """Return whether an element of a loop's result is the same element of its parameter."""
        parameter = Value(body.name, body.parameters[0].name, element)
        at: Value | None = Value(body.name, body.root.name, element)
        while at is not None and at[:2] != parameter[:2]:
            at = self.same(at)
        return at == parameter

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
                if instruction.opcode != "parameter" and at.element is None:
                    yield instruction
                    if is_end(instruction):
                        continue
                level.append(at)

    def _after(self, value: Value) -> tuple[Value, ...]:
        """Return the values that are computed from a value in one step."""
        if value not in self._following:
            self._following[value] = tuple(step.value for step in self.steps(value))
        return self._following[value]

    def steps(self, value: Value) -> Iterator[Step]:
        """Yield each value that is computed from a value in one step."""
        within, element = value.computation, value.element
        for user, operand in self.users(value):
            if user.opcode == "get-tuple-element":
                yield Step(user, operand, Value(within, user.name))
            elif user.opcode == "tuple":
                yield Step(user, operand, Value(within, user.name, operand))
            elif operand == 0 and (recv := self.ends.get((within, user.name))) is not None:
                yield Step(user, operand, Value(within, user.name))
                yield Step(user, operand, Value(within, recv.name, 0))
            elif targets := _called(user):
                for name, _, first in targets:
                    parameters = self.module.computations[name].parameters
                    if 0 <= operand - first < len(parameters):
                        yield Step(user, operand, Value(name, parameters[operand - first].name, element))
            else:
                is_identity = user.opcode in _IDENTITIES or user.opcode.endswith("-done")
                yield Step(user, operand, Value(within, user.name, element if is_identity else None))
        computation = self.module.computations[within]
        for site in self.sites[within] if computation.root.name == value.name else ():
            if site.role != "condition":
                yield Step(None, 0, Value(site.computation, site.instruction.name, element))
            if site.role == "body":
                yield Step(None, 0, Value(within, computation.parameters[0].name, element))

    def users(self, value: Value) -> Sequence[_Use]:
        """Return the users of a value in its computation, in the order of the schedule."""
        computation = self.module.computations[value.computation]
        by_element = computation.once(_uses).get(computation.by_name[value.name].place, {})
        # A combined collective may have thousands of elements.
        elements = by_element if value.element is None else {value.element, None} & by_element.keys()
        return [
            (computation.instructions[place], operand)
            for place, operand in sorted(itertools.chain.from_iterable(map(by_element.__getitem__, elements)))
        ]


def _uses(computation: Computation) -> dict[int, dict[int | None, list[tuple[int, int]]]]:
    """Return the users of each value and the index of the operand, by the element of a tuple that they take.

    The values and their users are places.
    """
    uses: dict[int, dict[int | None, list[tuple[int, int]]]] = {}
    for user in computation.instructions:
        element = user.element
        for index, name in enumerate(user.operands):
            uses.setdefault(computation.by_name[name].place, {}).setdefault(element, []).append(
                (user.place, index)
            )
    return uses


def _between_slices(computation: Computation) -> list[int]:
    """Return the places of sends and recvs."""
    return [
        instruction.place
        for instruction in computation.instructions
        if instruction.opcode in ("send", "recv")
    ]


def _ends_between_slices(computation: Computation) -> dict[tuple[str, str], Instruction]:
    """Return the recv of each send between slices of a computation, and the send of each recv."""
    instructions = computation.where(_between_slices)
    sends, recvs = (
        {rendezvous(instruction): instruction for instruction in instructions if instruction.opcode == opcode}
        for opcode in ("send", "recv")
    )
    ends = {}
    for name in sends.keys() & recvs.keys() - {None}:
        ends[computation.name, sends[name].name] = recvs[name]
        ends[computation.name, recvs[name].name] = sends[name]
    return ends


def _operand(site: CallSite, parameter: Instruction, element: int | None) -> Value:
    """Return the value that a parameter of a computation has at a call site."""
    number = parameter.parameter_number + site.first_operand
    return Value(site.computation, site.instruction.operands[number], element)


def _called(instruction: Instruction) -> Sequence[tuple[str, Role, int]]:
    """Return the computations that an instruction runs on its operands, their roles and first operands."""
    return [
        (call.name, call.role, place if call.role == "branch" else 0)
        for place, call in enumerate(calls_of(instruction), 1)
        if call.role != "unknown"
    ]
