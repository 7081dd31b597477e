"""The needs of a program for collectives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from ...facts.reports.propagation import Because, Loss
from .axis_origins import Propagated
from .conflicts import conflict_of, losing, losses_of, lost_at_return, operand_of, where
from .graph import Key, Operation, Rule, Value
from .letters import excluding, is_alike, kept_factors, operand_letters, value_of
from .ways import constraint_of, has_one_user, way_of

Role = Literal["used", "made", "summed"]
"""Whether values are moved for an operation that uses them, or after one that computes them, or reduced."""


class Cause(NamedTuple):
    """What may need a collective."""

    because: Because
    """The operation, or the constraint."""

    role: Role
    """How it needs one."""

    operation: Operation | None
    """The operation; of a constraint, what computes its value; None for an argument."""

    key: Key
    """Name and line of that operation; the path of the argument."""

    values: tuple[Value, ...]
    """What may be moved or reduced."""

    after: tuple[Value, ...] = ()
    """What is made: where a collective is for it, only its users have the array."""


def causes(program: Propagated) -> Iterator[Cause]:
    """Yield what needs collectives."""
    for operation in losing(program.graph):
        if operation.rule is not None and operation.results:
            yield from _of_conflicts(program, operation, operation.rule)
            yield from _of_sums(program, operation, operation.rule)
            yield from _of_losses(program, operation)
    for output, loss in lost_at_return(program):
        if output.outer is not None:
            yield from _of_constraint(program, [loss], output.outer, (output,))


def key_of(program: Propagated, value: Value) -> Key:
    """Return the name and the line of what computes a value; the path of an argument."""
    return value.place.key if value.argument is None else (program.path(value) or "", (), 0)


def _fields(program: Propagated, operation: Operation) -> dict[str, Any]:
    """Return the fields for an operation."""
    place = where(program, operation.place)
    return {
        "rule": str(operation.rule),
        "op": operation.place.op,
        "phase": place["phase"],
        "origin": place["origin"],
    }


def _of_conflicts(program: Propagated, operation: Operation, rule: Rule) -> Iterator[Cause]:
    """Yield the conflicts of an operation."""
    key, results, kept = operation.place.key, operation.results, kept_factors(rule)
    for name, letters in excluding(program.graph, rule, *operation.sharding):
        conflict = conflict_of(program, operation, rule, name, letters)
        because = Because(
            kind="conflict",
            mesh_axes=conflict.mesh_axes,
            operands=conflict.operands,
            **_fields(program, operation),
        )
        used = tuple(value_of(operation, letter) for letter in letters if letter.position >= 0)
        yield Cause(because, "used", operation, key, used)
        if len(used) < len(letters):
            yield Cause(because, "made", operation, key, results, results)
        if not kept.issuperset(letter.factor for letter in letters):
            yield Cause(because, "summed", operation, key, results)


def _of_sums(program: Propagated, operation: Operation, rule: Rule) -> Iterator[Cause]:
    """Yield the sums of an operation over sharded dimensions: over all mesh axes, and over each."""
    graph = program.graph
    excluded = {
        axis
        for name, letters in excluding(graph, rule, *operation.sharding)
        for axis in conflict_of(program, operation, rule, name, letters).mesh_axes
    }
    summed_whole = kept_factors(rule) | rule.whole
    letters = [
        letter
        for letter in operand_letters(graph, rule, operation.sharding[0])
        if letter.factor not in summed_whole
    ]
    names = dict.fromkeys(part.name for letter in letters for part in letter.parts)
    over = tuple(name for name in names if name not in excluded)
    for axes in dict.fromkeys((over, *((name,) for name in over))) if over else ():
        # The first of the mesh axes that shards a letter, as it is in the spec.
        texts = ([text for text in letter.names if graph.part(text).name in axes] for letter in letters)
        summed = [(letter, first[0]) for letter, first in zip(letters, texts, strict=True) if first]
        operands = tuple(operand_of(program, operation, letter, text) for letter, text in summed)
        because = Because(kind="sum", mesh_axes=axes, operands=operands, **_fields(program, operation))
        # Operands that shard the dimension alike are multiplied as they are.
        used = tuple(
            value_of(operation, letter)
            for letter, _ in summed
            if not is_alike(graph, operation, rule, letter)
        )
        yield Cause(because, "used", operation, operation.place.key, used)
        yield Cause(because, "summed", operation, operation.place.key, operation.results)


def _of_losses(program: Propagated, operation: Operation) -> Iterator[Cause]:
    """Yield the constraint that leaves out mesh axes of an operation."""
    graph, key, results = program.graph, operation.place.key, operation.results
    losses = [loss for loss in losses_of(program, operation) if loss.reason == "constraint"]
    if losses and operation.name == "sdy.sharding_constraint":
        yield from _of_constraint(program, losses, operation.operands[0], results)
    elif losses:
        because, constraint = _constraint(program, losses), constraint_of(graph, results[0])
        after = results if constraint is None else constraint.results
        if has_one_user(graph, results[0]):
            yield Cause(because, "used", operation, key, operation.operands)
        yield Cause(because, "made", operation, key, results, after)


def _of_constraint(
    program: Propagated, losses: Sequence[Loss], value: Value, after: tuple[Value, ...]
) -> Iterator[Cause]:
    """Yield a constraint on a value that leaves out mesh axes, as what may need a collective."""
    because, maker = _constraint(program, losses), way_of(program.graph, value)[0]
    operation, key = maker.definer, key_of(program, maker)
    yield Cause(because, "made", operation, key, (value,), after)
    if operation is not None and operation.rule is not None and has_one_user(program.graph, value):
        # XLA may move the operands of what computes the value instead.
        yield Cause(because, "used", operation, key, operation.operands)


def _constraint(program: Propagated, losses: Sequence[Loss]) -> Because:
    """Return the constraint that leaves out mesh axes."""
    first = losses[0]
    return Because(
        kind="constraint",
        mesh_axes=tuple(dict.fromkeys(program.graph.part(loss.mesh_axis).name for loss in losses)),
        op=first.op,
        origin=first.constraint or first.origin,
        phase=first.phase,
    )
