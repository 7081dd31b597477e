"""Operations and constraints that may need collectives."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from ..reports.propagation import Because, Loss
from .conflicts import MOST_STEPS, Conflicts, Letter, value_of
from .graph import NOWHERE, Axes, Graph, Key, Operation, Rule, Value, shard_of

PASSING = (
    *("sdy.sharding_constraint", "stablehlo.convert", "stablehlo.dynamic_slice", "stablehlo.reshape"),
    *("stablehlo.optimization_barrier", "stablehlo.pad", "stablehlo.slice", "stablehlo.transpose"),
)
"""Names of operations that compute nothing: each result has values of one operand."""
_REPEATING = "stablehlo.broadcast_in_dim"
UPDATE_SLICE = "stablehlo.dynamic_update_slice"
MOVING = frozenset(
    f"stablehlo.{name}"
    for name in ("concatenate", "dynamic_update_slice", "pad", "reduce_window", "reverse", "slice")
)
"""Names of operations that may need a collective of their own along a sharded dimension."""
_BORDERS = (".return", ".data_flow_edge", ".named_computation")
"""Ends of the names of operations at which a value enters or leaves a region."""
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
        for output, loss in self._lost_at_return():
            if output.same is not None:
                yield from self._of_constraint([loss], output.same, (output,))

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
                yield Cause(because, "made", operation, place.key, results, results)
            if not kept.issuperset(each.factor for each in letters):
                yield Cause(because, "summed", operation, place.key, results)
        letters = self._operand_letters(rule, operation.sharding[0])
        letters = [one for one in letters if one.factor not in kept | rule.whole]
        names = dict.fromkeys(part.name for one in letters for part in one.parts)
        over = tuple(name for name in names if name not in excluded)
        for axes in dict.fromkeys((over, *((name,) for name in over))) if over else ():
            summed = [(one, own) for one in letters if (own := self._own_name(one, axes)) is not None]
            operands = tuple(self._operand(operation, one, name) for one, name in summed)
            because = Because(kind="sum", mesh_axes=axes, operands=operands, **where)
            # Operands that shard the dimension alike are multiplied as they are.
            used = tuple(
                value_of(operation, one) for one, _ in summed if not self._is_alike(operation, rule, one)
            )
            yield Cause(because, "used", operation, place.key, used)
            yield Cause(because, "summed", operation, place.key, results)
        losses = [one for one in self._losses_of(operation) if one.reason == "constraint"]
        if losses and operation.name == "sdy.sharding_constraint":
            yield from self._of_constraint(losses, operation.operands[0], results)
        elif losses:
            because, constraint = _constraint(self._graph, losses), self._constraint(results[0])
            after = results if constraint is None else constraint.results
            if self._has_one_user(results[0]):
                yield Cause(because, "used", operation, place.key, operation.operands)
            yield Cause(because, "made", operation, place.key, results, after)

    def _of_constraint(
        self, losses: Sequence[Loss], value: Value, after: tuple[Value, ...]
    ) -> Iterator[Cause]:
        """Yield a constraint on a value that leaves out mesh axes, as what may need a collective."""
        because, maker = _constraint(self._graph, losses), self.maker(value)
        operation, key = maker.definer, self.key(maker)
        yield Cause(because, "made", operation, key, (value,), after)
        if operation is not None and operation.rule is not None and self._has_one_user(value):
            # XLA may move the operands of what computes the value instead.
            yield Cause(because, "used", operation, key, operation.operands)

    def maker(self, value: Value) -> Value:
        """Return what a value has its elements from: what an operation computes, or an argument."""
        return self.way(value)[0]

    def way(self, value: Value) -> tuple[Value, frozenset[str]]:
        """Return what a value has its elements from, and the mesh axes that are lost on the way."""
        lost: set[str] = set()
        for _ in range(MOST_STEPS):
            value = self._source(value)
            operation = value.definer
            if operation is None or operation.name not in PASSING:
                break
            before = operation.operands[operation.results.index(value)]  # a barrier has several
            lost |= self._lost(operation, before, value)
            value = before
        return value, frozenset(lost)

    def _lost(self, operation: Operation, before: Value, after: Value) -> set[str]:
        """Return the mesh axes of an operand that its result has not on the same part of a dimension."""
        rule = operation.rule
        if rule is None:
            return _names(self._graph, before.axes) - _names(self._graph, after.axes)
        places = operation.operands.index(before), operation.results.index(after)
        dims = rule.operands[places[0]], rule.results[places[1]]
        had, has = (
            {(letter.factor, part) for letter in self._letters(0, axes, of, rule) for part in letter.parts}
            for axes, of in zip((before.axes, after.axes), dims, strict=True)
        )
        return {part.name for _, part in had - has}

    def consumers(self, values: Iterable[Value], *, is_passed_on: bool = False) -> tuple[set[Key], bool]:
        """Return what uses some values, with what passes them on, and whether the program returns one.

        Args:
            values: The values.
            is_passed_on: Whether to add what uses the values that operations compute nothing new from.
        """
        waiting, seen, keys, is_returned = [*values], set[int](), set[Key](), False
        while waiting and len(seen) < MOST_STEPS:
            value = waiting.pop()
            if id(value) in seen:
                continue
            seen.add(id(value))
            is_returned |= value.returned is not None
            waiting += self._graph.inside.get(id(value), ())
            users = [one for one in self._graph.users(value) if not one.name.endswith(_BORDERS)]
            keys.update(one.place.key for one in users)
            if is_passed_on:
                waiting += (
                    each for one in users if one.name in (*PASSING, _REPEATING) for each in one.results
                )
        return keys, is_returned

    def _own_name(self, one: Letter, mesh_axes: Sequence[str]) -> str | None:
        """Return the first of some mesh axes that shards a letter, as it is in the spec."""
        own = {part.name for part in one.parts} & {*mesh_axes}
        return next((name for name in one.names if self._graph.part(name).name in own), None)

    def _has_one_user(self, value: Value) -> bool:
        """Return whether one operation alone uses a value, or the program returns it."""
        keys, is_returned = self.consumers([self._source(value)])
        return len(keys) + is_returned <= 1

    def _is_alike(self, operation: Operation, rule: Rule, one: Letter) -> bool:
        """Return whether each operand with a factor shards it in the same way."""
        letters = self._operand_letters(rule, operation.sharding[0])
        shards = {other.position: other.parts for other in letters if other.factor == one.factor}
        having = {
            position
            for position, dims in enumerate(rule.operands)
            if any(one.factor in factors for factors in dims)
        }
        return having == shards.keys() and len({*shards.values()}) == 1

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


def _names(graph: Graph, axes: Axes) -> set[str]:
    """Return the mesh axes of a sharding."""
    return {graph.part(name).name for names in axes for name in names}


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
