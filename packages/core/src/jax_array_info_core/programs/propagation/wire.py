"""The reply of the process that runs Shardy's passes, and the program that is read from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from ...base.reading_lock import prepared
from .graph import Axes, Factors, Graph, Operation, Place, Rule, Value, dtype_of, read_place


class ValueRow(NamedTuple):
    """A value, by the numbers of what it has."""

    type: int
    sharding: int | None
    origins: int | None


class RuleRow(NamedTuple):
    """A rule of an operation."""

    sizes: tuple[int, ...]
    """Size of each factor."""
    operands: Factors
    results: Factors
    whole: frozenset[int]
    """Factors that the operation needs as a whole."""


class OperationRow(NamedTuple):
    """An operation, by the numbers of what it has."""

    name: str
    """Name in MLIR."""
    place: int
    operands: tuple[int, ...]
    results: tuple[int, ...]
    rule: int | None
    origin: str | None
    """Name of a constraint or a ``shard_map`` in origins."""
    request: int | None
    number: int | None
    """Number in the module as it is read, as in ``edits.Edit``; None if a pass added it."""
    blocks: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    """Arguments and operations of each block."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A module after the passes. The dict that ``worker.answer`` returns has these fields."""

    meshes: tuple[tuple[tuple[str, int], ...], ...]
    """Name and size of each axis of each mesh."""

    arguments: int
    """Number of the arguments of the program: its first values."""

    results: tuple[int | None, ...]
    """Number of the sharding of each output."""

    values: tuple[ValueRow, ...]
    operations: tuple[OperationRow, ...]

    manual: dict[int, tuple[str, ...]]
    """Manual mesh axes of each ``shard_map``, by its number."""

    places: tuple[str, ...]
    """Locations as MLIR prints them."""

    types: tuple[tuple[str, tuple[int, ...] | None], ...]
    """Element type as MLIR prints it, and shape; None for a token."""

    shardings: tuple[Axes, ...]

    requests: tuple[Axes, ...]
    """Mesh axes that constraints and ``shard_map`` request themselves."""

    origins: tuple[dict[str, str], ...]
    """Origin of each mesh axis as Shardy writes it: ``input: 2``."""

    rules: tuple[RuleRow, ...]


class Estimate(NamedTuple):
    """What a device sends, computes and holds, as Shardy's collectives have it."""

    sent: int
    """Bytes sent."""
    flops: int
    """FLOPs of products."""
    value_nbytes: int
    """Bytes of all values, each once."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One of an answer, an estimate, a number of bytes, an error, and how the process ended."""

    answer: Answer | None = None
    estimate: Estimate | None = None
    sent_nbytes: int | None = None
    """Bytes that a device sends for an expression; None if the question was another one."""
    error: str = ""
    ended: str | None = None


def read_reply(data: bytes) -> Reply:
    """Return a reply from JSON.

    Raises:
        ValueError: If it is none.
    """
    import msgspec

    return msgspec.json.decode(data, type=prepared(Reply))


@dataclass(eq=False)
class _Reading:
    """A program that is read from an answer."""

    answer: Answer
    graph: Graph
    rules: list[Rule]
    places: list[Place]
    inner_places: dict[tuple[int, Place], Place] = field(default_factory=dict)
    """Locations inside of functions, by the number of the location and the place of the call."""

    def read(self, number: int, outside: Operation | None) -> None:
        """Add an operation and those inside it."""
        row, values, outputs = self.answer.operations[number], self.graph.values, self.graph.outputs
        operation = Operation(
            name=row.name,
            place=self._place(row.place, outside),
            operands=tuple(map(values.__getitem__, row.operands)),
            results=tuple(map(values.__getitem__, row.results)),
            rule=None if row.rule is None else self.rules[row.rule],
            origin=row.origin,
            number=row.number,
            requested=() if row.request is None else self.answer.requests[row.request],
            outside=outside,
            manual=self.answer.manual.get(number, ()),
        )
        self.graph.operations.append(operation)
        varying = _varying(operation)
        for value in operation.results:
            value.definer, value.varying = operation, varying
        if row.name == "func.return":
            outputs[:] = operation.operands
        elif row.name == "sdy.data_flow_edge":
            operation.results[0].outer = operation.operands[0]
        for arguments, inside in row.blocks:
            _enter(operation, map(values.__getitem__, arguments), is_loop=row.name == "stablehlo.while")
            for inner in inside:
                self.read(inner, operation)
        if row.blocks:  # what leaves the last one: the body of a loop, a branch, a function
            for value, leaving in zip(operation.results, self.graph.operations[-1].operands, strict=False):
                value.outer = leaving
                if row.name == "sdy.named_computation":
                    value.varying = leaving.varying

    def _place(self, number: int, outside: Operation | None) -> Place:
        """Return a location, inside of a function with that of the call, as in a compiled program."""
        place = self.places[number]
        while outside is not None and outside.name != "sdy.named_computation":
            outside = outside.outside
        if outside is None:
            return place
        call = outside.place
        key = number, call
        if key not in self.inner_places:
            name = place.name if place.name.startswith(call.name) else f"{call.name}/{place.name}"
            frames, columns = (*place.frames, *call.frames), (*place.columns, *call.columns)
            self.inner_places[key] = Place(
                name, frames, columns, place.column if place.frames else call.column
            )
        return self.inner_places[key]


