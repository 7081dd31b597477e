"""Pins, the shardings that the user can change: of arguments, outputs, constraints, and other values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...base.grouping import by_key
from ...facts.pages.folds import path_pieces
from ...facts.reports.program import ProgramReport
from ...geometry.layouts.dtypes import bits_of_name, packed_nbytes
from ...xla.hlo.source import Frame
from ..donations import common_end
from ..propagation.axis_origins import OWN, Propagated
from ..propagation.data import data_of
from ..propagation.graph import Graph, Operation, Value, has_axis
from ..propagation.ways import source_of
from .edits import Axes, Columns, Edit, Pin, Site, SiteValue

LEAST_NBYTES = 2**14
"""Bytes below which the sharding of a value is not changed."""
_CONSTRAINT, _CALL = "sdy.sharding_constraint", "sdy.named_computation"
_HEAVY = tuple(
    f"stablehlo.{name}"
    for name in (
        *("cholesky", "convolution", "custom_call", "dot_general", "fft", "gather", "scatter", "sort"),
        "triangular_solve",
    )
)
"""Operations whose results are worth a constraint of their own."""
_NOT_VALUES = ("sdy.", "func.", "stablehlo.return", "stablehlo.constant", "stablehlo.while")
Line = tuple[str, int]
"""File and number of a line."""


def parts(axes: Axes, sizes: Mapping[str, int]) -> int:
    """Return the number of parts of a sharding."""
    return math.prod(sizes.get(name, 1) for names in axes for name in names)


def names_in(axes: Axes) -> tuple[str, ...]:
    """Return the mesh axes of a sharding."""
    return tuple(name for names in axes for name in names)


def fits(shape: Sequence[int], axes: Axes, sizes: Mapping[str, int]) -> bool:
    """Return whether a sharding divides a shape evenly."""
    counts = (math.prod(sizes.get(name, 1) for name in names) for names in axes)
    return all(not size % count for size, count in zip(shape, counts, strict=True))


def moved(axes: Axes, name: str, dim: int | None) -> Axes:
    """Return a sharding with a mesh axis on another dimension, or on none.

    >>> moved((("x",), ()), "x", 1), moved((("x",), ()), "x", None)
    (((), ('x',)), ((), ()))
    """
    kept = [tuple(other for other in names if other != name) for names in axes]
    if dim is not None:
        kept[dim] = (*kept[dim], name)
    return tuple(kept)


@dataclass(frozen=True, eq=False)
class Argument:
    """An argument of the program that can have another sharding."""

    number: int
    path: str
    shape: tuple[int, ...]
    dtype: str
    axes: Axes
    nbytes: int
    """Bytes of the whole array."""
    output: int | None
    """Number of the output that takes its place in the next call."""

    @property
    def kind(self) -> tuple[tuple[int, ...], str]:
        """Shape and dtype."""
        return self.shape, self.dtype

    @property
    def key(self) -> str:
        """The last key of its path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, eq=False)
class Constrained:
    """Constraints of one call chain of the user: in the forward pass, its recomputation, of gradients."""

    pin: Pin
    operations: tuple[Operation, ...]
    """The operations, one of each number."""

    @property
    def largest(self) -> Operation:
        """The operation on the largest value, which is named."""
        return max(self.operations, key=lambda one: whole_nbytes(one.results[0]))


@dataclass(frozen=True, eq=False)
class Place:
    """The value of an expression, which can have a constraint: with its gradients."""

    site: SiteValue
    value: Value
    operation: Operation
    edits: tuple[tuple[str, int, int], ...]
    """Kind, number and place of each edit."""
    is_heavy: bool
    """Whether it takes a product, a transform or the like."""

    def edited(self, axes: Axes) -> tuple[Edit, ...]:
        """Return the edits that give it a sharding."""
        return tuple(Edit(kind, number, axes, place) for kind, number, place in self.edits)  # type: ignore[arg-type]

    def pin(self, axes: Axes) -> Pin:
        """Return the constraint."""
        return Pin("constraint", axes, before=self.value.axes, site=self.site.site)


