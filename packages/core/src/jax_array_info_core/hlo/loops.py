"""Trip counts of loops, and executions of each computation."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from .dataflow import Dataflow, Value
from .module import Computation, Instruction, Module, Passing, called, calling, operations

# More steps than there are between a counter and its loop, or loops in loops.
_DEEPEST = 100

# A fusion adds a counter and its step, which are both its inputs.
_MOST_INPUTS = 4

_SAME_NUMBER = operations(Passing.NUMBER)
_CALLS = ("fusion", "call")
_FLIPPED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}


class Input(NamedTuple):
    """A scalar that a computation gets from its caller."""

    parameter: int
    """Number of the parameter."""

    element: int | None
    """Index of the element of a parameter that is a tuple."""


class Linear(NamedTuple):
    """A scalar that is a sum of inputs and a constant."""

    inputs: tuple[Input, ...]
    offset: int


class Comparison(NamedTuple):
    """The condition of a loop."""

    direction: str
    """``LT``, ``LE``, ``GT``, ``GE`` or ``NE``."""

    left: Linear
    right: Linear


class TripCounts:
    """Numbers of turns of the loops of a program.

    CPU and GPU print them. TPU does not: there they follow from the start of the counter, its step in the
    body and the limit in the condition.
    """

    def __init__(self, module: Module) -> None:
        self._computations: Mapping[str, Computation] = module.computations
        self._dataflow = module.once(Dataflow)
        self._known: dict[tuple[str, str, int | None], Linear | None] = {}

    def of(self, computation: str, loop: Instruction) -> int | None:
        """Return the number of turns of a loop in a computation; None if it depends on data."""
        if (noted := loop.trip_count) is not None:
            return noted
        condition, body = called(loop, "condition"), called(loop, "body")
        comparison = self._comparison(condition, 0) if condition else None
        if body is None or comparison is None or not loop.operands:
            return None
        direction, counter, limit = comparison
        if self._step(body, counter, 0) == 0:
            direction, counter, limit = _FLIPPED[direction], limit, counter
        step = self._step(body, counter, 0)
        if step == 0 or self._step(body, limit, 0) != 0:
            return None
        start, end = (self._before(computation, loop, one) for one in (counter, limit))
        if step is None or start is None or end is None:
            return None
        return _turns(direction, start, step, end)

    def _comparison(self, name: str, depth: int) -> Comparison | None:
        """Return the comparison that is the result of a computation, of inputs of this computation."""
        computation = self._computations.get(name)
        root = computation.root if computation else None
        if computation is None or root is None or depth > _DEEPEST:
            return None
        for _ in range(_DEEPEST):
            if root.opcode not in _SAME_NUMBER or not root.operands:
                break
            root = computation.by_name.get(root.operands[0], root)
        if root.opcode == "compare" and len(root.operands) == 2:
            left, right = (self._linear(name, one, None, depth) for one in root.operands)
            direction = root.op.comparison_direction
        elif root.opcode in _CALLS:
            inner = self._comparison(called(root, "callee") or "", depth + 1)
            if inner is None:
                return None
            direction = inner.direction
            left, right = (self._outside(name, root, one, depth) for one in (inner.left, inner.right))
        else:
            return None
        return Comparison(direction, left, right) if left and right and direction in _FLIPPED else None

    def _step(self, body: str, value: Linear, depth: int) -> int | None:
        """Return what each turn of a loop adds to a value: 0 for a constant; None if it varies."""
        if not value.inputs:
            return 0
        root = self._computations[body].root if body in self._computations else None
        if root is None or len(value.inputs) > 1:
            return None
        after = self._linear(body, root.name, value.inputs[0].element, depth)
        return after.offset if after is not None and after.inputs == value.inputs else None

    def _before(self, computation: str, loop: Instruction, value: Linear) -> int | None:
        """Return the number that a value in a loop has before the first turn."""
        if not value.inputs:
            return value.offset
        number = self._number(computation, loop.operands[0], value.inputs[0].element)
        return None if number is None else number + value.offset

    def _number(self, computation: str, name: str, element: int | None) -> int | None:
        """Return the number that an instruction has in each execution, from the callers if it is an input."""
        offset = 0
        for _ in range(_DEEPEST):
            value = self._linear(computation, name, element, 0)
            if value is None or len(value.inputs) > 1:
                return None
            offset += value.offset
            if not value.inputs:
                return offset
            outside = self._dataflow.outside(
                Value(computation, name, value.inputs[0].element), value.inputs[0].parameter
            )
            if len(outside) != 1:
                return None
            computation, name, element = outside[0]
        return None

    def _linear(self, computation: str, name: str, element: int | None, depth: int) -> Linear | None:
        """Return the value of an instruction, or of an element of its tuple, by inputs of the computation."""
        key = (computation, name, element)
        if key not in self._known:
            self._known[key] = None  # the value of a circle of instructions
            if depth < _DEEPEST:
                self._known[key] = self._new_linear(computation, name, element, depth + 1)
        return self._known[key]

    def _new_linear(self, computation: str, name: str, element: int | None, depth: int) -> Linear | None:
        instruction = self._computations[computation].by_name.get(name)
        if instruction is None:
            return None
        opcode, operands = instruction.opcode, instruction.operands
        if opcode == "parameter":
            return Linear((Input(instruction.parameter_number, element),), 0)
        if opcode == "constant":
            number = instruction.integer
            return None if number is None else Linear((), number)
        if opcode == "tuple":
            if element is None or element >= len(operands):
                return None
            return self._linear(computation, operands[element], None, depth)
        if opcode == "get-tuple-element":
            place = instruction.element
            is_scalar = operands and element is None and place is not None
            return self._linear(computation, operands[0], place, depth) if is_scalar else None
        if opcode in _SAME_NUMBER and operands:
            return self._linear(computation, operands[0], element, depth)
        if opcode in ("add", "subtract") and len(operands) == 2:
            left, right = (self._linear(computation, one, None, depth) for one in operands)
            return _combined(left, right, opcode) if left and right else None
        if opcode in _CALLS:
            callee = self._computations.get(called(instruction, "callee") or "")
            root = callee.root if callee else None
            inner = self._linear(callee.name, root.name, element, depth) if callee and root else None
            return self._outside(computation, instruction, inner, depth) if inner else None
        if opcode == "while" and operands:
            is_kept = self._dataflow.is_invariant(instruction, element)
            return self._linear(computation, operands[0], element, depth) if is_kept else None
        return None

    def _outside(
        self, computation: str, instruction: Instruction, value: Linear, depth: int
    ) -> Linear | None:
        """Return a value in a called computation by inputs of the calling one."""
        total: Linear | None = Linear((), value.offset)
        for number, element in value.inputs:
            if total is None or number >= len(instruction.operands):
                return None
            operand = self._linear(computation, instruction.operands[number], element, depth)
            total = _combined(total, operand, "add") if operand else None
        return total


def _combined(left: Linear, right: Linear, opcode: str) -> Linear | None:
    """Return a sum or a difference; None if it is not a sum of a few inputs and a constant."""
    if opcode == "subtract":
        return None if right.inputs else Linear(left.inputs, left.offset - right.offset)
    inputs = left.inputs + right.inputs
    return Linear(inputs, left.offset + right.offset) if len(inputs) <= _MOST_INPUTS else None


def _turns(direction: str, start: int, step: int, limit: int) -> int | None:
    """Return how often a counter passes the condition; None if it never stops.

    >>> _turns("LT", 0, 1, 4), _turns("LE", 0, 3, 9), _turns("GT", 3, -1, 0), _turns("LT", 5, 1, 5)
    (4, 4, 3, 0)
    """
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
    def at_most(self) -> int | None:
        """Largest number, where only that is known: in a branch of a conditional. Else None."""
        if self.runs is None or self.times is not None or any(map(loops_of, self.runs)):
            return None
        return sum(self.runs.values())


def loops_of(within: Within) -> Within:
    """Return what is around the iterations of the innermost loop of unknown length; empty without one."""
    last = max((place for place, one in enumerate(within) if one.branch is None), default=-1)
    return within[: last + 1]


def executions(module: Module) -> Mapping[str, Executions]:
    """Return the number of executions of each computation by name.

    The body of a loop runs as often as the loop turns, its condition once more. A branch of a conditional may
    run each time, or never. Computations of single elements, such as the ``to_apply`` of a reduce, count as
    not executed. Those that nothing names are unknown: the line of their caller could not be read.
    """
    callers: dict[str, list[tuple[str, _Runs]]] = {name: [] for name in module.computations}
    elementwise: set[str] = set()
    trips = TripCounts(module)
    for name, computation in module.computations.items():
        for instruction in computation.where(calling):
            branch = 0
            for call in instruction.calls:
                each: _Runs = {(): 1}
                if call.role in ("body", "condition"):
                    turns = trips.of(name, instruction)
                    extra = call.role == "condition"
                    if turns is not None:
                        each = {(): turns + extra}
                    else:
                        each = {(Enclosure(name, instruction.name, None),): 1, **({(): 1} if extra else {})}
                elif call.role == "branch":
                    each = {(Enclosure(name, instruction.name, branch),): 1}
                    branch += 1
                elif call.role == "element":
                    elementwise.add(call.name)
                    continue
                elif call.role == "unknown":
                    each = None
                if call.name in callers:
                    callers[call.name].append((name, each))
    try:
        graph = {name: [caller for caller, _ in calls] for name, calls in callers.items()}
        order = tuple(TopologicalSorter(graph).static_order())
    except CycleError:
        # No program of XLA calls itself: the text is damaged.
        return dict.fromkeys(module.computations, Executions(None))
    found: dict[str, _Runs] = {}
    for name in order:
        is_lost = not callers[name] and name != module.entry and name not in elementwise
        total: _Runs = None if is_lost else {(): 1} if name == module.entry else {}
        for caller, each in callers[name]:
            total = _sum(total, _product(found[caller], each))
        found[name] = total
    return {name: Executions(found[name]) for name in module.computations}


def _sum(
    left: Mapping[Within, int] | None, right: Mapping[Within, int] | None
) -> Mapping[Within, int] | None:
    if left is None or right is None:
        return None
    total = {within: left.get(within, 0) + right.get(within, 0) for within in {**left, **right}}
    return total if len(total) <= _MOST_RUNS else None


def _product(outer: _Runs, inner: _Runs) -> _Runs:
    if outer == {} or inner == {(): 0}:
        return {}
    if outer is None or inner is None:
        return None
    runs = {
        # An iteration of a loop is one of any of its executions.
        around + within: each if loops_of(within) else times * each
        for around, times in outer.items()
        for within, each in inner.items()
    }
    return runs if max(map(len, runs)) <= _DEEPEST else None
