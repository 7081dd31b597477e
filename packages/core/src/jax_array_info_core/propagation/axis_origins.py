"""Origins of the mesh axes of values, and the way from there."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..origins.origins import UserLines
from ..reports.origin import Origin, SourceLine
from ..reports.propagation import AxisOrigin
from .graph import Axes, Graph, Place, Value

OWN = ("sharding_constraint", "reshard", "mesh_cast")
"""Names of the constraints of the user. With explicit axes, JAX adds others after each operation."""
_MOST_STEPS = 10_000
MOST_VIA = 10
"""Number of lines between a value and the origin of a mesh axis."""


class Step(NamedTuple):
    """The last step of a mesh axis to a value."""

    place: Place | None
    """The operation; None at the origin, and where a value enters or leaves a region."""

    before: tuple[SourceLine, ...]
    """Lines between the origin and the value before, nearest first."""

    lines: tuple[SourceLine, ...]
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
        self._lines_of: dict[int, Origin | None] = {}

    def origins(self, value: Value) -> tuple[AxisOrigin, ...]:
        """Return the origin of each mesh axis of a value."""
        names = [name for dim in value.axes for name in dim]
        return tuple(replace(self.origin(value, name), via=self._via(value, name)) for name in names)

    def _via(self, value: Value, name: str) -> tuple[SourceLine, ...]:
        """Return the lines between a value and the origin of its mesh axis, nearest first."""
        step = self._steps.get((id(value), name))
        if step is None:
            return ()
        is_own = value.definer is not None and step.place is value.definer.place
        return step.before if is_own else step.lines

    @functools.cached_property
    def _steps(self) -> dict[tuple[int, str], Step]:
        """The last step to each mesh axis of a value on a way from its origin; None at the origin."""
        found: dict[tuple[int, str], Step] = {}
        waiting = deque((value, name) for value, name in self._at_origins())
        found.update(((id(value), name), Step(None, (), ())) for value, name in waiting)
        while waiting:
            value, name = waiting.popleft()
            of, before = self.origin(value, name), found[id(value), name].lines
            for other, its, place in self._beside(value, name):
                if (id(other), its) not in found and self.origin(other, its) == replace(of, mesh_axis=its):
                    lines = before if place is None else self._added(place, before)
                    found[id(other), its] = Step(place, before, lines)
                    waiting.append((other, its))
        return found

    def _added(self, place: Place, lines: tuple[SourceLine, ...]) -> tuple[SourceLine, ...]:
        """Return lines with that of an operation in front, each once."""
        one = self._line(place)
        if one is None:
            return lines
        first = SourceLine(file=one.file, line=one.line, function=one.function, cell=one.cell)
        return (first, *(line for line in lines if line != first))[:MOST_VIA]

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

    def _beside(self, value: Value, name: str) -> Iterator[tuple[Value, str, Place | None]]:
        """Yield the values that a mesh axis of a value propagates to, with the operation between."""
        for same in (value.same, *self._graph.inside.get(id(value), ())):
            if same is not None and self._has(same.axes, name):
                yield same, name, None
        number = next(number for number, dim in enumerate(value.axes) if name in dim)
        part = self._graph.part(name)
        for operation in filter(None, (value.definer, *self._graph.users.get(id(value), ()))):
            if operation.rule is None:
                continue
            tensors = [
                *zip(operation.operands, operation.rule.operands, strict=False),
                *zip(operation.results, operation.rule.results, strict=False),
            ]
            factors = {one for own, dims in tensors if own is value for one in dims[number]}
            for other, dims in tensors:
                for names, its in zip(other.axes, dims, strict=False):
                    if other is not value and factors.intersection(its):
                        for own in names:
                            if self._graph.part(own).overlaps(part):
                                yield other, own, operation.place

    def origin(self, value: Value, name: str) -> AxisOrigin:
        """Return the origin of a mesh axis of a value, without the way."""
        key = id(value), name
        if key not in self._origins:
            self._origins[key] = self._found_origin(value, name)
        return self._origins[key]

    def _found_origin(self, value: Value, name: str) -> AxisOrigin:
        """Follow a mesh axis to its origin.

        Args:
            value: The value.
            name: The mesh axis, or a part of it.
        """
        seen: set[int] = set()
        steps = 0
        while id(value) not in seen and steps < _MOST_STEPS:
            seen.add(id(value))
            steps += 1
            found = self._named(value, name)
            if isinstance(found, AxisOrigin):
                return found
            if found is None:
                break
            value, name = found
        return AxisOrigin(mesh_axis=name, kind=None)

    def _named(self, value: Value, name: str) -> AxisOrigin | tuple[Value, str] | None:
        """Return the origin that Shardy names, or a value that has the axis from the same; None if unknown.

        An origin without the axis in its own sharding is none. Shardy names one for an argument that only a
        constraint uses.
        """
        if value.returned is not None:
            number = value.returned - self._shift
            if number >= 0 and self._has(self._requested_outputs[number], name):
                return AxisOrigin(mesh_axis=name, kind="output", path=self._outputs[number])
            return None if value.same is None else (value.same, name)
        if value.argument is not None and self._has(self._requested[value.argument], name):
            return self._argument(value.argument, name)
        named = (text for other, text in value.origins.items() if self._has(((other,),), name))
        what, _, rest = next(named, "").partition(": ")
        number = int(rest) if rest.isdecimal() else -1
        if what == "self":
            what = "" if value.definer is None else value.definer.origin or ""
        if (
            what == "input"
            and 0 <= number < len(self._requested)
            and self._has(self._requested[number], name)
        ):
            return self._argument(number, name)
        if what == "output" and 0 <= number - self._shift < len(self._outputs):
            return AxisOrigin(mesh_axis=name, kind="output", path=self._outputs[number - self._shift])
        operation = self._graph.named.get(what.removesuffix("_input").removesuffix("_output"))
        if operation is None:
            return self._before(value, name)
        line = self._line(operation.place)
        if operation.name == "sdy.manual_computation":
            return AxisOrigin(mesh_axis=name, kind="shard_map", origin=line)
        (result,), (operand,) = operation.results, operation.operands
        if not self._has(result.axes, name):
            return operand, name
        own = AxisOrigin(mesh_axis=name, kind="constraint", origin=line)
        return own if operation.place.op in OWN else self._before(operand, name) or own

    def _has(self, axes: Axes, name: str) -> bool:
        """Return whether a sharding has a mesh axis, or part of it."""
        part = self._graph.part(name)
        return any(self._graph.part(own).overlaps(part) for dim in axes for own in dim)

    def _argument(self, number: int, name: str) -> AxisOrigin | None:
        path = self._paths[number]
        return None if path is None else AxisOrigin(mesh_axis=name, kind="argument", path=path)

    def _before(self, value: Value, name: str) -> tuple[Value, str] | None:
        """Return the value that is the same outside, or an operand that has a mesh axis of a result."""
        if value.same is not None:
            return value.same, name
        operands = () if value.definer is None else value.definer.operands
        return next(((operand, name) for operand in operands if self._has(operand.axes, name)), None)

    def _line(self, place: Place) -> Origin | None:
        if id(place) not in self._lines_of:
            self._lines_of[id(place)] = self._lines.origin(place.frames)
        return self._lines_of[id(place)]
