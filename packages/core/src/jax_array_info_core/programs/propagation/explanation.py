"""Values of a propagated program, each with the reason for its sharding."""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from ...facts.reports.propagation import Because, Conflict, Loss, PropagatedValue, ReplicatedValue
from ...geometry.layouts.spec import MIN_SHARD_ELEMENTS, MeshAxes, advised_axes
from .axis_origins import remembered
from .conflicts import MOST_STEPS, Conflicts, Letter, dtype_of, most_first, value_of
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

    @remembered
    def _shards(self, shape: tuple[int, ...], axes: Axes, without: frozenset[str]) -> tuple[int, ...]:
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


class Explanation(Causes):
    """The facts of a program's values, with lines and paths."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._known_facts: dict[Hashable, dict[str, Any]] = {}

    def values(self) -> tuple[PropagatedValue, ...]:
        """Return what the operations compute, the most bytes first."""
        facts = [self._facts(value) for value in self._results]
        rows = {id(one): PropagatedValue(**one) for one in self._known_facts.values()}
        return most_first(rows[id(one)] for one in facts)

    def opaque(self) -> tuple[str, ...]:
        """Return the operations on sharded values that have no rule, each with its line."""
        return tuple(dict.fromkeys(self._named_line(one) for one in self._computing if _is_opaque(one)))

    def kernels(self) -> tuple[str, ...]:
        """Return the kernels, callbacks and other calls inside of a ``shard_map``, each with its line."""
        calls = (one for one in self._computing if one.name == "stablehlo.custom_call" and one.is_manual)
        return tuple(dict.fromkeys(map(self._named_line, calls)))

    def _named_line(self, one: Operation) -> str:
        return f"{one.place.op or one.name} of {self._line(one.place) or 'an unknown line'}"

    def replicated(self) -> tuple[ReplicatedValue, ...]:
        """Return the values that could be sharded over more mesh axes, the most avoidable bytes first."""
        found: dict[Hashable, ReplicatedValue] = {}
        rows = []
        arguments = [one for one in self._graph.values[: self._graph.argument_count] if self._path(one)]
        for value in (*arguments, *self._results):
            nbytes, path = self.nbytes(value), self._path(value)
            is_manual = value.definer is not None and value.definer.is_manual
            if not nbytes or value.shape is None or is_manual or (path and any(value.axes)):
                continue
            batch = self._batch_axes(value) if path else frozenset()
            names, count = self._finer(value.shape, value.axes, batch)
            loss = self._explaining(value, names) if names and not path else None
            if names and (path or self._is_named(value, names, loss)):
                facts = {**self._facts(value), "op": "argument"} if path else self._facts(value)
                key = path or id(facts), id(loss)
                if key not in found:
                    avoidable = nbytes - nbytes // count
                    found[key] = ReplicatedValue(
                        **facts, mesh_axes=names, avoidable_nbytes=avoidable, loss=loss, path=path
                    )
                rows.append(found[key])
        return tuple(sorted(most_first(rows), key=lambda row: -row.avoidable_nbytes * row.count))

    def _path(self, value: Value) -> str | None:
        """Return the path of an argument; None for other values."""
        number = value.argument
        return None if number is None or number >= len(self._paths) else self._paths[number]

    def _is_named(self, value: Value, names: Collection[str], loss: Loss | None) -> bool:
        """Return whether a replicated value is more than a consequence of a choice that is named elsewhere.

        A form of an argument is its consequence, and so is what operations compute of replicated values, the
        sums over the devices of a sharded dimension, and what follows a constraint. Named is what an
        operation without a rule makes of sharded values; what one makes of nothing, unless a replicated
        argument has its shape, as for its gradients; what loses a mesh axis otherwise; and the gradient that
        is returned without a mesh axis of its argument.
        """
        alike = [one for one in self._graph.values[: self._graph.argument_count] if one.shape == value.shape]
        if loss is None:
            if value.definer is not None and _is_opaque(value.definer):
                return True
            operands = () if value.definer is None else value.definer.operands
            is_made = all(math.prod(one.shape or ()) < MIN_SHARD_ELEMENTS for one in operands)
            return is_made and not any(value.axes) and all(any(one.axes) for one in alike)
        if loss.reason != "contracted":
            return loss.reason != "constraint"
        return self._is_returned(value) and any(self._has(one.axes, name) for one in alike for name in names)

    def _is_returned(self, value: Value) -> bool:
        """Return whether the program returns a value, or a form of it, with its mesh axes."""
        found = (of for of, _, _ in self._forms(value) if of.returned is not None)
        return any(sorted(of.axes) == sorted(value.axes) for of in found)

    def _forms(self, value: Value) -> Iterator[tuple[Value, Operation | None, int]]:
        """Yield a value and its forms: of each also the operations that use it, with the operand's place."""
        waiting, seen = deque([value]), {id(value)}
        while waiting and len(seen) < MOST_STEPS:
            of = waiting.popleft()
            yield of, None, 0
            after = list(self._graph.inside.get(id(of), ()))
            for operation, place in self._graph.places.get(id(of), ()):
                if place < len(operation.operands):
                    yield of, operation, place
                    if operation.name in PASSING and operation.results:
                        after.append(operation.results[min(place, len(operation.results) - 1)])
            waiting += [one for one in after if id(one) not in seen]
            seen.update(map(id, after))

    def _batch_axes(self, value: Value) -> frozenset[str]:
        """Return the mesh axes that shard dimensions which a value lacks, in operands that it is used with.

        The result has these dimensions, such as that of the batch: sharded over these axes, the value is
        gathered for the operation.
        """
        found: set[str] = set()
        for _, operation, place in self._forms(value):
            if operation is not None and (rule := operation.rule) is not None:
                own = {factor for dim in rule.operands[place] for factor in dim}
                kept = {factor for dims in rule.results for dim in dims for factor in dim}
                for letter in self._operand_letters(rule, operation.sharding[0]):
                    if letter.position != place and letter.factor in kept - own:
                        found.update(part.name for part in letter.parts)
        return frozenset(found)

    def _conflict(self, operation: Operation, rule: Rule, name: str, letters: Sequence[Letter]) -> Conflict:
        """Return a conflict, which is meant if it gathers arguments over axes of the other's batch."""
        found = super()._conflict(operation, rule, name, letters)
        operands = [one for one in letters if one.position >= 0]
        givers = [one for one in operands if self.maker(value_of(operation, one)).argument is not None]
        is_meant = any(
            part.name in self._batch_axes(value_of(operation, one)) for one in givers for part in one.parts
        )
        return replace(found, is_meant=is_meant)

    def _found_losses(self, operation: Operation, rule: Rule) -> Iterator[Loss]:
        """Yield losses, which are meant if a constraint gathers over axes of the batch of another operand."""
        for loss in super()._found_losses(operation, rule):
            is_meant = loss.reason == "constraint" and (
                self._graph.part(loss.mesh_axis).name in self._batch_axes(operation.results[0])
            )
            yield replace(loss, is_meant=is_meant) if is_meant else loss

    @remembered
    def _finer(
        self, shape: tuple[int, ...], axes: Axes, batch: frozenset[str]
    ) -> tuple[tuple[str, ...], int]:
        """Return the mesh axes that should shard a value further, and the number of their devices."""
        sizes = self._graph.sizes
        unused = tuple(
            (name, size) for name, size in sizes.items() if not (name in batch or self._has(axes, name))
        )
        further = advised_axes(shard_of(shape, axes, sizes), unused)
        names = tuple(name for dim in further for name in dim)
        return names, math.prod(sizes[name] for name in names)

    def _explaining(self, value: Value, names: Collection[str]) -> Loss | None:
        """Return the nearest loss of some mesh axes before a value."""
        waiting, seen = deque([value]), {id(value)}
        while waiting and len(seen) < MOST_STEPS:
            value = waiting.popleft()
            before = [value.same] if value.same is not None else []
            if value.definer is not None:
                for loss in self._losses_of(value.definer):
                    if self._graph.part(loss.mesh_axis).name in names:
                        return loss
                before += [] if before else value.definer.operands
            waiting += [one for one in before if id(one) not in seen]
            seen.update(map(id, before))
        return None

    def _facts(self, value: Value) -> dict[str, Any]:
        """Return the fields of a value that an operation computes. Those of equal ones are one object."""
        place = value.definer.place if value.definer is not None else NOWHERE
        axes = self.origins(value)
        where = self._where(place)
        line = id(where["origin"]), where["columns"], where["phase"]
        is_manual = value.definer is not None and value.definer.is_manual
        manual = () if value.definer is None else value.definer.manual_here
        key = value.shape, value.dtype, value.axes, place.op, id(axes), manual, value.varying, *line
        if key not in self._known_facts:
            self._known_facts[key] = {
                "shape": value.shape,
                "dtype": dtype_of(value.dtype),
                "spec": self.spec(value),
                "nbytes": self.nbytes(value),
                "op": place.op,
                "axes": axes,
                "in_shard_map": is_manual,
                "manual_axes": MeshAxes(manual, tuple(map(self._graph.sizes.__getitem__, manual)))
                if manual
                else None,
                "invariant_axes": None
                if value.varying is None
                else tuple(name for name in manual if name not in value.varying),
                **where,
            }
        return self._known_facts[key]

    @functools.cached_property
    def _results(self) -> list[Value]:
        """What the operations of the user compute: of those into which JAX divides one, the last."""
        found: list[Value] = []
        for operation in self._computing:
            users = [user for one in operation.results for user in self._graph.users(one)]
            inside = [
                user
                for user in users
                # Equal operations of one line in a row have one place, too.
                if user.place is operation.place
                and user.name != operation.name
                and not user.name.startswith("sdy.")
            ]
            if not users or len(inside) < len(users):
                found += (value for value in operation.results if value.shape is not None)
        return found

    def is_uneven(self, value: Value) -> bool:
        """Return whether a sharded dimension is empty, does not divide, or has a part of a mesh axis."""
        counts = [math.prod(self._graph.part(name).size for name in names) for names in value.axes]
        has_parts = any(name not in self._graph.sizes for names in value.axes for name in names)
        shards = zip(value.shape or (), counts, strict=False)
        return has_parts or any(dim % count or (not dim and count > 1) for dim, count in shards)


def _is_opaque(operation: Operation) -> bool:
    """Return whether sharded values go into an operation without a rule, and none comes out."""
    given, made = (any(any(one.axes) for one in of) for of in (operation.operands, operation.results))
    return operation.rule is None and given and not made