def _enter(operation: Operation, arguments: Iterable[Value], *, is_loop: bool) -> None:
    """Connect the arguments of a region with the values that enter it."""
    outer = operation.results if is_loop else operation.operands
    dims = iter(operation.requested)
    for argument, value, entering in zip(arguments, outer, operation.operands, strict=False):
        argument.outer = entering
        argument.varying = None if is_loop else entering.varying
        names = {name for names in islice(dims, len(argument.shape or ())) for name in names}
        if argument.varying is not None:
            argument.varying |= names & set(operation.manual)
        if is_loop and not any(argument.axes):
            argument.axes, argument.origins = value.axes, value.origins


def read_graph(answer: Answer) -> Graph:
    """Return the program of an answer."""
    types = [(dtype_of(text), shape) for text, shape in answer.types]

    values = [
        Value(
            *types[row.type],
            _axes(None if row.sharding is None else answer.shardings[row.sharding], types[row.type][1]),
            {} if row.origins is None else answer.origins[row.origins],
        )
        for row in answer.values
    ]
    sizes = {name: size for mesh in answer.meshes for name, size in mesh}
    graph = Graph(sizes, values, answer.arguments)
    reading = _Reading(
        answer, graph, [Rule(*rule) for rule in answer.rules], [*map(read_place, answer.places)]
    )
    inside = {number for row in answer.operations for _, numbers in row.blocks for number in numbers}
    for number in range(len(answer.operations)):
        if number not in inside:
            reading.read(number, None)
    for number, value in enumerate(graph.values[: answer.arguments]):
        value.argument = number
    graph.outputs = [
        Value(value.dtype, value.shape, value.axes, dict(value.origins), returned=number, outer=value)
        for number, value in enumerate(graph.outputs)
    ]
    for value, sharding in zip(graph.outputs, answer.results, strict=False):
        if sharding is not None:
            value.axes = _axes(answer.shardings[sharding], value.shape)
    graph.values += graph.outputs
    return graph


_SHARED = ("all_gather", "all_reduce", "collective_broadcast", "custom_call", "rng")
"""Operations inside of a ``shard_map`` whose results may be alike where their operands differ, or differ."""
_MOVED = ("all_to_all", "collective_permute", "reduce_scatter")
"""Operations whose results also differ along the mesh axes that they move data over."""


def _varying(operation: Operation) -> frozenset[str] | None:
    """Return the manual mesh axes over which the results of an operation can differ.

    They are those of its operands. They are not known behind a loop, a branch, a sum over devices, a call
    and the number of the device.
    """
    name = operation.name.partition(".")[2]
    if not operation.manual_here or name in ("constant", "iota"):
        return frozenset()
    if name in _SHARED or (operation.rule is None and name != "data_flow_edge"):
        return None
    varying: frozenset[str] = frozenset()
    for value in operation.operands:
        if value.varying is None:
            return None
        varying |= value.varying
    return None if name in _MOVED and not varying.issuperset(operation.manual_here) else varying


def _axes(axes: Axes | None, shape: tuple[int, ...] | None) -> Axes:
    # A value on one device, such as that of a callback, has a sharding without dimensions.
    return axes or ((),) * len(shape or ())
