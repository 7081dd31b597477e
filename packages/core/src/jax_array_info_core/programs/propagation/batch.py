"""The batch that is lost: mesh axes of the data that a parameter takes, or that a loop slices away."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from ...base.grouping import by_key
from ...facts.reports.lost_batch import LostBatch
from ...facts.reports.origin import Origin
from ...geometry.layouts.spec import Spec
from ...xla.hlo.source import pass_of
from .axis_origins import Propagated, line_of, origin_of
from .conflicts import where
from .data import Dim, data_of, following, parameters_of, results_of
from .graph import Axes, Operation, Value, has_axis, nbytes, remembered
from .ways import MOST_STEPS, PASSING

_ROWS, _RESHAPE, _LOOP = "stablehlo.dynamic_slice", "stablehlo.reshape", "stablehlo.while"


def lost_batches(program: Propagated) -> tuple[LostBatch, ...]:
    """Return where mesh axes stop sharding the data, the most bytes after it first.

    Either a parameter has the axis in a result, or a loop slices the dimension. The rest of the program uses
    the dimension in products, in more bytes than the parameter has.
    """
    losses = by_key((loss.key(program), loss) for loss in (*_taken(program), *_sliced(program)))
    rows = (_row(program, group) for group in losses.values())
    return tuple(sorted((row for row in rows if row is not None), key=lambda row: -row.nbytes))


class _Loss(NamedTuple):
    """A mesh axis that stops sharding a dimension of the data."""

    argument: Value
    """The data."""

    dimension: int
    """Its dimension."""

    name: str
    """The mesh axis, or a part of it."""

    after: Axes
    """Sharding of the result."""

    result: Value
    """What should have the axis."""

    dim: int
    """The dimension of it that should."""

    taken_by: Value | None = None
    """The parameter that has the axis; None for a loop."""

    loop: Operation | None = None
    """The loop."""

    def key(self, program: Propagated) -> tuple[object, ...]:
        """Return what equal losses of a line have in common."""
        place = where(program, self.result.place)
        loop = None if self.loop is None else line_of(program, self.loop.place)
        about = (self.argument, self.dimension, self.name, self.after, self.dim, self.taken_by)
        return (*about, self.result.shape, self.result.axes, place["origin"], place["columns"], loop)


def _is_forward(operation: Operation) -> bool:
    """Return whether an operation is outside of backward passes and of each ``shard_map``."""
    return pass_of(operation.place.name) != "backward" and not operation.is_manual


def _taken(program: Propagated) -> Iterator[_Loss]:
    """Yield the mesh axes of data that a parameter has in a result with the dimension."""
    graph, data = program.graph, data_of(program)
    for operation in filter(_is_forward, graph.computing if data else ()):
        for place, value in enumerate(operation.operands):
            for dim, names in enumerate(value.axes):
                for name in names:
                    about = data.get((value, dim, graph.part(name).name))
                    for result, its in results_of(operation, place, dim) if about else ():
                        taken_by = _taker(program, result, its, name)
                        if about is not None and taken_by is not None:
                            yield _Loss(*about, name, result.axes, result, its, taken_by)


def _taker(program: Propagated, result: Value, dim: int, name: str) -> Value | None:
    """Return the parameter from which a result has a mesh axis in other dimensions."""
    graph, shape = program.graph, result.shape or ()
    if has_axis(graph, (result.axes[dim],), name) or shape[dim] % graph.sizes[graph.part(name).name]:
        return None
    origins = {
        origin_of(program, result, other)
        for names in result.axes
        for other in names
        if has_axis(graph, ((other,),), name)
    }
    takers = {
        parameters_of(program).get(origin.path) if origin.kind == "argument" else None for origin in origins
    }
    return takers.pop() if len(takers) == 1 else None


def _sliced(program: Propagated) -> Iterator[_Loss]:
    """Yield the mesh axes that shard the rows of data which loops take one by one, after a reshape."""
    graph, data = program.graph, data_of(program)
    slices = (operation for operation in graph.operations if operation.name == _ROWS)
    for operation in filter(_is_forward, slices if data else ()):
        (value, *_), (rows, *_), loop = operation.operands, operation.results, _loop_of(operation)
        for dim, names in enumerate(value.axes) if loop is not None else ():
            for name in names:
                about = data.get((value, dim, graph.part(name).name))
                is_lost = rows.shape and rows.shape[dim] == 1 and not has_axis(graph, (rows.axes[dim],), name)
                minor = _minor(value, dim) if about and is_lost else None
                if about is None or minor is None:
                    continue
                reshaped, its = minor
                if not (reshaped.shape or ())[its] % graph.sizes[graph.part(name).name]:
                    yield _Loss(*about, name, rows.axes, reshaped, its, None, loop)


def _loop_of(operation: Operation) -> Operation | None:
    """Return the innermost loop that an operation is in."""
    around = operation.outside
    while around is not None and around.name != _LOOP:
        around = around.outside
    return around


def _minor(value: Value, dim: int) -> Dim | None:
    """Return the reshaped value that a dimension comes from, and the dimension that was split off it."""
    for _ in range(MOST_STEPS):
        operation = value.definer
        if value.outer is not None:
            value = value.outer
            continue
        if operation is None or operation.name not in PASSING or operation.rule is None:
            return None
        its = operation.rule.results[operation.results.index(value)][dim][:1]
        operands = operation.rule.operands[0]
        before = next((number for number, factors in enumerate(operands) if its and factors[:1] == its), None)
        if before is None:
            return None
        minor = operands[before][1:2]
        if operation.name == _RESHAPE and minor:
            split = (
                number for number, factors in enumerate(operation.rule.results[0]) if factors[:1] == minor
            )
            return next(((value, number) for number in split), None)
        value, dim = operation.operands[0], before
    return None


def _row(program: Propagated, group: list[_Loss]) -> LostBatch | None:
    """Return equal losses as one; None if no product follows, or fewer bytes than the parameter has."""
    graph, first = program.graph, group[0]
    after = following(graph, [(loss.result, loss.dim) for loss in group], first.name)
    least = 0 if first.taken_by is None else nbytes(graph, first.taken_by) or 0
    if not after.has_product or after.nbytes <= least:
        return None
    axis, place = graph.part(first.name).name, where(program, first.result.place)
    kept = [tuple(name for name in names if graph.part(name).name != axis) for names in first.result.axes]
    kept[first.dim] = (*kept[first.dim], axis)
    return LostBatch(
        path=program.path(first.argument) or "",
        shape=first.result.shape or (),
        dtype=first.result.dtype,
        mesh_axis=axis,
        dimension=first.dimension,
        before=Spec(first.argument.axes),
        after=Spec(first.after),
        taken_by=None if first.taken_by is None else program.path(first.taken_by),
        op=first.result.place.op,
        loop=None if first.loop is None else line_of(program, first.loop.place),
        nbytes=after.nbytes,
        expression=_expression(program, first.result),
        expected=Spec(tuple(kept)),
        count=len(group),
        **place,
    )


def _expression(program: Propagated, value: Value) -> str:
    """Return the source of a value; empty if it is not in one line, or that line computes another value."""
    place = where(program, value.place)
    origin, columns = place["origin"], place["columns"]
    if origin is None or columns is None:
        return ""
    text = _text(origin, *columns)
    last = _last_at(program, origin, columns)
    is_value = last is not None and (last.shape, last.axes) == (value.shape, value.axes)
    return text if is_value else ""


@remembered
def _last_at(program: Propagated, origin: Origin, columns: tuple[int, int]) -> Value | None:
    """Return the last value that an expression of a line computes in the forward pass."""
    last = None
    for operation in filter(_is_forward, program.graph.operations):
        place = where(program, operation.place)
        if (place["origin"], place["columns"]) == (origin, columns) and operation.results:
            last = operation.results[0]
    return last


def _text(origin: Origin, first: int, last: int) -> str:
    """Return the part of a line between two columns; empty if it is not an expression."""
    text = origin.code.encode()[first:last].decode(errors="replace")
    try:
        ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return ""
    return text