@dataclass(eq=False)
class Pins:
    """A program, and what can be changed in it."""

    program: Propagated
    report: ProgramReport
    sites: Sequence[SiteValue]
    """The expressions of the user's source whose values are arrays."""

    ask: Callable[[Sequence[Edit]], Graph]
    """Function that returns the program after Shardy's propagation with some edits.

    It raises ``NoAnswerError`` if there is no answer.
    """

    can_place: bool = True
    """Whether arguments and outputs can have other shardings."""

    @property
    def graph(self) -> Graph:
        """The program after the propagation."""
        return self.program.graph

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Size of each mesh axis that divides something."""
        return {name: size for name, size in self.graph.sizes.items() if size > 1}

    @cached_property
    def arguments(self) -> list[Argument]:
        """The arguments that are large enough, and have whole mesh axes."""
        return [*self._arguments()] if self.can_place else []

    def _arguments(self) -> Iterator[Argument]:
        outputs = self._outputs_of()
        for number, value in enumerate(self.graph.values[: self.graph.argument_count]):
            path = self.program.path(value)
            if path and value.shape and whole_nbytes(value) >= LEAST_NBYTES and self.is_simple(value.axes):
                nbytes, output = whole_nbytes(value), outputs.get(number)
                yield Argument(number, path, value.shape, value.dtype, value.axes, nbytes, output)

    def _outputs_of(self) -> dict[int, int]:
        """Return the output that takes the place of each argument: it reuses its memory, or resembles it."""
        graph, program = self.graph, self.program
        values = graph.values[: graph.argument_count]
        numbers = {program.path(value): number for number, value in enumerate(values)}
        outputs = {named.path: number for number, named in enumerate(program.outputs)}
        reused = {donation.path: donation.output for donation in self.report.donations or ()}
        tied = {
            numbers[path]: outputs[output]
            for path, output in reused.items()
            if path in numbers and output in outputs
        }
        left = by_key(
            ((value.shape, value.dtype), number)
            for number, value in enumerate(graph.outputs)
            if number not in tied.values()
        )
        for number, value in enumerate(values):
            alike = left.get((value.shape, value.dtype), [])
            path = program.path(value)
            if path and alike and number not in tied:
                ends = {other: common_end(path, program.outputs[other].path or "") for other in alike}
                tied[number] = max(alike, key=ends.__getitem__)
                alike.remove(tied[number])
        return tied

    def is_simple(self, axes: Axes) -> bool:
        """Return whether a sharding has whole mesh axes alone."""
        return all(name in self.graph.sizes for names in axes for name in names)

    def given(self, arguments: Iterable[Argument], axes: Axes | None) -> tuple[list[Pin], list[Edit]]:
        """Return the change that shards arguments, with the outputs that take their places.

        Args:
            arguments: Arguments with one sharding.
            axes: The other one; None to leave it to the propagation.
        """
        arguments = [*arguments]
        edits = [Edit("argument", argument.number, axes) for argument in arguments]
        paths: list[str] = []
        pins: list[Pin] = []
        respecs: dict[Pin, None] = {}
        for argument in arguments:
            if argument.output is None:
                continue
            constraint = self.constraint_of_output.get(argument.output)
            if constraint is None:
                edits.append(Edit("output", argument.output, axes))
                paths.append(self.program.outputs[argument.output].path or "outputs")
            else:
                edits.append(Edit("constraint", constraint, axes))
                own = self.chain_of[constraint].pin
                respecs[own._replace(axes=axes, before=arguments[0].axes)] = None
        before = arguments[0].axes
        pins.append(Pin("argument", axes, before, (*(argument.path for argument in arguments), *paths)))
        return [*pins, *respecs], edits

    @cached_property
    def constraint_of_output(self) -> dict[int, int]:
        """Number of the user's constraint that an output comes from directly, by the number of the output."""
        outers = [output.outer for output in self.graph.outputs]
        definers = [outer.definer if outer is not None else None for outer in outers]
        return {
            number: definer.number
            for number, definer in enumerate(definers)
            # With Explicit axes, JAX has constraints of its own.
            if definer is not None and definer.number is not None and definer.number in self.chain_of
        }

    @cached_property
    def constraints(self) -> list[Constrained]:
        """The constraints of the user, those of one call chain together, in the order of the program."""
        every = (
            operation
            for operation in self.graph.operations
            if operation.name == _CONSTRAINT and operation.number is not None and not operation.is_manual
            if operation.place.op in OWN
        )
        chains = by_key((self._chain(operation), operation) for operation in every)
        return [
            Constrained(
                Pin("respec", None, group[0].results[0].axes, frames=frames, columns=columns),
                tuple({operation.number: operation for operation in group}.values()),
            )
            for (frames, columns), group in chains.items()
            if frames
        ]

    @cached_property
    def chain_of(self) -> dict[int | None, Constrained]:
        """The constraints of a call chain, by the number of one."""
        return {
            operation.number: constrained
            for constrained in self.constraints
            for operation in constrained.operations
        }

    def _chain(self, operation: Operation) -> tuple[tuple[Frame, ...], tuple[Columns, ...]]:
        """Return the user's lines that lead to an operation, innermost first."""
        place, hidden = operation.place, self.program.lines.is_hidden
        rows = [row for row in zip(place.frames, place.columns, strict=True) if not hidden(row[0].file)]
        return tuple(frame for frame, _ in rows), tuple(columns for _, columns in rows)

    @cached_property
    def places(self) -> list[Place]:
        """The values of expressions that can have a constraint, in the order of the program."""
        lines = by_key(((value.site.file, value.site.line), value) for value in self.sites)
        results: dict[Site, list[Operation]] = {}
        operands: dict[Site, list[tuple[int, int]]] = {}
        known: dict[Site, SiteValue] = {}
        heavy: set[Site] = set()
        used: set[tuple[Site, Operation]] = set()
        backward: set[tuple[Site, Operation]] = set()
        for operation in self.graph.operations:
            taken = [_definer(operand) for operand in operation.operands]
            of_line = self._sites_of(operation, lines)
            if _is_transposed(operation):
                for value in of_line:
                    place = self._cotangent(operation, value.shape)
                    is_first = not any((value.site, other) in backward for other in taken)
                    if place is not None and is_first and operation.number is not None:
                        operands.setdefault(value.site, []).append((operation.number, place))
                    backward.add((value.site, operation))
                continue
            heavy |= {value.site for value in of_line if operation in self._heavy}
            used |= {(value.site, other) for value in of_line for other in taken if other is not None}
            shape = operation.results[0].shape if of_line else None
            of_shape = [value for value in of_line if value.shape == shape]
            if of_shape and shape:
                largest = max(of_shape, key=lambda value: value.site.size)
                results.setdefault(largest.site, []).append(operation)
                known[largest.site] = largest
        last = {site: [one for one in rows if (site, one) not in used] for site, rows in results.items()}
        found = (
            self._place(known[site], of_site, operands.get(site, []), is_heavy=site in heavy)
            for site, of_site in last.items()
            if of_site
        )
        return [one for one in found if one is not None]

    def _cotangent(self, operation: Operation, shape: Sequence[int]) -> int | None:
        """Return the place of the operand of a shape that a gradient comes by; None if there is none."""
        places = [place for place, operand in enumerate(operation.operands) if operand.shape == shape]
        definers = ((place, _definer(operation.operands[place])) for place in places)
        of_gradients = (place for place, one in definers if one is not None and _is_transposed(one))
        return next(of_gradients, places[0] if places else None)

    def _sites_of(self, operation: Operation, lines: Mapping[Line, list[SiteValue]]) -> list[SiteValue]:
        """Return the expressions that an operation may be of: by its columns, or those of its line."""
        is_call = operation.name == _CALL
        is_value = is_call or (operation.number is not None and not operation.name.startswith(_NOT_VALUES))
        if not operation.results or operation.is_manual or not is_value:
            return []
        frames, columns = self._chain(operation)
        around = operation.outside
        if around is not None and around.name == _CALL and len(frames) <= 2 * len(self._chain(around)[0]):
            return []  # of a function of JAX: the value is that of the call
        of_line = lines.get((frames[0].file, frames[0].line), []) if frames else []
        exact = [
            value
            for value in of_line
            if columns[0] == (value.site.column, value.site.end_column)
            and value.site.end_line == value.site.line
        ]
        return exact or [value for value in of_line if columns[0] is None]

    def _place(
        self,
        site: SiteValue,
        results: Sequence[Operation],
        cotangents: Sequence[tuple[int, int]],
        *,
        is_heavy: bool,
    ) -> Place | None:
        """Return the place of an expression; None for a small value, and one with a constraint."""
        values = [operation.results[0] for operation in results]
        last = results[-1]
        if len({value.axes for value in values}) > 1:
            last = max(results, key=lambda operation: parts(operation.results[0].axes, self.sizes))
        value = last.results[0]
        is_constrained = any(source_of(one) in self._constrained for one in values)
        if site.nbytes < LEAST_NBYTES or not self.is_simple(value.axes) or is_constrained:
            return None
        edits = [edit for operation in results for edit in self._after(operation)]
        edits += [("operand", number, place) for number, place in cotangents]
        computing = source_of(value).definer or last  # inside of a call
        return Place(site, value, computing, tuple(dict.fromkeys(edits)), is_heavy) if edits else None

    @cached_property
    def _heavy(self) -> set[Operation]:
        """The operations that take most of the time, and the calls around them."""
        found = set()
        for operation in self.graph.operations:
            around: Operation | None = operation if operation.name in _HEAVY else None
            while around is not None and (around is operation or around.name == _CALL):
                found.add(around)
                around = around.outside
        return found

    @cached_property
    def _constrained(self) -> set[Value]:
        """The values that have a constraint."""
        operations = (one for one in self.graph.operations if one.name == _CONSTRAINT)
        return {source_of(one.operands[0]) for one in operations}

    def _after(self, operation: Operation) -> list[tuple[str, int, int]]:
        """Return the edits on the result of an operation; of a call, on the operands that use it."""
        if operation.number is not None:
            return [("result", operation.number, 0)]
        edits, waiting = [], [operation.results[0]]
        while waiting:
            for user, place in self.graph.places.get(waiting.pop(), ()):
                if user.name == "sdy.data_flow_edge":
                    waiting += user.results if place == 0 else ()
                elif place < len(user.operands) and user.number is not None:
                    edits.append(("operand", user.number, place))
        return edits

    def lost(self, value: Value, axes: Axes | None = None) -> list[tuple[int, str]]:
        """Return the dimensions of a value that are sharded ones of data, and the axes that they lack.

        Args:
            value: The value.
            axes: Another sharding than its own.
        """
        data, axes = data_of(self.program), value.axes if axes is None else axes
        return [
            (dim, name)
            for dim in range(len(value.shape or ()))
            for name in self.sizes
            if (value, dim, name) in data and not has_axis(self.graph, (axes[dim],), name)
        ]

    def with_lost(self, value: Value, axes: Axes) -> Axes:
        """Return a sharding with the mesh axes of data that it lacks for a value, where they divide it."""
        for dim, name in self.lost(value, axes):
            new = moved(axes, name, dim)
            if fits(value.shape or (), new, self.sizes):
                axes = new
        return axes

    def widened(self, shape: Sequence[int], axes: Axes, order: Iterable[int] | None = None) -> Axes:
        """Return a sharding with all unused mesh axes, each on the first dimension that it divides."""
        dims = [*(range(len(shape)) if order is None else order)]
        for name in self.sizes:
            if name not in names_in(axes):
                wider = (moved(axes, name, dim) for dim in dims)
                axes = next((new for new in wider if fits(shape, new, self.sizes)), axes)
        return axes

    def groups(self) -> list[list[Argument]]:
        """Return the arguments that are sharded together: those of equal layers, and whole ones of a type."""
        keys = (
            (argument.kind, argument.axes, path_pieces(argument.path)[::2] if any(argument.axes) else ())
            for argument in self.arguments
        )
        return [*by_key(zip(keys, self.arguments, strict=True)).values()]

    def tied(self, argument: Argument) -> list[Argument]:
        """Return a parameter with its moments and averages: state of its shape whose paths end alike."""
        if argument.output is None:
            return [argument]
        return [
            other
            for other in self.arguments
            if other.output is not None and other.shape == argument.shape and other.key == argument.key
        ]


def whole_nbytes(value: Value) -> int:
    """Return the bytes of a whole value; 0 if unknown."""
    return packed_nbytes(value.shape or (), bits_of_name(value.dtype)) or 0


def _definer(value: Value) -> Operation | None:
    """Return the operation that a value is the result of, of a call as of others."""
    definer = value.definer
    while definer is not None and definer.name == "sdy.data_flow_edge":
        definer = definer.operands[0].definer
    return definer


def _is_transposed(operation: Operation) -> bool:
    """Return whether an operation computes gradients, and not values of the forward pass again."""
    return "transpose(" in operation.place.name and "remat" not in operation.place.name
