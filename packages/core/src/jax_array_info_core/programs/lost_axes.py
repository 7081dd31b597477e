"""Outputs and optimizer state with fewer mesh axes than the arguments that they belong to."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..arrays.origins.origins import UserLines
from ..base.grouping import by_key
from ..base.quantities import known_sum
from ..facts.reports.origin import Origin
from ..facts.reports.program_values import Constraint, ProgramValue
from ..trees.checks.memory import moments_among
from ..xla.hlo.collectives import COLLECTIVES, Movement
from ..xla.hlo.dataflow import REDUCTIONS, Dataflow, Value
from ..xla.hlo.loops import executions
from ..xla.hlo.module import Instruction, Module
from .collectives import WHOLE, computes
from .donations import common_end
from .updates import Interface, alike_arguments, by_kind, sharded_over

_TRANSPOSED = "transpose("
"""JAX's name of a transposed function, in the names of operations: ``jit(f)/transpose(jvp())/mul``."""


def with_lost_axes(
    outputs: Sequence[ProgramValue],
    arguments: Sequence[ProgramValue],
    module: Module,
    constrained: Sequence[bool],
    donated: Sequence[bool],
    name: str,
) -> tuple[ProgramValue, ...]:
    """Return the outputs, each with the argument that it resembles and the axes that it lacks.

    An output that transposed operations compute is the gradient or an update of an argument with its shape
    and dtype. Any other output resembles an argument from which it is computed, with its shape and dtype: one
    with its last key, or the state of a step, as of ``_State``. Among arguments that are sharded differently,
    the end of the path decides, unless it is an index or two are alike. An output whose sharding was
    requested, also by a constraint, has it on purpose.

    Args:
        outputs: Outputs of the program.
        arguments: Arguments of the program.
        module: The compiled program.
        constrained: Whether each output is the value of a sharding constraint.
        donated: Whether each argument is donated.
        name: Name of the function.
    """
    state = _State(outputs, arguments, donated, name)
    flow = Flow(module, outputs, arguments)
    by_type = by_key(
        (_type(argument), number) for number, argument in enumerate(arguments) if not argument.is_pruned
    )
    seen: Counter[Any] = Counter()
    compared = []
    for place, output in enumerate(outputs):
        kind = _type(output)
        used, alike = sharded_over(output.got), by_type.get(kind, ())
        is_free = output.asked is None and output.is_asked_known and not constrained[place]
        if is_free and used is not None and any(used < _wanted(arguments[number]) for number in alike):
            is_gradient, reached = flow.of(place)
            if not is_gradient:
                alike = [
                    number
                    for number in alike
                    if number in reached
                    and (_have_same_end(arguments[number], output) or state.is_next(place, number))
                ]
            like = _most_alike(output, [arguments[number] for number in alike], seen[kind])
            if like is not None and used < _wanted(like):
                output = _compared(output, like, used)
            seen[kind] += 1
        compared.append(output)
    return tuple(compared)


class _Leaf(NamedTuple):
    """An argument as a leaf of a tree."""

    path: str
    shape: tuple[Any, ...]
    number: int


def with_moments(arguments: Sequence[ProgramValue]) -> tuple[ProgramValue, ...]:
    """Return the arguments, each moment of an optimizer with its parameter and the axes that it lacks.

    Only moments count that lack axes of their parameter and have no others.
    """
    changed = list(arguments)
    for number, of in moments_of_arguments(arguments).items():
        row, parameter = arguments[number], arguments[of]
        used = sharded_over(row.got)
        is_asked = row.asked is not None and parameter.asked is not None
        if is_asked and used is not None and used < _wanted(parameter):
            changed[number] = _compared(row, parameter, used)
    return tuple(changed)


def moments_of_arguments(arguments: Sequence[ProgramValue]) -> dict[int, int]:
    """Return the parameter of each moment of an optimizer, both as numbers of arguments.

    The first key of a parameter can be ``params`` below the name of its argument, too.
    """
    names = {argument.path.partition("/")[0] for argument in arguments}
    roots = {name for name in names if any(f"{one.path}/".startswith(f"{name}/params/") for one in arguments)}
    leaves = [
        _Leaf(
            argument.path.partition("/")[2] if argument.path.partition("/")[0] in roots else argument.path,
            argument.shape,
            number,
        )
        for number, argument in enumerate(arguments)
        if not argument.is_pruned
    ]
    return {moment.row.number: moment.parameter.number for moment in moments_among(leaves)}


