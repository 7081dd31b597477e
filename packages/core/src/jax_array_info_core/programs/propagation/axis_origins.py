"""Origins of the mesh axes of values, and the way from there."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ...arrays.origins.origins import UserLines
from ...facts.reports.origin import Origin, SourceLine
from ...facts.reports.propagation import AxisOrigin, OriginKind
from .graph import Axes, Graph, Operation, Place, Value, has_axis, remembered
from .ways import MOST_STEPS

OWN = ("sharding_constraint", "reshard", "mesh_cast")
"""Names of the constraints of the user. With explicit axes, JAX adds others after each operation."""
MOST_VIA = 10
"""Number of lines between a value and the origin of a mesh axis."""
_Visited = set[tuple[Operation, tuple[int, ...], int]]
"""Operations, factors of a dimension, and the ``id`` of an origin."""


class Named(NamedTuple):
    """An argument or an output of the program."""

    path: str | None = None
    """Path; None for tokens and hoisted constants."""

    requested: Axes = ()
    """Mesh axes that the user requested."""


@dataclass(frozen=True, eq=False)
class Propagated:
    """A program after the propagation, as the user knows it."""

    graph: Graph
    """The program."""

    arguments: Sequence[Named]
    """Arguments of the program, by their number."""

    outputs: Sequence[Named]
    """Outputs of the program, by their number."""

    lines: UserLines
    """The search for the user's line."""

    origins: dict[tuple[Value, str], AxisOrigin] = field(default_factory=dict)
    """Origins that are known by now, by the value and the mesh axis."""

    fields: dict[Hashable, dict[str, Any]] = field(default_factory=dict)
    """Fields of the values that are known by now: those of equal ones are one object."""

    results: dict[Any, Any] = field(default_factory=dict)
    """The functions that keep their results for this program."""

    def path(self, value: Value) -> str | None:
        """Return the path of an argument; None for other values."""
        return None if value.argument is None else self.arguments[value.argument].path


class Step(NamedTuple):
    """The last step of a mesh axis to a value."""

    place: Place | None
    """The operation; None at the origin, and where a value enters or leaves a region."""

    before: tuple[int, ...]
    """Numbers of the lines between the origin and the value before, nearest first."""

    lines: tuple[int, ...]
    """``before``, and the line of the operation."""


@remembered
def origins_of(program: Propagated, value: Value) -> tuple[AxisOrigin, ...]:
    """Return the origin of each mesh axis of a value, with the way. Equal origins are one object."""
    steps, origins = _steps(program)[0], []
    for name in (name for names in value.axes for name in names):
        origin, step = origin_of(program, value, name), steps.get((value, name))
        if step is not None:
            is_last = value.definer is not None and step.place is value.definer.place
            origin = _with_way(program, origin, step.before if is_last else step.lines)
        origins.append(origin)
    return tuple(origins)


@remembered
def _with_way(program: Propagated, origin: AxisOrigin, way: tuple[int, ...]) -> AxisOrigin:
    lines = _steps(program)[1]
    return replace(origin, via=tuple(lines[number] for number in way))


@remembered
def _steps(program: Propagated) -> tuple[dict[tuple[Value, str], Step], list[SourceLine]]:
    """Return the last step to each mesh axis of a value on a way from its origin, and lines by number."""
    numbers: dict[SourceLine, int] = {}

    @functools.cache
    def with_line(place: Place, before: tuple[int, ...]) -> tuple[int, ...]:
        """Return the numbers of lines with that of an operation in front, each once."""
        origin = line_of(program, place)
        if origin is None:
            return before
        line = SourceLine(file=origin.file, line=origin.line, function=origin.function, cell=origin.cell)
        first = numbers.setdefault(line, len(numbers))
        return (first, *(number for number in before if number != first))[:MOST_VIA]

    waiting = deque(_at_origins(program))
    visited: _Visited = set()
    steps = {start: Step(None, (), ()) for start in waiting}
    while waiting:
        value, name = waiting.popleft()
        origin, before = origin_of(program, value, name), steps[value, name].lines
        for other, its, place in _neighbors(program.graph, value, name, origin, visited):
            if (other, its) not in steps and _is_same(origin_of(program, other, its), origin):
                lines = before if place is None else with_line(place, before)
                steps[other, its] = Step(place, before, lines)
                waiting.append((other, its))
    return steps, [*numbers]


