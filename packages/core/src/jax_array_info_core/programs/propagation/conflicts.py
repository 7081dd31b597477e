"""Conflicts and lost mesh axes of a propagated program, with lines and paths."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ...base.grouping import by_key
from ...facts.reports.propagation import (
    Conflict,
    ConflictOperand,
    Loss,
    LossReason,
    PropagatedValue,
)
from ...geometry.layouts.spec import MeshAxes, Spec
from ...xla.hlo.source import pass_of
from .axis_origins import OWN, Propagated, first_of, line_of, origin_of
from .data import Dim, dims_of_data, following, parameters_of, results_of
from .graph import (
    Graph,
    Operation,
    Part,
    Place,
    Rule,
    Value,
    has_axis,
    letter_of,
    nbytes,
    nbytes_of,
    remembered,
)
from .letters import Letter, excluding, lacking, missing_part, text_of, value_of
from .ways import MOST_STEPS, batch_axes, constraint_of, way_of

RESULT = "result"
"""Name of the result of an operation among the operands of its conflict."""


def conflicts(program: Propagated) -> tuple[Conflict, ...]:
    """Return the operations whose operands exclude each other, the costliest first."""
    groups = by_key(
        (conflict_of(program, operation, operation.rule, name, letters), (operation, name, letters))
        for operation in program.graph.computing
        if operation.rule is not None
        for name, letters in excluding(program.graph, operation.rule, *operation.sharding)
    )
    # Of an empty array, nothing moves.
    rows = (_costed(program, row, group) for row, group in groups.items() if row.nbytes != 0)
    return tuple(sorted(rows, key=lambda row: -(row.cost_nbytes or 0)))


def _costed(
    program: Propagated, row: Conflict, group: Sequence[tuple[Operation, str, list[Letter]]]
) -> Conflict:
    """Return equal conflicts as one, with what follows them.

    They are meant if they cost no more than a parameter that has the mesh axis: one that an operand has it
    from, or that whose gradient is the result. Forward, something else must have it, too, such as the batch.
    """
    graph, name = program.graph, group[0][1]
    # XLA resolves those of the backward pass otherwise: nothing has to follow them.
    forward = [] if row.phase == "backward" else group
    dims = [dim for operation, _, letters in forward for dim in _left(program, operation, letters, name)]
    row = replace(
        row,
        count=len(group),
        following_nbytes=following(graph, dims, name).nbytes if dims else None,
        is_meant=row.is_meant and not dims,
    )
    known, result = parameters_of(program), group[0][0].results[0]
    returned = {named.path: value for named, value in zip(program.outputs, graph.outputs, strict=False)}
    paths = [operand.axis_origin.path for operand in row.operands]
    takers = [known.get(path) or returned.get(path) for path in paths if path is not None]
    most = max((nbytes(graph, taker) or 0 for taker in takers if taker is not None), default=0)
    if row.phase == "backward":
        alike = (one for one in known.values() if (one.shape, one.axes) == (result.shape, result.axes))
        most = max(most, *(nbytes(graph, one) or 0 for one in alike), 0)
    elif all(path in known for path in paths):
        most = 0
    return replace(row, is_meant=row.is_meant or (row.cost_nbytes or most + 1) <= most)


def _left(program: Propagated, operation: Operation, letters: Sequence[Letter], name: str) -> Iterator[Dim]:
    """Yield the dimensions of the data that results have without the mesh axis of a conflict."""
    return (
        (result, its)
        for letter in letters
        for dim in dims_of_data(program, operation, letter)
        for result, its in results_of(operation, letter.position, dim)
        if not has_axis(program.graph, (result.axes[its],), name)
    )


def lost_axes(program: Propagated) -> tuple[Loss, ...]:
    """Return the mesh axes that results lack."""
    inside = (loss for operation in losing(program.graph) for loss in losses_of(program, operation))
    returned = (first_of(program, loss) for _, loss in lost_at_return(program))
    return most_first(itertools.chain(inside, returned))


def losing(graph: Graph) -> Iterator[Operation]:
    """Yield the operations that compute something, and the constraints of the user."""
    yield from graph.computing
    yield from (
        operation
        for operation in graph.operations
        if operation.name == "sdy.sharding_constraint" and operation.place.op in OWN
    )


def lost_at_return(program: Propagated) -> Iterator[tuple[Value, Loss]]:
    """Yield each output that lacks a mesh axis that its value has."""
    graph = program.graph
    for output in graph.outputs:
        value = output.outer
        if value is None or output.shape is None:
            continue
        present = [graph.part(name) for names in output.axes for name in names]
        without, with_it = nbytes(graph, output), nbytes(graph, value)
        for name in (name for names in value.axes for name in names):
            missing = missing_part(graph.part(name), present, graph.sizes)
            if missing is None or without is None or with_it is None:
                continue
            loss = Loss(
                mesh_axis=missing,
                reason="constraint",
                nbytes=max(without - with_it, 0),
                op="return",
                operand=name_of(program, value),
                before=Spec(value.axes),
                after=Spec(output.axes),
                shape=output.shape,
                dtype=output.dtype,
                **where(program, value.place),
            )
            yield output, loss


@remembered
def losses_of(program: Propagated, operation: Operation) -> tuple[Loss, ...]:
    """Return the mesh axes of an operation's operands that no result has."""
    rule = operation.rule
    if rule is None or not operation.results or operation.results[0].shape is None:
        return ()
    lost, excluded = lacking(program.graph, rule, *operation.sharding)
    return tuple(first_of(program, _loss(program, operation, rule, excluded, *row)) for row in lost)


