"""Origins of the mesh axes of values, and the way from there."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from ...arrays.origins.origins import UserLines
from ...facts.reports.origin import Origin, SourceLine
from ...facts.reports.propagation import AxisOrigin, OriginKind
from .graph import Axes, Graph, Operation, Place, Value

OWN = ("sharding_constraint", "reshard", "mesh_cast")
"""Names of the constraints of the user. With explicit axes, JAX adds others after each operation."""
_MOST_STEPS = 10_000
MOST_VIA = 10
"""Number of lines between a value and the origin of a mesh axis."""


_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


def remembered(
    method: Callable[Concatenate[Any, _Given], _Found],
) -> functools.cached_property[Callable[_Given, _Found]]:
    """Return a method that keeps its results in the object: equal layers have equal rules and shardings."""

    def kept(one: Any) -> Any:
        return functools.cache(functools.partial(method, one))

    return functools.cached_property(kept)


class Step(NamedTuple):
    """The last step of a mesh axis to a value."""

    place: Place | None
    """The operation; None at the origin, and where a value enters or leaves a region."""

    before: tuple[int, ...]
    """Numbers of the lines between the origin and the value before, nearest first."""

    lines: tuple[int, ...]
    """``before``, and the line of the operation."""


class AxisOrigins:
    """The origins of the mesh axes of a program's values.

    Args:
        graph: The program.
        paths: Paths of the arguments of the program, by their number; None for those that are not the user's.
        requested: Mesh axes of each that the user requested.
        outputs: Paths of the outputs.
        requested_outputs: Mesh axes of each that the user requested.
        lines: The search for the user's line.
    """

    def __init__(
        self,
        graph: Graph,
        paths: Sequence[str | None],
        requested: Sequence[Axes],
        outputs: Sequence[str],
        requested_outputs: Sequence[Axes],
        lines: UserLines,
    ) -> None:
        self._graph = graph
        self._paths = paths
        self._requested = requested
        self._outputs = outputs
        self._requested_outputs = requested_outputs
        self._shift = max(len(graph.outputs) - len(outputs), 0)  # tokens
        self._lines = lines
        self._origins: dict[tuple[int, str], AxisOrigin] = {}
        self._equal: dict[tuple[Any, ...], AxisOrigin] = {}
        self._together: dict[tuple[int, ...], tuple[AxisOrigin, ...]] = {}
        self._lines_of: dict[int, Origin | None] = {}
        self._equal_lines: dict[Origin, Origin] = {}
        self._numbers: dict[SourceLine, int] = {}
        self._added: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = {}

    def origins(self, value: Value) -> tuple[AxisOrigin, ...]:
        """Return the origin of each mesh axis of a value, with the way. Equal ones are one object."""
        found = tuple(self._with_way(value, name) for dim in value.axes for name in dim)
        return self._together.setdefault(tuple(map(id, found)), found)

    def _with_way(self, value: Value, name: str) -> AxisOrigin:
        """Return the origin of a mesh axis, with the lines between."""
        of, step = self.origin(value, name), self._steps.get((id(value), name))
        if step is None:
            return of
        is_own = value.definer is not None and step.place is value.definer.place
        way = step.before if is_own else step.lines
        key = id(of), way
        if key not in self._equal:
            lines = [*self._numbers]
            self._equal[key] = replace(of, via=tuple(lines[number] for number in way))
        return self._equal[key]

    @functools.cached_property
    def _steps(self) -> dict[tuple[int, str], Step]:
        """The last step to each mesh axis of a value on a way from its origin; None at the origin."""
        waiting = deque(self._at_origins())
        visited: set[tuple[int, tuple[int, ...], int]] = set()
        found = {(id(value), name): Step(None, (), ()) for value, name in waiting}
        while waiting:
            value, name = waiting.popleft()
            of, before = self.origin(value, name), found[id(value), name].lines
            for other, its, place in self._neighbors(value, name, of, visited):
                key = id(other), its
                if key not in found and _is_same(self.origin(other, its), of):
                    found[key] = Step(place, before, before if place is None else self._way(place, before))
                    waiting.append((other, its))
        return found

    def _way(self, place: Place, before: tuple[int, ...]) -> tuple[int, ...]:
        """Return the numbers of lines with that of an operation in front, each once."""
        key = id(place), before
        if key not in self._added:
            one = self._line(place)
            if one is None:
                return before
            line = SourceLine(file=one.file, line=one.line, function=one.function, cell=one.cell)
            first = self._numbers.setdefault(line, len(self._numbers))
            self._added[key] = (first, *(number for number in before if number != first))[:MOST_VIA]
        return self._added[key]

    def _at_origins(self) -> Iterator[tuple[Value, str]]:
        """Yield the arguments, outputs and constraints that are the origin of one of their own mesh axes."""
        outputs = {id(value) for value in self._graph.outputs}
        for value in self._graph.values:
            for name in (name for dim in value.axes for name in dim):
                of = self.origin(value, name)
                definer = value.definer
                if (
                    (of.kind == "argument" and value.argument is not None)
                    or (of.kind == "output" and id(value) in outputs)
                    or (
                        definer is not None
                        and definer.origin is not None
                        and of.kind in ("constraint", "shard_map")
                    )
                ):
                    yield value, name

    def _neighbors(
        self, value: Value, name: str, of: AxisOrigin, visited: set[tuple[int, tuple[int, ...], int]]
    ) -> Iterator[tuple[Value, str, Place | None]]:
        """Yield the values that a mesh axis of a value propagates to, with the operation between.

        Args:
            value: The value.
            name: Its mesh axis.
            of: The origin.
            visited: Operations, factors and origins for which all were yielded. More are added.
        """
        for same in (value.same, *self._graph.inside.get(id(value), ())):
            if same is not None and self._has(same.axes, name):
                yield same, name, None
        number = next(number for number, dim in enumerate(value.axes) if name in dim)
        part = self._graph.part(name)
        for operation, at in self._graph.places.get(id(value), ()):
            rule = operation.rule
            if rule is None:
                continue
            key = id(operation), rule.tensors[at][number], id(of)
            if key in visited:
                continue
            visited.add(key)
            for tensor, dim in rule.linked.get((at, number), ()):
                other = operation.tensors[tensor]
                for its in other.axes[dim] if other is not value else ():
                    if its == name or self._graph.part(its).overlaps(part):
                        yield other, its, operation.place

    def origin(self, value: Value, name: str) -> AxisOrigin:
        """Return the origin of a mesh axis of a value, without the way."""
        key = id(value), name
        if key not in self._origins:
            self._origins[key] = self._followed(value, name) or self._nearest(value, name)
        return self._origins[key]

    def _followed(self, value: Value, name: str) -> AxisOrigin | None:
        """Return the origin along the values that have the axis from each other; None if that ends."""
        at: Value | None = value
        seen: set[tuple[int, str]] = set()
        found = None
        while found is None and at is not None and (id(at), name) not in seen and len(seen) < _MOST_STEPS:
            found = self._origins.get((id(at), name))
            if found is None:
                seen.add((id(at), name))
                named = self._named(at, name)
                found, at = (named, None) if isinstance(named, AxisOrigin) else (None, named)
        if found is not None:
            self._origins.update(dict.fromkeys(seen, found))
        return found

    def _nearest(self, value: Value, name: str) -> AxisOrigin:
        """Return the nearest origin in any direction; else the constraint that Shardy names, if there is one.

        With explicit axes, JAX adds constraints, also inside loops and to values that it makes itself.
        """
        waiting, seen = deque([(value, name)]), {(id(value), name)}
        unknown, visited = self._made(name, None), set[tuple[int, tuple[int, ...], int]]()
        while waiting and len(seen) < _MOST_STEPS:
            one, its = waiting.popleft()
            found = self._followed(one, its)
            if found is not None:
                return self._made(name, found.kind, found.path, found.origin)
            for other, own, _ in self._neighbors(one, its, unknown, visited):
                if (id(other), own) not in seen:
                    seen.add((id(other), own))
                    waiting.append((other, own))
        operation = self._operation(self._text(value, name))
        if operation is None or not self._has(operation.requested, name):
            return unknown
        kind: OriginKind = "shard_map" if _is_of_shard_map(operation) else "constraint"
        return self._made(name, kind, None, self._line(operation.place))

    def _text(self, value: Value, name: str) -> str:
        """Return the origin as Shardy writes it; empty without one."""
        named = (text for other, text in value.origins.items() if self._has(((other,),), name))
        text = value.origins.get(name) or next(named, "")
        if text == "self":
            return "" if value.definer is None else value.definer.origin or ""
        return text

    def _operation(self, text: str) -> Operation | None:
        """Return the constraint or the ``shard_map`` that Shardy names."""
        return self._graph.named.get(text.partition(": ")[0].removesuffix("_input").removesuffix("_output"))

    @remembered
    def _named(self, value: Value, name: str) -> AxisOrigin | Value | None:
        """Return the origin that Shardy names, or a value that has the axis from the same; None if unknown.

        An origin without the axis in its own sharding is none. Shardy names one for an argument that only a
        constraint uses.
        """
        if value.returned is not None:
            number = value.returned - self._shift
            if number >= 0 and self._has(self._requested_outputs[number], name):
                return self._made(name, "output", self._outputs[number])
            return value.same
        if value.argument is not None and self._has(self._requested[value.argument], name):
            return self._argument(value.argument, name)
        text = self._text(value, name)
        what, _, rest = text.partition(": ")
        number = int(rest) if rest.isdecimal() else -1
        if (
            what == "input"
            and 0 <= number < len(self._requested)
            and self._has(self._requested[number], name)
        ):
            return self._argument(number, name)
        if what == "output" and 0 <= number - self._shift < len(self._outputs):
            return self._made(name, "output", self._outputs[number - self._shift])
        operation = self._operation(text)
        if operation is None:
            return self._before(value, name)
        line, is_own = self._line(operation.place), self._has(operation.requested, name)
        if _is_of_shard_map(operation):
            # What enters may have the axis before it.
            enters = "_input" in text or operation.name == "sdy.sharding_constraint"
            before = self._before(value, name) if enters or not is_own else None
            return before if before is not None or not is_own else self._made(name, "shard_map", None, line)
        (operand,) = operation.operands
        if not is_own:
            return operand
        if operation.place.op in OWN:
            return self._made(name, "constraint", None, line)
        return self._before(operand, name)

    @remembered
    def _has(self, axes: Axes, name: str) -> bool:
        """Return whether a sharding has a mesh axis, or part of it."""
        part = self._graph.part(name)
        return any(self._graph.part(own).overlaps(part) for dim in axes for own in dim)

    def _made(
        self, name: str, kind: OriginKind | None, path: str | None = None, line: Origin | None = None
    ) -> AxisOrigin:
        """Return an origin without a way. Equal ones are one object."""
        key = name, kind, path, id(line)
        if key not in self._equal:
            self._equal[key] = AxisOrigin(mesh_axis=name, kind=kind, path=path, origin=line)
        return self._equal[key]

    def _argument(self, number: int, name: str) -> AxisOrigin | None:
        path = self._paths[number]
        return None if path is None else self._made(name, "argument", path)

    def _before(self, value: Value, name: str) -> Value | None:
        """Return the value that is the same outside, or an operand that has a mesh axis of a result."""
        if value.same is not None:
            return value.same
        operation = value.definer
        if operation is None:
            return None
        if operation.rule is None:
            return next((operand for operand in operation.operands if self._has(operand.axes, name)), None)
        count = len(operation.operands)
        at = count + operation.results.index(value)
        for number, dim in enumerate(value.axes):
            for tensor, its in operation.rule.linked.get((at, number), ()) if self._has((dim,), name) else ():
                if tensor < count and self._has((operation.operands[tensor].axes[its],), name):
                    return operation.operands[tensor]
        return None

    def _line(self, place: Place) -> Origin | None:
        """Return the line of the user. Equal ones are one object."""
        if id(place) not in self._lines_of:
            found = self._lines.origin(place.frames)
            self._lines_of[id(place)] = None if found is None else self._equal_lines.setdefault(found, found)
        return self._lines_of[id(place)]


def _is_of_shard_map(operation: Operation) -> bool:
    """Return whether it is a ``shard_map``, or a constraint that Shardy adds for what enters one."""
    return operation.name == "sdy.manual_computation" or operation.place.op == "shard_map"


def _is_same(one: AxisOrigin, other: AxisOrigin) -> bool:
    """Return whether two origins are the same, of any mesh axes."""
    return (one.kind, one.path) == (other.kind, other.path) and one.origin is other.origin