def _at_origins(program: Propagated) -> Iterator[tuple[Value, str]]:
    """Yield the arguments, outputs and constraints that are the origin of one of their own mesh axes."""
    for value in program.graph.values:
        for name in (name for names in value.axes for name in names):
            kind, definer = origin_of(program, value, name).kind, value.definer
            is_constrained = definer is not None and definer.origin is not None
            if (
                (kind == "argument" and value.argument is not None)
                or (kind == "output" and value.returned is not None)
                or (kind in ("constraint", "shard_map") and is_constrained)
            ):
                yield value, name


def _neighbors(
    graph: Graph, value: Value, name: str, origin: AxisOrigin, visited: _Visited
) -> Iterator[tuple[Value, str, Place | None]]:
    """Yield the values that a mesh axis of a value propagates to, with the operation between.

    Args:
        graph: The program.
        value: The value.
        name: Its mesh axis.
        origin: The origin.
        visited: Operations, factors and origins for which all were yielded. More are added.
    """
    part = graph.part(name)
    for alike in (value.outer, *graph.inside.get(value, ())):
        for its in (its for names in alike.axes for its in names) if alike is not None else ():
            if its == name or graph.part(its).overlaps(part):
                yield alike, its, None
    number = next(number for number, names in enumerate(value.axes) if name in names)
    for operation, place in graph.places.get(value, ()):
        rule = operation.rule
        if rule is None:
            continue
        key = operation, rule.tensors[place][number], id(origin)
        if key in visited:
            continue
        visited.add(key)
        for tensor, dim in rule.linked.get((place, number), ()):
            other = operation.tensors[tensor]
            for its in other.axes[dim] if other is not value else ():
                if its == name or graph.part(its).overlaps(part):
                    yield other, its, operation.place


def origin_of(program: Propagated, value: Value, name: str) -> AxisOrigin:
    """Return the origin of a mesh axis of a value, without the way."""
    key = value, name
    if key not in program.origins:
        program.origins[key] = _followed(program, value, name) or _nearest(program, value, name)
    return program.origins[key]


def _followed(program: Propagated, value: Value, name: str) -> AxisOrigin | None:
    """Return the origin along the values that have the axis from each other; None if that ends."""
    before: Value | None = value
    seen: set[tuple[Value, str]] = set()
    origin = None
    while origin is None and before is not None and (before, name) not in seen and len(seen) < MOST_STEPS:
        origin = program.origins.get((before, name))
        if origin is None:
            seen.add((before, name))
            named = _named(program, before, name)
            origin, before = (named, None) if isinstance(named, AxisOrigin) else (None, named)
    if origin is not None:
        program.origins.update(dict.fromkeys(seen, origin))
    return origin


def _nearest(program: Propagated, value: Value, name: str) -> AxisOrigin:
    """Return the nearest origin in any direction; else the constraint that Shardy names, if there is one.

    With explicit axes, JAX adds constraints, also inside loops and to values that it makes itself.
    """
    graph = program.graph
    waiting, seen = deque([(value, name)]), {(value, name)}
    unknown, visited = _made(program, name, None), _Visited()
    while waiting and len(seen) < MOST_STEPS:
        near, its = waiting.popleft()
        origin = _followed(program, near, its)
        if origin is not None:
            return _made(program, name, origin.kind, origin.path, origin.origin)
        for other, axis, _ in _neighbors(graph, near, its, unknown, visited):
            if (other, axis) not in seen:
                seen.add((other, axis))
                waiting.append((other, axis))
    operation = _operation(graph, _text(graph, value, name))
    if operation is None or not has_axis(graph, operation.requested, name):
        return unknown
    kind: OriginKind = "shard_map" if _is_of_shard_map(operation) else "constraint"
    return _made(program, name, kind, None, line_of(program, operation.place))


def _text(graph: Graph, value: Value, name: str) -> str:
    """Return the origin as Shardy writes it; empty without one."""
    named = (text for other, text in value.origins.items() if has_axis(graph, ((other,),), name))
    text = value.origins.get(name) or next(named, "")
    if text == "self":
        return "" if value.definer is None else value.definer.origin or ""
    return text