def with_gradients(
    constraints: Sequence[Constraint], arguments: Sequence[ProgramValue]
) -> tuple[Constraint, ...]:
    """Return the constraints, those of gradients with the axes that they lack.

    Each argument with the shape and dtype of the gradient, its parameter among them, is sharded over all mesh
    axes of the gradient and over more.
    """
    by_type = by_key((_type(argument), _wanted(argument)) for argument in arguments if not argument.is_pruned)

    def lost(constraint: Constraint) -> tuple[str, ...]:
        used, mesh = sharded_over(constraint.asked), constraint.asked.mesh
        alike = by_type.get(_type(constraint), ())
        if used is None or mesh is None or not alike or not all(used < wanted for wanted in alike):
            return ()
        return tuple(name for name in mesh.names if name in set.intersection(*alike) - used)

    return tuple(
        replace(constraint, lost_axes=lost(constraint)) if constraint.is_gradient else constraint
        for constraint in constraints
    )


def with_lines(
    interface: Interface, module: Module, moved: Iterable[Movement], lines: UserLines
) -> dict[str, tuple[ProgramValue, ...]]:
    """Return the arguments and outputs with the lines where they lose axes, and the bytes that gather them.

    The line of a moment among the arguments is that of the output in its place.

    Args:
        interface: Arguments and outputs of the program.
        module: The compiled program.
        moved: What its collectives move.
        lines: The search for the user's line.
    """
    arguments, outputs = interface.arguments, interface.outputs
    if not any(value.lost_axes or value.replaces for value in (*arguments, *outputs)):
        return {}
    flow, search = Flow(module, outputs, arguments), _Losses(module, moved, lines)
    kinds = by_kind(enumerate(arguments))
    near = [alike_arguments(output, kinds, arguments) for output in outputs]
    places = {numbers[0]: place for place, numbers in enumerate(near) if len(numbers) == 1}

    def with_line(value: ProgramValue, place: int | None) -> ProgramValue:
        if place is None or not (value.lost_axes or value.replaces):
            return value
        found = search.of(flow.start(place))
        return replace(value, **(found if value.lost_axes else {"lost_at": found["lost_at"]}))

    return {
        "arguments": tuple(with_line(value, places.get(number)) for number, value in enumerate(arguments)),
        "outputs": tuple(with_line(value, place) for place, value in enumerate(outputs)),
    }


class _Losses:
    """Searches for the collectives and the operations after which outputs lack mesh axes."""

    def __init__(self, module: Module, moved: Iterable[Movement], lines: UserLines) -> None:
        self._dataflow, self._lines = module.once(Dataflow), lines
        self._executions = module.once(executions)
        self._moved = by_key(((move.value.computation, move.instruction.name), move) for move in moved)

    def of(self, output: Value) -> dict[str, Any]:
        """Return the fields of a value with the line and the bytes of what makes an output whole.

        That is the nearest collective with a result of its size, before operations on single elements, and
        those that gather its operand. The line is that of a sum over devices, else of the operation that
        needs what is gathered or computes it.
        """
        size = math.prod(self._dataflow.instruction(output).shapes[output.element or 0].dims)

        def is_end(instruction: Instruction) -> bool:
            is_elementwise = {math.prod(shape.dims) for shape in instruction.shapes} == {size}
            is_whole = instruction.opcode in WHOLE | REDUCTIONS or not is_elementwise
            return instruction.opcode in COLLECTIVES or (computes(instruction) and is_whole)

        before = [*self._dataflow.walk(output, stops=is_end)]
        makers = [instruction for _, instruction in before if computes(instruction)]
        for at, instruction in before:
            moved = self._moved.get((at.computation, instruction.name), ())
            if any(math.prod(move.shape.dims) == size for move in moved):
                near = [instruction, *makers] if computes(instruction) else [*makers, instruction]
                return {"lost_at": self._line(near), "lost_sent_nbytes": self._gathered(at)}
        return {"lost_at": self._line(makers)}

    def _gathered(self, value: Value) -> int | None:
        """Return the bytes that a device sends to gather a value, after what computes it."""
        moved = (
            (move, self._executions[at.computation].times)
            for at, instruction in self._dataflow.walk(value, stops=computes)
            if not computes(instruction)
            for move in self._moved.get((at.computation, instruction.name), ())
        )
        return known_sum(None if times is None else move.sent_nbytes * times for move, times in moved)

    def _line(self, instructions: Iterable[Instruction]) -> Origin | None:
        nearest = self._lines.nearest(instructions)
        return None if nearest is None else self._lines.origin(nearest.frames)


_STEPS = frozenset({"advance", "evolve", "iterate", "iteration", "step", "steps", "timestep", "update"})
"""Words in the names of functions that are called on their own results."""


class _State:
    """Arrays that a step gets and returns, such as the state of a simulation, by shape and dtype alone.

    The argument and the output are the only ones of their type. Either the argument is donated, or the
    function has the name of a step, and they are its first argument and its first output.
    """

    def __init__(
        self,
        outputs: Sequence[ProgramValue],
        arguments: Sequence[ProgramValue],
        donated: Sequence[bool],
        name: str,
    ) -> None:
        self._outputs, self._arguments, self._donated = outputs, arguments, donated
        self._given = Counter(map(_type, arguments))
        self._returned = Counter(map(_type, outputs))
        self._is_step = not _STEPS.isdisjoint(re.split(r"[\W_]", name.lower()))

    def is_next(self, place: int, number: int) -> bool:
        """Return whether an output is the state after an argument."""
        output, argument = self._outputs[place], self._arguments[number]
        if self._given[_type(argument)] != 1 or self._returned[_type(output)] != 1:
            return False
        is_first = number == place == 0 and "/" not in argument.path
        return self._donated[number] or (is_first and self._is_step)


