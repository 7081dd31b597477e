"""Operations and constraints that may need collectives."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from ..reports.propagation import Because, Loss
from .conflicts import MOST_STEPS, Conflicts, value_of
from .graph import NOWHERE, Axes, Graph, Key, Operation, Rule, Value, shard_of

_PASSING = (
    *("sdy.sharding_constraint", "stablehlo.convert", "stablehlo.dynamic_slice", "stablehlo.reshape"),
    *("stablehlo.optimization_barrier", "stablehlo.pad", "stablehlo.slice", "stablehlo.transpose"),
)
"""Names of operations that compute nothing: each result has values of one operand."""
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


class Causes(Conflicts):
    """What a program needs collectives for."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._shards = functools.cache(self._shard_of)

    def causes(self) -> Iterator[Cause]:
        """Yield what needs collectives."""
        for operation in self._losing():
            if operation.rule is not None and operation.results:
                yield from self._causes_of(operation, operation.rule)
        for value, loss in self._lost_at_return():
            yield from self._of_constraint([loss], value)

    def _causes_of(self, operation: Operation, rule: Rule) -> Iterator[Cause]:
        """Yield what an operation needs collectives for."""
        place, results = operation.place, operation.results
        fields = self._where(place)
        where: dict[str, Any] = {
            "rule": str(rule),
            "op": place.op,
            "phase": fields["phase"],
            "origin": fields["origin"],
        }
        kept = {factor for dims in rule.results for dim in dims for factor in dim}
        excluded: set[str] = set()
        for name, letters in self._excluding(rule, *operation.sharding):
            one = self._conflict(operation, rule, name, letters)
            excluded.update(one.mesh_axes)
            because = Because(kind="conflict", mesh_axes=one.mesh_axes, operands=one.operands, **where)
            used = tuple(value_of(operation, each) for each in letters if each.position >= 0)
            yield Cause(because, "used", operation, place.key, used)
            if any(each.position < 0 for each in letters):
                yield Cause(because, "made", operation, place.key, results)
            if not kept.issuperset(each.factor for each in letters):
                yield Cause(because, "summed", operation, place.key, results)
        letters = self._operand_letters(rule, operation.sharding[0])
        letters = [one for one in letters if one.factor not in kept | rule.whole]
        names = dict.fromkeys(part.name for one in letters for part in one.parts)
        if over := tuple(name for name in names if name not in excluded):
            operands = tuple(self._operand(operation, one, one.names[0]) for one in letters)
            because = Because(kind="sum", mesh_axes=over, operands=operands, **where)
            used = tuple(value_of(operation, one) for one in letters)
            yield Cause(because, "used", operation, place.key, used)
            yield Cause(because, "summed", operation, place.key, results)
        losses = [one for one in self._losses_of(operation) if one.reason == "constraint"]
        if losses and operation.name == "sdy.sharding_constraint":
            yield from self._of_constraint(losses, operation.operands[0])
        elif losses:
            because = _constraint(self._graph, losses)
            yield Cause(because, "used", operation, place.key, operation.operands)
            yield Cause(because, "made", operation, place.key, results)

    def _of_constraint(self, losses: Sequence[Loss], value: Value) -> Iterator[Cause]:
        """Yield a constraint on a value that leaves out mesh axes, as what may need a collective."""
        because, maker = _constraint(self._graph, losses), self.maker(value)
        operation, key = maker.definer, self.key(maker)
        yield Cause(because, "made", operation, key, (value,))
        if operation is not None and operation.rule is not None:
            # XLA may move the operands of what computes the value instead.
            yield Cause(because, "used", operation, key, operation.operands)

    def maker(self, value: Value) -> Value:
        """Return what a value has its elements from: what an operation computes, or an argument."""
        for _ in range(MOST_STEPS):
            value = self._source(value)
            if value.definer is None or value.definer.name not in _PASSING:
                break
            value = value.definer.operands[value.definer.results.index(value)]  # a barrier has several
        return value

    def key(self, value: Value) -> Key:
        """Return the name and the line of what computes a value; the path of an argument."""
        if value.argument is not None and value.argument < len(self._paths):
            return self._paths[value.argument] or "", (), 0
        return NOWHERE.key if value.definer is None else value.definer.place.key

    def shard(self, value: Value, without: frozenset[str]) -> tuple[int, ...]:
        """Return the shape of a value on a device, if some mesh axes do not shard it."""
        return self._shards(value.shape or (), value.axes, without)

    def _shard_of(self, shape: tuple[int, ...], axes: Axes, without: frozenset[str]) -> tuple[int, ...]:
        part = self._graph.part
        left = tuple(tuple(one for one in names if part(one).name not in without) for names in axes)
        return shard_of(shape, left, self._graph.sizes)


def _constraint(graph: Graph, losses: Sequence[Loss]) -> Because:
    """Return the constraint that leaves out mesh axes."""
    first = losses[0]
    return Because(
        kind="constraint",
        mesh_axes=tuple(dict.fromkeys(graph.part(one.mesh_axis).name for one in losses)),
        op=first.op,
        origin=first.constraint or first.origin,
        phase=first.phase,
    )
