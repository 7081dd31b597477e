"""The operations that collectives are needed for, from Shardy's propagation of the same program."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

from ..arrays.origins.origins import UserLines
from ..base.grouping import by_key
from ..facts.reports.collectives import Collective
from ..facts.reports.lost_batch import LostBatch
from ..facts.reports.program_values import ProgramValue
from ..facts.reports.propagation import AxisOrigin, Because, ConflictOperand, Loss
from ..geometry.layouts.spec import Spec, effective_spec, same_spec
from ..xla.hlo.dataflow import REDUCTIONS
from ..xla.hlo.module import Instruction
from .propagation.axis_origins import Propagated
from .propagation.batch import lost_batches
from .propagation.conflicts import conflict_of, losing, losses_of, lost_at_return, operand_of, where
from .propagation.graph import Key, Operation, Rule, Value, shard_without
from .propagation.helper import NoAnswerError
from .propagation.letters import excluding, is_alike, kept_factors, operand_letters, value_of
from .propagation.propagation_report import propagated, results_of
from .propagation.ways import constraint_of, consumers, has_one_user, way_of

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
        "rule": operation.written_rule,
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


_UPDATE_SLICE = "stablehlo.dynamic_update_slice"
_MOVING = frozenset(
    f"stablehlo.{name}"
    for name in ("concatenate", "dynamic_update_slice", "pad", "reduce_window", "reverse", "slice")
)
"""Names of operations that may need a collective of their own along a sharded dimension."""
_MOST = 3
"""Maximum number of outputs that a caveat names."""


class Reasons:
    """The operations that the collectives of a compiled program are needed for.

    An operation is known by its name and its line, which are the same in the compiled program.

    Args:
        arguments: Arguments of the program.
        outputs: Outputs of the program.
        lowered: The ``jax.stages.Lowered`` that it is compiled from.
        lines: The search for the user's line.
    """

    def __init__(
        self,
        arguments: Sequence[ProgramValue],
        outputs: Sequence[ProgramValue],
        lowered: Any,
        lines: UserLines,
    ) -> None:
        self._arguments = arguments
        self._outputs = outputs
        self._lowered = lowered
        self._lines = lines
        self.caveats: tuple[str, ...] = ()
        """What makes reasons unknown or unsure, if there was a collective."""

    @cached_property
    def _needs(self) -> _Needs | None:
        """The program after the propagation."""
        try:
            program = propagated(self._lowered, self._arguments, self._outputs, self._lines)
        except NoAnswerError as error:
            self.caveats = (f"Why collectives are needed is unknown: {error}.",)
            return None
        self.caveats = _differences(program, self._outputs)
        return _Needs(program)

    @property
    def lost_batches(self) -> tuple[LostBatch, ...]:
        """Where mesh axes stop sharding the data; nothing if it is not known."""
        return () if self._needs is None else lost_batches(self._needs.program)

    def of(
        self,
        collective: Collective,
        users: Sequence[Instruction],
        makers: Iterable[Instruction],
        followers: Iterable[Instruction],
    ) -> tuple[Because, ...]:
        """Return what a collective is needed for; nothing if an operation that uses the array has no reason.

        Args:
            collective: The collective.
            users: The operations that use the array.
            makers: The operations that compute what is moved; of a sum, itself.
            followers: The first operation on each way of the array, which may only pass it on.
        """
        if self._needs is None or not collective.axes:
            return ()
        axes = frozenset(name.partition(":")[0] for name in collective.axes)
        moved = _Moved(collective.kind, axes, collective.shape)
        made_by = frozenset(
            {*map(_key, makers), *([] if collective.path is None else [(collective.path, (), 0)])}
        )
        if collective.kind in REDUCTIONS:
            return self._needs.reason(moved, "summed", made_by)
        behind = frozenset(map(_key, followers)), frozenset(map(_key, users))
        made = self._needs.reason(moved, "made", made_by, None, *behind)
        used = [self._needs.reason(moved, "used", made_by, _key(user)) for user in users]
        if not made and not all(used):
            return ()
        reasons = dict.fromkeys((*made, *itertools.chain(*used)))
        return tuple(sorted(reasons, key=lambda reason: reason.phase == "backward"))


class _Moved(NamedTuple):
    """What a collective moves."""

    kind: str
    axes: frozenset[str]
    """Mesh axes."""
    shape: tuple[int, ...]
    """Shape on a device."""

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class _Needs:
    """What a program needs collectives for, by the names and lines of its operations."""

    def __init__(self, program: Propagated) -> None:
        self.program = program
        self._graph = graph = program.graph
        self._operations = by_key((operation.place.key, operation) for operation in graph.operations)
        self._causes = by_key(((cause.role, cause.key), cause) for cause in causes(program))
        # Equal layers have equal collectives.
        self.reason = functools.cache(self._reason)

    def _reason(
        self,
        moved: _Moved,
        role: Role,
        made_by: frozenset[Key],
        user: Key | None = None,
        followers: frozenset[Key] = frozenset(),
        users: frozenset[Key] = frozenset(),
    ) -> tuple[Because, ...]:
        """Return the operation that a collective is needed for: it moves a value of it over its mesh axes.

        Nothing if another operation of the same name and line, without a need, can have that value.

        Args:
            moved: What the collective moves.
            role: Whether the operation uses that, or computes it.
            made_by: The operations that compute it.
            user: The operation that uses it.
            followers: The first operations on each way of it. All have to be behind what is made.
            users: The first operations on each way that do not only pass it on: XLA may give those that do
                the name of what computes it.
        """
        keys = made_by if user is None else [user]

        def made(values: Iterable[Value]) -> list[Value]:
            return [value for value in values if user is None or self._comes_from(value, made_by, moved.axes)]

        causes = [
            cause
            for cause in itertools.chain(*(self._causes.get((role, key), ()) for key in keys))
            if not moved.axes.isdisjoint(cause.because.mesh_axes)
            and any(self._can_be(moved, value) for value in made(cause.values))
        ]
        fitting = [
            cause
            for cause in causes
            if moved.axes.issubset(cause.because.mesh_axes)
            and any(self._is_moved(moved, value, cause.because.mesh_axes) for value in made(cause.values))
        ]
        known = {cause.operation for cause in fitting}
        if any(cause.operation not in known for cause in causes):
            return ()
        names = {operation.name for operation in known if operation is not None}
        for other in itertools.chain(*(self._operations.get(key, ()) for key in keys if names)):
            if other in known or other.name not in names:
                continue
            if user is not None:
                is_meant = bool(made(other.operands))
            elif role == "summed":
                shards = (self._shard(result, frozenset()) for result in other.results)
                is_meant = any(sorted(shard) == sorted(moved.shape) for shard in shards)
            else:
                is_meant = any(self._can_be(moved, result) for result in other.results)
            if is_meant:
                return ()
        if role == "made":
            fitting = [
                cause
                for cause in fitting
                # A clash with the result moves shards, and gathers none.
                if (cause.because.kind == "constraint" or moved.kind != "all-gather")
                and self._is_behind(cause, followers - made_by, users)
            ]
        # Of several clashes of one operation, that over these mesh axes alone is the reason.
        exact = {cause.operation for cause in fitting if moved.axes == {*cause.because.mesh_axes}}
        return _common(
            cause.because
            for cause in fitting
            if cause.operation not in exact or moved.axes == {*cause.because.mesh_axes}
        )

    def _shard(self, value: Value, without: frozenset[str]) -> tuple[int, ...]:
        return shard_without(self._graph, value.shape or (), value.axes, without)

    def _comes_from(self, value: Value, made_by: frozenset[Key], mesh_axes: frozenset[str]) -> bool:
        """Return whether some operations compute a value, and it loses none of some mesh axes on the way.

        What loses one on the way, such as a reshape, may need the collective as well.
        """
        maker, lost = way_of(self._graph, value)
        return key_of(self.program, maker) in made_by and lost.isdisjoint(mesh_axes)

    def _is_behind(self, cause: Cause, followers: frozenset[Key], users: frozenset[Key]) -> bool:
        """Return whether all that has the array of a collective uses what is made, or returns it."""
        keys, is_returned = consumers(self._graph, cause.after)
        if not followers:
            return is_returned
        if not followers <= keys:
            followers, keys = users, consumers(self._graph, cause.after, is_passed_on=True)[0]
        return (
            bool(followers)
            and followers <= keys
            and not any(map(_moves, itertools.chain(*(self._operations.get(key, ()) for key in followers))))
        )

    def _is_moved(self, moved: _Moved, value: Value, mesh_axes: Iterable[str]) -> bool:
        """Return whether a collective moves as much as a value has without some mesh axes."""
        lacking = {moved.axes, frozenset(mesh_axes)}
        if moved.kind != "all-gather":
            lacking.add(frozenset())
        return any(math.prod(self._shard(value, without)) == moved.size for without in lacking)

    def _can_be(self, moved: _Moved, value: Value) -> bool:
        """Return whether a collective moves as much as a value has without any of its mesh axes."""
        names = {name.partition(":")[0] for names in value.axes for name in names}
        lacking = (
            combination
            for count in range(len(names) + 1)
            for combination in itertools.combinations(names, count)
        )
        return any(math.prod(self._shard(value, frozenset(axes))) == moved.size for axes in lacking)


def _moves(operation: Operation) -> bool:
    """Return whether an operation may need a collective of its own along a sharded dimension."""
    whole = [False] * max((len(operand.axes) for operand in operation.operands), default=0)
    if operation.name == _UPDATE_SLICE:
        # Along a dimension that is replaced whole, nothing moves: such as in the stack of a scan.
        shapes = (operation.operands[place].shape or () for place in (0, 1))
        whole = [length == replaced for length, replaced in zip(*shapes, strict=True)]
    return operation.name in _MOVING and any(
        names and not is_whole
        for operand in operation.operands
        for names, is_whole in zip(operand.axes, whole, strict=False)
    )


def _key(instruction: Instruction) -> Key:
    """Return what an operation is known by; of several that are merged, the first."""
    return (instruction.op_name or "").partition(";jit(")[0], instruction.frames, instruction.column


def _common(reasons: Iterable[Because]) -> tuple[Because, ...]:
    """Return what the operations of one name and line have in common; nothing if that is not a reason."""
    different = [*dict.fromkeys(reasons)]
    alike = {replace(reason, operands=()) for reason in different}
    if len(alike) != 1:
        return ()
    if (
        len({tuple((operand.letter, operand.spec) for operand in reason.operands) for reason in different})
        > 1
    ):
        return (*alike,) if different[0].kind == "sum" else ()
    columns = zip(*(reason.operands for reason in different), strict=True)
    return (replace(different[0], operands=tuple(map(_common_operand, columns))),)


def _common_operand(operands: tuple[ConflictOperand, ...]) -> ConflictOperand:
    """Return an operand without what differs."""
    common = operands[0]
    if len({operand.axis_origin for operand in operands}) > 1:
        common = replace(common, axis_origin=AxisOrigin(mesh_axis=common.axis_origin.mesh_axis, kind=None))
    return common if len({operand.name for operand in operands}) == 1 else replace(common, name="")


def _differences(program: Propagated, outputs: Sequence[ProgramValue]) -> tuple[str, ...]:
    """Return a caveat on the outputs that Shardy alone would shard in another way."""
    texts, graph = [], program.graph
    for output, value in zip(outputs, results_of(graph, len(outputs)), strict=True):
        if value is None or output.got is None or output.got.spec is None:
            continue
        spec = Spec(value.axes)
        if not same_spec(spec, graph.sizes, output.got.spec, graph.sizes):
            shown = [effective_spec(spec_shown, graph.sizes) for spec_shown in (spec, output.got.spec)]
            texts.append(f"{output.path} {shown[0]} (compiled: {shown[1]})")
    if not texts:
        return ()
    more = f" and {len(texts) - _MOST} more" if len(texts) > _MOST else ""
    return (
        "Propagation and the compiled program disagree, so that reasons of collectives may be wrong:"
        f" {', '.join(texts[:_MOST])}{more}.",
    )