def _operation(graph: Graph, text: str) -> Operation | None:
    """Return the constraint or the ``shard_map`` that Shardy names."""
    return graph.named.get(text.partition(": ")[0].removesuffix("_input").removesuffix("_output"))


@remembered
def _named(program: Propagated, value: Value, name: str) -> AxisOrigin | Value | None:
    """Return the origin that Shardy names, or a value that has the axis from the same; None if unknown.

    An origin without the axis in its own sharding is none. Shardy names one for an argument that only a
    constraint uses.
    """
    graph, arguments, outputs = program.graph, program.arguments, program.outputs
    if value.returned is not None:
        path, requested = outputs[value.returned]
        return _made(program, name, "output", path) if has_axis(graph, requested, name) else value.outer
    if value.argument is not None and has_axis(graph, arguments[value.argument].requested, name):
        return _argument(program, value.argument, name)
    text = _text(graph, value, name)
    kind, _, digits = text.partition(": ")
    number = int(digits) if digits.isdecimal() else -1
    if (
        kind == "input"
        and 0 <= number < len(arguments)
        and has_axis(graph, arguments[number].requested, name)
    ):
        return _argument(program, number, name)
    if kind == "output" and 0 <= number < len(outputs) and outputs[number].path is not None:
        return _made(program, name, "output", outputs[number].path)
    operation = _operation(graph, text)
    if operation is None:
        return _before(graph, value, name)
    line, is_requested = line_of(program, operation.place), has_axis(graph, operation.requested, name)
    if _is_of_shard_map(operation):
        # What enters may have the axis before it.
        enters = "_input" in text or operation.name == "sdy.sharding_constraint"
        before = _before(graph, value, name) if enters or not is_requested else None
        is_known = before is not None or not is_requested
        return before if is_known else _made(program, name, "shard_map", None, line)
    (operand,) = operation.operands
    if not is_requested:
        return operand
    if operation.place.op in OWN:
        return _made(program, name, "constraint", None, line)
    return _before(graph, operand, name)


@remembered
def _made(
    _program: Propagated,
    name: str,
    kind: OriginKind | None,
    path: str | None = None,
    line: Origin | None = None,
) -> AxisOrigin:
    """Return an origin without a way. Equal ones are one object."""
    return AxisOrigin(mesh_axis=name, kind=kind, path=path, origin=line)


def _argument(program: Propagated, number: int, name: str) -> AxisOrigin | None:
    path = program.arguments[number].path
    return None if path is None else _made(program, name, "argument", path)


def _before(graph: Graph, value: Value, name: str) -> Value | None:
    """Return the value that is the same outside, or an operand that has a mesh axis of a result."""
    if value.outer is not None:
        return value.outer
    operation = value.definer
    if operation is None:
        return None
    operands, rule = operation.operands, operation.rule
    if rule is None:
        return next((operand for operand in operands if has_axis(graph, operand.axes, name)), None)
    place = len(operands) + operation.results.index(value)
    for number, names in enumerate(value.axes):
        for tensor, dim in rule.linked.get((place, number), ()) if has_axis(graph, (names,), name) else ():
            if tensor < len(operands) and has_axis(graph, (operands[tensor].axes[dim],), name):
                return operands[tensor]
    return None


@remembered
def line_of(program: Propagated, place: Place) -> Origin | None:
    """Return the line of the user. Equal ones are one object."""
    origin = program.lines.origin(place.frames)
    return None if origin is None else first_of(program, origin)


@remembered
def first_of(_program: Propagated, row: Any) -> Any:
    """Return the first of equal objects."""
    return row


def _is_of_shard_map(operation: Operation) -> bool:
    """Return whether it is a ``shard_map``, or a constraint that Shardy adds for what enters one."""
    return operation.name == "sdy.manual_computation" or operation.place.op == "shard_map"


def _is_same(origin: AxisOrigin, other: AxisOrigin) -> bool:
    """Return whether two origins are the same, of any mesh axes."""
    return (origin.kind, origin.path) == (other.kind, other.path) and origin.origin is other.origin
