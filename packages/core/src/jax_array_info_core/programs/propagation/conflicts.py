"""Conflicts and lost mesh axes of a propagated program."""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from ...base.grouping import by_key
from ...facts.reports.propagation import (
    Conflict,
    ConflictOperand,
    Loss,
    LossReason,
    PropagatedValue,
)
from ...geometry.layouts.dtypes import bits_of_name, named_in_full, packed_nbytes
from ...geometry.layouts.spec import MeshAxes, Spec
from ...xla.hlo.source import pass_of
from .axis_origins import OWN, AxisOrigins, remembered
from .graph import NOWHERE, Axes, Operation, Part, Place, Rule, Value, letter_of, shard_of

_NOT_COMPUTED = (
    "sdy.",
    "func.",
    "stablehlo.return",
    "stablehlo.constant",
    "stablehlo.while",
    "stablehlo.case",
    "stablehlo.if",
)
"""Names of operations that pass values on, and of constants."""
_SHORT = {"i1": "pred", "complex<f32>": "c64", "complex<f64>": "c128"}
MOST_STEPS = 10_000
RESULT = "result"
"""Name of the result of an operation among the operands of its conflict."""


@functools.lru_cache
def dtype_of(text: str) -> str:
    """Return the name of a dtype from an element type of MLIR.

    >>> dtype_of("bf16"), dtype_of("ui8"), dtype_of("i1"), dtype_of("complex<f32>"), dtype_of("f8E4M3FN")
    ('bfloat16', 'uint8', 'bool', 'complex64', 'float8_e4m3fn')
    """
    short = _SHORT.get(text, text.lower().replace("ui", "u", 1))
    return named_in_full(short) or text


class Letter(NamedTuple):
    """A factor of an operation's rule that an operand or the result shards."""

    position: int
    """Number of the operand; from -1 down, that of a result."""

    factor: int
    """Number of the factor."""

    parts: tuple[Part, ...]
    """Mesh axes, major to minor."""

    names: tuple[str, ...]
    """The mesh axes of the dimension, as they are in the spec."""


