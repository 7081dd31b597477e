"""The dimensions of the data in a program, and what follows them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...xla.hlo.source import pass_of
from .axis_origins import Propagated
from .graph import Graph, Operation, Value, has_axis, nbytes, remembered
from .letters import Letter

Dim = tuple[Value, int]
"""A value, and the number of one of its dimensions."""
_DOT, _BARRIER = ".dot_general", "stablehlo.optimization_barrier"


@remembered
def parameters_of(program: Propagated) -> dict[str | None, Value]:
    """Return the parameters by path: arguments without integers that have the shape and dtype of an output.

    All other arguments are data.
    """
    graph = program.graph
    outputs = {(output.shape, output.dtype) for output in graph.outputs}
    return {
        program.path(argument): argument
        for argument in graph.values[: graph.argument_count]
        if "int" not in argument.dtype and (argument.shape, argument.dtype) in outputs
    }


@remembered
def data_of(program: Propagated) -> dict[tuple[Value, int, str], tuple[Value, int]]:
    """Return the dimensions of values that are sharded dimensions of data, by the mesh axis of these.

    A dimension is one of the data if this is its major factor.
    """
    graph = program.graph
    dims = {
        (argument, dim, graph.part(name).name): (argument, dim)
        for argument in filter(program.path, graph.values[: graph.argument_count])
        if program.path(argument) not in parameters_of(program)
        for dim, names in enumerate(argument.axes)
        for name in names
    }
    waiting = deque(dims)
    while waiting:
        value, dim, name = key = waiting.popleft()
        for after in _after(graph, value, dim):
            if (*after, name) not in dims:
                dims[*after, name] = dims[key]
                waiting.append((*after, name))
    return dims


def dims_of_data(program: Propagated, operation: Operation, letter: Letter) -> list[int]:
    """Return the dimensions of an operand that have a factor, and are sharded dimensions of data."""
    if operation.rule is None or letter.position < 0:
        return []
    value, dims = operation.operands[letter.position], operation.rule.operands[letter.position]
    data, axis = data_of(program), letter.parts[0].name
    return [
        dim for dim, factors in enumerate(dims) if letter.factor in factors and (value, dim, axis) in data
    ]


class Following(NamedTuple):
    """The values with a dimension that a mesh axis does not shard."""

    nbytes: int
    """Bytes per device of all of them in the same pass."""

    has_product: bool
    """Whether a product is among them."""

    again: Value | None
    """The first value after them that the mesh axis shards along the dimension."""


def following(graph: Graph, dims: Iterable[Dim], name: str) -> Following:
    """Return what follows some dimensions without a mesh axis.

    Args:
        graph: The program.
        dims: The dimensions. Those that have one as their major factor follow it.
        name: The mesh axis, or a part of it.
    """
    waiting = deque(dims)
    phases = {pass_of(value.place.name) for value, _ in waiting}
    seen, total, has_product, again = set(waiting), 0, False, None
    while waiting:
        value, dim = waiting.popleft()
        is_computed = value.definer is not None and value.outer is None and value.definer.name != _BARRIER
        if value.definer is not None and is_computed and pass_of(value.place.name) in phases:
            total += nbytes(graph, value) or 0
            has_product |= value.definer.name.endswith(_DOT)
        for after in _after(graph, value, dim):
            if has_axis(graph, (after[0].axes[after[1]],), name):
                again = again or after[0]
            elif after not in seen:
                seen.add(after)
                waiting.append(after)
    return Following(total, has_product, again)


def _after(graph: Graph, value: Value, dim: int) -> Iterator[Dim]:
    """Yield the dimensions of the next values that have a dimension as their major factor."""
    yield from ((alike, dim) for alike in graph.inside.get(value, ()) if dim < len(alike.axes))
    for operation, place in graph.places.get(value, ()):
        yield from results_of(operation, place, dim)


def results_of(operation: Operation, place: int, dim: int) -> Iterator[Dim]:
    """Yield the dimensions of results that have a dimension of an operand as their major factor."""
    rule = operation.rule
    if operation.name == _BARRIER and place < len(operation.operands):
        yield operation.results[place], dim
    if rule is None or place >= len(operation.operands):
        return
    major = {*rule.operands[place][dim][:1]} - rule.whole
    yield from (
        (result, its)
        for result, dims in zip(operation.results, rule.results, strict=False)
        for its, theirs in enumerate(dims)
        if major.intersection(theirs[:1])
    )
