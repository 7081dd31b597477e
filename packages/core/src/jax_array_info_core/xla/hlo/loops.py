"""Trip counts of loops, and executions of each computation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .dataflow import Dataflow, Value
from .module import Instruction, Module, Passing, called, calling, operations

_MOST_TERMS = 1000
"""Number of values in a sum, above which it is unknown."""

_SAME_NUMBER = operations(Passing.NUMBER)
_FLIPPED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}
_OPPOSITE = {"LT": "GE", "LE": "GT", "GT": "LE", "GE": "LT", "EQ": "NE"}


class _Sum(NamedTuple):
    """An integer that is the sum of a computed value and a constant."""

    value: Value | None
    """The value, at the place where it is computed; None for a constant."""

    offset: int
    """The constant."""


def _trip_count(dataflow: Dataflow, computation: str, loop: Instruction) -> int | None:
    """Return the number of turns of a loop in a computation; None if it depends on data.

    CPU and GPU print it. TPU does not: there it follows from the start of the counter, its step in the body
    and the limit in the condition.
    """
    if (noted := loop.trip_count) is not None:
        return noted
    limits = _limits(dataflow, computation, loop)
    return None if None in limits else _least(limits)


def most_turns(dataflow: Dataflow, computation: str, loop: Instruction) -> int | None:
    """Return the most turns that the condition of a loop allows; None if no part of it bounds them.

    It does so where it compares a counter with a constant, and that is required along with other parts.
    """
    return _least(_limits(dataflow, computation, loop))


def _least(limits: Sequence[int | None]) -> int | None:
    """Return the least of the limits that are known; None without one."""
    return min((turns for turns in limits if turns is not None), default=None)


def _limits(dataflow: Dataflow, computation: str, loop: Instruction) -> list[int | None]:
    """Return how often each part of a loop's condition lets it turn: all of them have to be true."""
    condition = dataflow.module.computations[called(loop, "condition")]
    limits: list[int | None] = []
    parts = [(Value(condition.name, condition.root.name), True)]
    for at, is_true in parts:
        part = dataflow.instruction(at)
        operands = [Value(at.computation, name) for name in part.operands]
        if part.opcode == "compare":
            direction = part.op.comparison_direction
            direction = direction if is_true else _OPPOSITE.get(direction, "")
            limits.append(_turns_below(dataflow, computation, loop, direction, operands))
        elif part.opcode == ("and" if is_true else "or"):
            parts += [(operand, is_true) for operand in operands]
        elif part.opcode == "not":
            parts.append((operands[0], not is_true))
        elif (source := dataflow.same(at, _SAME_NUMBER)) is not None:
            parts.append((source, is_true))
        else:
            limits.append(None)
        if len(parts) > _MOST_TERMS:
            return []
    return limits


def _turns_below(
    dataflow: Dataflow, computation: str, loop: Instruction, direction: str, compared: Sequence[Value]
) -> int | None:
    """Return how often a loop turns until a comparison is false; None if it is not one of a counter."""
    if direction not in _FLIPPED:
        return None
    body, condition = (dataflow.module.computations[called(loop, role)] for role in ("body", "condition"))
    counter, limit = (_sum_of(dataflow, value) for value in compared)
    if counter is not None and counter.value is None:
        direction, counter, limit = _FLIPPED[direction], limit, counter
    if counter is None or counter.value is None or limit is None or limit.value is not None:
        return None
    element = counter.value.element
    start = _sum_of(dataflow, Value(computation, loop.operands[0], element))
    after = _sum_of(dataflow, Value(body.name, body.root.name, element))
    is_counter = counter.value == Value(condition.name, condition.parameters[0].name, element)
    is_counted = after is not None and after.value == Value(body.name, body.parameters[0].name, element)
    if not (is_counter and is_counted) or after is None or start is None or start.value is not None:
        return None
    return _turns(direction, start.offset + counter.offset, after.offset, limit.offset)


def _sum_of(dataflow: Dataflow, scalar: Value) -> _Sum | None:
    """Return the sum that a scalar is; None if it is computed from several values or in another way."""
    computed: Value | None = None
    offset = 0
    terms = [(scalar, 1)]
    for value, sign in terms:
        instruction = dataflow.instruction(value)
        if instruction.opcode in ("add", "subtract"):
            first, second = (Value(value.computation, name) for name in instruction.operands)
            terms += [(first, sign), (second, sign if instruction.opcode == "add" else -sign)]
        elif (number := instruction.integer) is not None:
            offset += sign * number
        elif (source := dataflow.same(value, _SAME_NUMBER)) is not None:
            terms.append((source, sign))
        elif computed is None and sign > 0:
            computed = value
        else:
            return None
        if len(terms) > _MOST_TERMS:
            return None
    return _Sum(computed, offset)