class Conflicts(AxisOrigins):
    """The conflicts of a program, and the mesh axes that it loses, with lines and paths."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._losses: dict[int, tuple[Loss, ...]] = {}
        self._equal_losses: dict[Loss, Loss] = {}

    def conflicts(self) -> tuple[Conflict, ...]:
        """Return the operations whose operands exclude each other."""
        rows = (
            one
            for operation in self._computing
            if operation.rule is not None
            for name, letters in self._excluding(operation.rule, *operation.sharding)
            for one in [self._conflict(operation, operation.rule, name, letters)]
            if one.nbytes != 0  # of an empty array, nothing moves
        )
        found: dict[Conflict, Conflict] = {}
        return most_first(found.setdefault(row, row) for row in rows)

    def lost(self) -> tuple[Loss, ...]:
        """Return the mesh axes that results lack."""
        inside = (one for operation in self._losing() for one in self._losses_of(operation))
        returned = (self._equal_loss(loss) for _, loss in self._lost_at_return())
        return most_first(itertools.chain(inside, returned))

    def _losing(self) -> Iterator[Operation]:
        """Yield the operations that compute something, and the constraints of the user."""
        yield from self._computing
        for operation in self._graph.operations:
            if operation.name == "sdy.sharding_constraint" and operation.place.op in OWN:
                yield operation

    def _lost_at_return(self) -> Iterator[tuple[Value, Loss]]:
        """Yield each output that lacks a mesh axis that its value has."""
        for output in self._graph.outputs:
            value = output.same
            if value is None or output.shape is None:
                continue
            has = [self._graph.part(name) for names in output.axes for name in names]
            for names in value.axes:
                for name in names:
                    left = _left(self._graph.part(name), has, self._graph.sizes)
                    without, with_it = self.nbytes(output), self.nbytes(value)
                    if left is None or without is None or with_it is None:
                        continue
                    place = value.definer.place if value.definer is not None else NOWHERE
                    loss = Loss(
                        mesh_axis=left,
                        reason="constraint",
                        nbytes=max(without - with_it, 0),
                        op="return",
                        operand=self._name(value),
                        before=self.spec(value),
                        after=self.spec(output),
                        shape=output.shape,
                        dtype=dtype_of(output.dtype),
                        **self._where(place),
                    )
                    yield output, loss

    def _losses_of(self, operation: Operation) -> tuple[Loss, ...]:
        """Return the losses of an operation."""
        if id(operation) not in self._losses:
            rule = operation.rule
            found = () if rule is None or not operation.results else self._found_losses(operation, rule)
            self._losses[id(operation)] = (*map(self._equal_loss, found),)
        return self._losses[id(operation)]

    def _equal_loss(self, loss: Loss) -> Loss:
        """Return the object that stands for a loss and its equals."""
        return self._equal_losses.setdefault(loss, loss)

    def spec(self, value: Value) -> Spec:
        """Return the sharding of a value."""
        return Spec(value.axes)

    def nbytes(self, value: Value, axes: Axes | None = None) -> int | None:
        """Return the bytes of a value on a device."""
        return self._nbytes(value.shape, value.axes if axes is None else axes, value.dtype)

    @remembered
    def _nbytes(self, shape: tuple[int, ...] | None, axes: Axes, dtype: str) -> int | None:
        if shape is None:
            return None
        return packed_nbytes(shard_of(shape, axes, self._graph.sizes), bits_of_name(dtype_of(dtype)))

    @functools.cached_property
    def _computing(self) -> list[Operation]:
        """The operations that compute something."""
        return [one for one in self._graph.operations if not one.name.startswith(_NOT_COMPUTED)]

    @remembered
    def _where(self, place: Place) -> dict[str, Any]:
        """Return the fields for a location."""
        origin = self._line(place)
        columns = next(
            (
                columns
                for frame, columns in zip(place.frames, place.columns, strict=True)
                if origin is not None and (frame.file, frame.line) == (origin.file, origin.line)
            ),
            None,
        )
        return {"origin": origin, "columns": columns, "phase": pass_of(place.name)}

    def _source(self, value: Value) -> Value:
        """Return the value that is the same outside of regions, or inside of the one that it leaves."""
        steps = 0
        while value.same is not None and steps < MOST_STEPS:
            value, steps = value.same, steps + 1
        return value

    def _name(self, value: Value) -> str:
        """Return the path of an argument, or the operation that computes a value; of a cast, what is cast."""
        steps, before = 0, _uncast(value)
        while before is not None and steps < MOST_STEPS:
            value, before, steps = before, _uncast(before), steps + 1
        if value.argument is not None and value.argument < len(self._paths):
            return self._paths[value.argument] or "a constant"
        if value.definer is None:
            return "a value"
        line = self._line(value.definer.place)
        op = value.definer.place.op or value.definer.name.rpartition(".")[2]
        return op if line is None else f"{op} of {line.place}"

    @remembered
    def _letters(
        self, position: int, axes: Axes, dims: tuple[tuple[int, ...], ...], rule: Rule
    ) -> tuple[Letter, ...]:
        """Return the factors that an operand or a result shards."""
        found = []
        for factors, names in zip(dims, axes, strict=False):
            rest = [self._graph.part(name) for name in names]
            for number, factor in enumerate(factors):
                left: float = rule.sizes[factor]
                parts = []
                # What does not divide a factor cannot shard the next one. The last factor has what is left.
                while rest and (left > 1 or number == len(factors) - 1):
                    left = left / rest[0].size if left % rest[0].size == 0 else math.inf
                    parts.append(rest.pop(0))
                if parts:
                    found.append(Letter(position, factor, tuple(parts), names))
        return tuple(found)

    def _operand_letters(self, rule: Rule, operands: Sequence[Axes]) -> list[Letter]:
        """Return the factors that the operands of an operation shard."""
        return [
            letter
            for position, (axes, dims) in enumerate(zip(operands, rule.operands, strict=False))
            for letter in self._letters(position, axes, dims, rule)
        ]

    @remembered
    def _excluding(
        self, rule: Rule, operands: tuple[Axes, ...], results: tuple[Axes, ...]
    ) -> list[tuple[str, list[Letter]]]:
        """Return the mesh axes for which operands exclude each other, with the letters that ask for it."""
        letters = self._operand_letters(rule, operands)
        found = by_key((one.parts[0].name, one) for one in letters if one.factor in rule.whole)
        # An axis that the operation moves to another letter, which is no sum over devices.
        kept = {factor for dims in rule.results for dim in dims for factor in dim}
        moved = [
            (one, other)
            for position, (axes, dims) in enumerate(zip(results, rule.results, strict=False))
            for other in self._letters(-1 - position, axes, dims, rule)
            for one in letters
            if one.factor in kept and one.factor != other.factor
        ]
        for pairs in (itertools.combinations(letters, 2), moved):
            # Of a result, what its operands ask for already is not said again.
            known = {name: {one.factor for one in of} for name, of in found.items() if pairs is moved}
            for pair in pairs:
                name = _exclusion(*pair)
                if name is not None:
                    asking = found.setdefault(name, [])
                    left = (one for one in pair if one not in asking)
                    asking += (one for one in left if one.factor not in known.get(name, ()))
        return [*found.items()]

    def _conflict(self, operation: Operation, rule: Rule, name: str, letters: Sequence[Letter]) -> Conflict:
        operands = tuple(self._operand(operation, one, _text_of(one, name, letters)) for one in letters)
        sizes = [self.nbytes(value_of(operation, one)) for one in letters]
        return Conflict(
            mesh_axis=name,
            rule=str(rule),
            op=operation.place.op,
            operands=operands,
            result=self.spec(operation.results[0]),
            nbytes=min((size for size in sizes if size is not None), default=None),
            **self._where(operation.place),
        )

    def _operand(self, operation: Operation, one: Letter, name: str) -> ConflictOperand:
        """Return an operand, or the result, that shards a letter over a mesh axis."""
        value = value_of(operation, one)
        return ConflictOperand(
            name=RESULT if one.position < 0 else self._name(value),
            spec=self.spec(value),
            letter=letter_of(one.factor),
            axis_origin=self.origin(value, name),
        )

    def _found_losses(self, operation: Operation, rule: Rule) -> Iterator[Loss]:
        """Yield the mesh axes of operands that no result has."""
        result, dims = operation.results[0], rule.results[0]
        if result.shape is None:
            return
        lacking, excluded = self._lacking(rule, *operation.sharding)
        places = {factor: place for place, factors in enumerate(dims) for factor in factors}
        for letter, part, left in lacking:
            value = operation.operands[letter.position]
            place = places.get(letter.factor)
            reason = self._reason(operation, rule, letter, part, excluded, place)
            constraint = self._constraint(result) if reason == "constraint" else None
            parts = letter.parts[: letter.parts.index(part) + 1]
            names = tuple(_left(one, (), self._graph.sizes) or one.name for one in parts)
            axes = list(result.axes)
            more: int | None = 0
            if place is not None and reason != "contracted":
                axes[place] = (*axes[place], left)
                with_it, without = self.nbytes(result, tuple(axes)), self.nbytes(result)
                more = None if with_it is None or without is None else without - with_it
            yield Loss(
                mesh_axis=left,
                reason=reason,
                constraint=None if constraint is None else self._line(constraint.place),
                size=rule.sizes[letter.factor] if reason == "uneven" else None,
                divisor=MeshAxes(names, tuple(one.size for one in parts)) if reason == "uneven" else None,
                nbytes=more,
                op=operation.place.op,
                operand=self._name(value),
                before=self.spec(value),
                after=self.spec(result),
                shape=result.shape,
                dtype=dtype_of(result.dtype),
                **self._where(operation.place),
            )

    @remembered
    def _lacking(
        self, rule: Rule, operands: tuple[Axes, ...], results: tuple[Axes, ...]
    ) -> tuple[list[tuple[Letter, Part, str]], set[str]]:
        """Return the mesh axes of operands that results lack, and those that conflict."""
        has = [self._graph.part(name) for axes in results for names in axes for name in names]
        found: dict[str, tuple[Letter, Part, str]] = {}
        for position, (axes, dims) in enumerate(zip(operands, rule.operands, strict=False)):
            for letter in self._letters(position, axes, dims, rule):
                for part in letter.parts:
                    left = _left(part, has, self._graph.sizes)
                    if left is not None:
                        found.setdefault(left, (letter, part, left))
        excluded = {
            text.partition(":")[0]
            for name, letters in self._excluding(rule, operands, results)
            for text in (name, *(_text_of(letter, name, letters) for letter in letters))
        }
        return [*found.values()], excluded

    def _reason(
        self,
        operation: Operation,
        rule: Rule,
        letter: Letter,
        part: Part,
        excluded: set[str],
        place: int | None,
    ) -> LossReason:
        """Return why the result lacks a mesh axis."""
        if operation.name == "sdy.sharding_constraint":
            return "constraint"
        if place is None or letter.factor in rule.whole:
            return "contracted"
        if part.name in excluded:
            return "conflict"
        count = math.prod(one.size for one in letter.parts[: letter.parts.index(part) + 1])
        if rule.sizes[letter.factor] % count:
            return "uneven"
        return "not propagated" if self._constraint(operation.results[0]) is None else "constraint"

    def _constraint(self, value: Value) -> Operation | None:
        """Return the constraint that gives a value its sharding: one of its users, or what computes it."""
        if value.definer is not None and value.definer.name == "sdy.sharding_constraint":
            return value.definer
        constraints = (
            user
            for user in self._graph.users(value)
            if user.name == "sdy.sharding_constraint" and user.results[0].axes == value.axes
        )
        return next(constraints, None)


def value_of(operation: Operation, letter: Letter) -> Value:
    """Return the operand or the result that shards a letter."""
    if letter.position < 0:
        return operation.results[-1 - letter.position]
    return operation.operands[letter.position]


def _uncast(value: Value) -> Value | None:
    """Return the value that is the same outside of a region, or with another dtype; None for others."""
    if value.same is None and value.definer is not None and value.definer.name == "stablehlo.convert":
        return value.definer.operands[0]
    return value.same


def _exclusion(one: Letter, other: Letter) -> str | None:
    """Return the mesh axis for which two operands exclude each other; None if they agree."""
    if one.factor != other.factor:
        shared = (part for part in one.parts for its in other.parts if part.overlaps(its))
        return next((part.name for part in shared), None) if one.position != other.position else None
    for part, its in zip(one.parts, other.parts, strict=False):
        if part != its:
            pairs = itertools.product(one.parts, other.parts)
            return (
                None if part.overlaps(its) else next((a.name for a, b in pairs if a.overlaps(b)), part.name)
            )
    return None


def _text_of(letter: Letter, name: str, letters: Sequence[Letter]) -> str:
    """Return a mesh axis as the spec has it: the axis, or a part of it; else the one that excludes it."""
    own = (one for one in letter.names if one == name or one.startswith(f"{name}:("))
    other = (one for one in letter.names if any(one not in each.names for each in letters))
    return next(itertools.chain(own, other), name)


def _left(part: Part, has: Iterable[Part], sizes: Mapping[str, int]) -> str | None:
    """Return the part of a mesh axis that results lack, as a spec has it; None if they have all of it."""
    major, size = part.major, part.size
    for own in has:
        if not own.overlaps(part):
            continue
        if own.major <= major:
            kept = own.major * own.size // major
            major, size = major * kept, size // kept if kept <= size else 0
    if size <= 1:
        return None
    return part.name if size == sizes.get(part.name) else f"{part.name}:({major}){size}"


_Row = TypeVar("_Row", bound=PropagatedValue | Conflict | Loss)


def most_first(rows: Iterable[_Row]) -> tuple[_Row, ...]:
    """Return rows, the most bytes first. Those that are one object are one row, with their number."""
    found = [*rows]
    counts = Counter(map(id, found))
    each = {id(row): row for row in found}.values()
    merged: list[_Row] = [
        row if counts[id(row)] == 1 else replace(row, count=counts[id(row)]) for row in each
    ]
    return tuple(sorted(merged, key=lambda row: -(row.nbytes or 0) * row.count))