class Flow:
    """Arguments and outputs as values of a program, and searches for what computes the outputs."""

    def __init__(
        self, module: Module, outputs: Sequence[ProgramValue], arguments: Sequence[ProgramValue]
    ) -> None:
        self._dataflow = module.once(Dataflow)
        self._entry = module.computations[module.entry]
        self._numbers = [number for number, argument in enumerate(arguments) if not argument.is_pruned]
        self._places = {number: place for place, number in enumerate(self._numbers)}
        parameters = sum(len(parameter.shapes) for parameter in module.parameters())
        # Tokens of ordered effects are the first parameters, and the first outputs.
        self._first = max(parameters - len(self._numbers), 0)
        self._first_output = max(len(self._entry.root.shapes) - len(outputs), 0)

    def start(self, place: int) -> Value:
        """Return an output as a value of the program."""
        root = self._entry.root
        return Value(self._entry.name, root.name, self._first_output + place if root.groups else None)

    def argument(self, number: int) -> Value | None:
        """Return an argument as a value of the program; None if it is pruned."""
        if number not in self._places:
            return None
        place, parameters = self._first + self._places[number], self._entry.parameters
        is_tuple = len(parameters) == 1 and bool(parameters[0].groups)
        return Value(self._entry.name, parameters[0 if is_tuple else place].name, place if is_tuple else None)

    def number(self, value: Value) -> int | None:
        """Return the number of the argument that a value of the program is; None for other values."""
        instruction = self._dataflow.instruction(value)
        if instruction.opcode != "parameter" or value.computation != self._entry.name:
            return None
        place = instruction.parameter_number + (value.element or 0) - self._first
        return self._numbers[place] if 0 <= place < len(self._numbers) else None

    def of(self, place: int) -> tuple[bool, set[int]]:
        """Return whether a transposed operation computes an output, and the arguments that it depends on.

        A later sum, such as that of a norm, need not have the shape of a parameter: False, and all arguments.
        """
        start, reached = self.start(place), set[int]()
        if any(_is_transposed(maker) for _, maker in self._dataflow.walk(start, stops=_is_sum)):
            return True, reached
        for at, instruction in self._dataflow.walk(start):
            if _is_transposed(instruction):
                return False, set(self._numbers)
            if (number := self.number(at)) is not None:
                reached.add(number)
        return False, reached


def _is_transposed(instruction: Instruction) -> bool:
    return _TRANSPOSED in (instruction.op_name or "")


def _is_sum(instruction: Instruction) -> bool:
    """Return whether an instruction reduces an array; False if it has no name, as where XLA splits one."""
    return (
        instruction.opcode in ("reduce", "reduce-window")
        and bool(instruction.op_name)
        and not _is_transposed(instruction)
    )


def _most_alike(output: ProgramValue, candidates: Sequence[ProgramValue], rank: int) -> ProgramValue | None:
    """Return the argument that an output resembles; None if it is ambiguous.

    Args:
        output: The output.
        candidates: The arguments that it can resemble.
        rank: Number of such outputs before it, for paths without a common end.
    """
    ends = [common_end(candidate.path, output.path) for candidate in candidates]
    best = [candidate for candidate, end in zip(candidates, ends, strict=True) if end == max(ends)]
    if len({frozenset(_wanted(candidate)) for candidate in candidates}) > 1 and (
        not max(ends) or output.path.rpartition("/")[2].isdecimal()
    ):
        return None
    wanted = {frozenset(_wanted(candidate)) for candidate in best}
    return best[min(rank, len(best) - 1)] if len(wanted) == 1 else None


def _compared(output: ProgramValue, like: ProgramValue, used: set[str]) -> ProgramValue:
    """Return an output with the axes that it lacks, compared with an argument."""
    assert like.got is not None
    assert like.got.mesh is not None
    lost = tuple(name for name in like.got.mesh.names if name in _wanted(like) - used)
    return replace(output, like=like.path, lost_axes=lost, reason=f"{like.path} is {like.got.spec}")


def _wanted(argument: ProgramValue) -> set[str]:
    return sharded_over(argument.got) or set()


def _have_same_end(argument: ProgramValue, output: ProgramValue) -> bool:
    return "/" in argument.path and "/" in output.path and common_end(argument.path, output.path) > 0


def _type(value: ProgramValue | Constraint) -> tuple[Any, ...]:
    return value.shape, value.dtype