def _turns(direction: str, start: int, step: int, limit: int) -> int | None:
    """Return how often a counter passes the condition; None if it never stops, or never changes.

    >>> _turns("LT", 0, 1, 4), _turns("LE", 0, 3, 9), _turns("GT", 3, -1, 0), _turns("LT", 5, 1, 5)
    (4, 4, 3, 0)
    """
    if not step:
        return None
    if direction in ("GT", "GE"):
        start, step, limit = -start, -step, -limit
    distance = limit - start + (direction in ("LE", "GE"))
    if direction == "NE":
        is_reached = distance == 0 or (distance % step == 0 and distance // step > 0)
        return distance // step if is_reached else None
    if distance <= 0:
        return 0
    return -(-distance // step) if step > 0 else None


_MOST_RUNS = 64
"""Number of different ways through loops and branches to one computation, above which it is unknown."""


class Enclosure(NamedTuple):
    """A loop of unknown length, or a branch of a conditional, around a computation."""

    computation: str
    """Computation that has the loop or the conditional."""

    name: str
    """Name of its instruction."""

    branch: int | None
    """Number of the branch of a conditional; None for a loop."""


Within = tuple[Enclosure, ...]
"""Loops of unknown length and branches around a computation, outermost first."""


_Runs = Mapping[Within, int] | None


class Executions(NamedTuple):
    """Executions in one call of the program, on one device."""

    runs: _Runs
    """Number of executions in each iteration of the loops, if the branches are taken; by ``()``, of those
    outside of both. Empty for none; None if it is not known where the computation runs."""

    @property
    def times(self) -> int | None:
        """Exact number; None if it is not known: below a loop of unknown length, or a conditional."""
        is_exact = self.runs is not None and not any(self.runs)
        return sum(self.runs.values()) if self.runs is not None and is_exact else None

    @property
    def is_in_branch(self) -> bool:
        """Whether a branch of a conditional is around it on each way."""
        ways = self.runs or ()
        return bool(ways) and all(any(one.branch is not None for one in way) for way in ways)

    @property
    def at_most(self) -> int | None:
        """Largest number, where only that is known: in a branch of a conditional. Else None."""
        if self.runs is None or self.times is not None or any(map(loops_of, self.runs)):
            return None
        return sum(self.runs.values())


def loops_of(within: Within) -> Within:
    """Return what is around the iterations of the innermost loop of unknown length; empty without one."""
    last = max((place for place, enclosure in enumerate(within) if enclosure.branch is None), default=-1)
    return within[: last + 1]


def executions(module: Module) -> Mapping[str, Executions]:
    """Return the number of executions of each computation by name.

    The body of a loop runs as often as the loop turns, its condition once more. A branch of a conditional may
    run each time, or never. Computations of single elements, such as the ``to_apply`` of a reduce, count as
    not executed.
    """
    dataflow = module.once(Dataflow)
    totals: dict[str, _Runs] = {name: {} for name in module.computations}
    totals[module.entry] = {(): 1}
    for name, computation in reversed([*module.computations.items()]):  # callers before what they call
        for instruction in computation.where(calling):
            for place, call in enumerate(instruction.calls):
                inner: _Runs = {(): 1}
                if call.role == "element":
                    continue
                if call.role == "unknown":
                    inner = None
                elif call.role == "branch":
                    inner = {(Enclosure(name, instruction.name, place),): 1}
                elif call.role in ("body", "condition"):
                    turns = _trip_count(dataflow, name, instruction)
                    around = Enclosure(name, instruction.name, None)
                    inner = {(around,): 1} if turns is None else {(): turns}
                    inner = _sum(inner, {(): 1}) if call.role == "condition" else inner
                totals[call.name] = _sum(totals[call.name], _product(totals[name], inner))
    return {name: Executions(runs) for name, runs in totals.items()}


def _sum(first: _Runs, second: _Runs) -> _Runs:
    if first is None or second is None:
        return None
    total = {within: first.get(within, 0) + second.get(within, 0) for within in {**first, **second}}
    return total if len(total) <= _MOST_RUNS else None


def _product(outer: _Runs, inner: _Runs) -> _Runs:
    if outer == {} or inner == {(): 0}:
        return {}
    if outer is None or inner is None:
        return None
    return {
        # An iteration of a loop is one of any of its executions.
        around + within: inner_times if loops_of(within) else times * inner_times
        for around, times in outer.items()
        for within, inner_times in inner.items()
    }