def _loss(
    program: Propagated,
    operation: Operation,
    rule: Rule,
    excluded: set[str],
    letter: Letter,
    part: Part,
    missing: str,
) -> Loss:
    """Return the loss of a part of a mesh axis that shards a letter.

    It is meant if a constraint gathers over axes of the batch of another operand.
    """
    graph, result, value = program.graph, operation.results[0], operation.operands[letter.position]
    places = {factor: place for place, factors in enumerate(rule.results[0]) for factor in factors}
    place = places.get(letter.factor)
    parts = letter.parts[: letter.parts.index(part) + 1]
    reason = _reason(graph, operation, rule, letter.factor, parts, excluded, place)
    is_constrained, is_uneven = reason == "constraint", reason == "uneven"
    constraint = constraint_of(graph, result) if is_constrained else None
    names = tuple(missing_part(axis, (), graph.sizes) or axis.name for axis in parts)
    more: int | None = 0
    again = None
    if is_constrained and place is not None and dims_of_data(program, operation, letter):
        after = following(graph, [(result, place)], missing).again
        again = None if after is None else line_of(program, after.place)
    if place is not None and reason != "contracted":
        axes = (*result.axes[:place], (*result.axes[place], missing), *result.axes[place + 1 :])
        with_it, without = nbytes_of(graph, result.shape, axes, result.dtype), nbytes(graph, result)
        more = None if with_it is None or without is None else without - with_it
    return Loss(
        mesh_axis=missing,
        reason=reason,
        constraint=None if constraint is None else line_of(program, constraint.place),
        size=rule.sizes[letter.factor] if is_uneven else None,
        divisor=MeshAxes(names, tuple(axis.size for axis in parts)) if is_uneven else None,
        nbytes=more,
        op=operation.place.op,
        operand=name_of(program, value),
        before=Spec(value.axes),
        after=Spec(result.axes),
        shape=result.shape or (),
        dtype=result.dtype,
        again=again,
        is_meant=again is not None
        or (is_constrained and graph.part(missing).name in batch_axes(graph, result)),
        **where(program, operation.place),
    )


def _reason(
    graph: Graph,
    operation: Operation,
    rule: Rule,
    factor: int,
    parts: Sequence[Part],
    excluded: set[str],
    place: int | None,
) -> LossReason:
    """Return why the result lacks the last of the mesh axes that shard a factor."""
    if operation.name == "sdy.sharding_constraint":
        return "constraint"
    if place is None or factor in rule.whole:
        return "contracted"
    if parts[-1].name in excluded:
        return "conflict"
    if rule.sizes[factor] % math.prod(part.size for part in parts):
        return "uneven"
    return "not propagated" if constraint_of(graph, operation.results[0]) is None else "constraint"


@remembered
def where(program: Propagated, place: Place) -> dict[str, Any]:
    """Return the fields for a location."""
    origin = line_of(program, place)
    columns = next(
        (
            columns
            for frame, columns in zip(place.frames, place.columns, strict=True)
            if origin is not None and (frame.file, frame.line) == (origin.file, origin.line)
        ),
        None,
    )
    return {"origin": origin, "columns": columns, "phase": pass_of(place.name)}


def name_of(program: Propagated, value: Value) -> str:
    """Return the path of an argument, or the operation that computes a value; of a cast, what is cast."""
    steps, before = 0, _uncast(value)
    while before is not None and steps < MOST_STEPS:
        value, before, steps = before, _uncast(before), steps + 1
    if value.argument is not None:
        return program.path(value) or "a constant"
    if value.definer is None:
        return "a value"
    line = line_of(program, value.place)
    op = value.place.op or value.definer.name.rpartition(".")[2]
    return op if line is None else f"{op} of {line.place}"


def _uncast(value: Value) -> Value | None:
    """Return the value that is the same outside of a region, or with another dtype; None for others."""
    if value.outer is None and value.definer is not None and value.definer.name == "stablehlo.convert":
        return value.definer.operands[0]
    return value.outer


def conflict_of(
    program: Propagated, operation: Operation, rule: Rule, name: str, letters: Sequence[Letter]
) -> Conflict:
    """Return a conflict, which is meant if it gathers arguments over axes of the other's batch."""
    graph = program.graph
    values = [value_of(operation, letter) for letter in letters]
    sizes = [size for size in (nbytes(graph, value) for value in values) if size is not None]
    return Conflict(
        mesh_axis=name,
        rule=operation.written_rule,
        op=operation.place.op,
        operands=tuple(
            operand_of(program, operation, letter, text_of(letter, name, letters)) for letter in letters
        ),
        result=Spec(operation.results[0].axes),
        nbytes=min(sizes, default=None),
        is_meant=any(
            part.name in batch_axes(graph, value)
            for letter, value in zip(letters, values, strict=True)
            if letter.position >= 0 and way_of(graph, value)[0].argument is not None
            for part in letter.parts
        ),
        **where(program, operation.place),
    )


def operand_of(program: Propagated, operation: Operation, letter: Letter, name: str) -> ConflictOperand:
    """Return an operand, or the result, that shards a letter over a mesh axis."""
    value = value_of(operation, letter)
    return ConflictOperand(
        name=RESULT if letter.position < 0 else name_of(program, value),
        spec=Spec(value.axes),
        letter=operation.einsum.get(letter.factor) or letter_of(letter.factor),
        axis_origin=origin_of(program, value, name),
    )


_Row = TypeVar("_Row", bound=PropagatedValue | Loss)


def most_first(rows: Iterable[_Row]) -> tuple[_Row, ...]:
    """Return rows, the most bytes first. Those that are one object are one row, with their number."""
    every = [*rows]
    counts = Counter(map(id, every))
    merged: list[_Row] = [
        row if counts[id(row)] == 1 else replace(row, count=counts[id(row)])
        for row in {id(row): row for row in every}.values()
    ]
    return tuple(sorted(merged, key=lambda row: -(row.nbytes or 0) * row.count))
