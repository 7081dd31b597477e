"""The program after Shardy's propagation: values with their shardings, and operations with their rules."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, NamedTuple

from ...base.grouping import by_key
from ...xla.hlo.source import Frame

Axes = tuple[tuple[str, ...], ...]
"""Mesh axes, or parts of them, of each dimension."""
Key = tuple[str, tuple[Frame, ...], int]
"""Name of an operation, its source lines, innermost first, and its column: the same in a compiled program."""

_LOCATION = re.compile(
    r'"((?:[^"\\]|\\.)*)"\("((?:[^"\\]|\\.)*)":(\d{1,9}):(\d{1,9})(?: to (?:(\d{1,9}))?:(\d{1,9}))?\)'
)
_NAME = re.compile(r'loc\("((?:[^"\\]|\\.)*)"')
_ESCAPES = re.compile(r"(?:\\(?:[0-9A-Fa-f]{2}|\\))+")
_PART = re.compile(r"(.*):\((\d+)\)(\d+)", re.DOTALL)


@dataclass(eq=False)
class Place:
    """The location of an operation."""

    name: str
    """Name with its transformations, such as ``jit(step)/jvp()/dot_general``."""

    frames: tuple[Frame, ...]
    """Source lines, innermost first."""

    columns: tuple[tuple[int, int] | None, ...]
    """Columns of each, from 0: the first, and that after the last; None if unknown, or on several lines."""

    column: int
    """Column at which the operation begins in its innermost line."""

    @property
    def key(self) -> Key:
        """Name, source lines and column."""
        return self.name, self.frames, self.column

    @cached_property
    def op(self) -> str:
        """Name of the operation in JAX."""
        return self.name.rpartition("/")[2].rstrip(":")


NOWHERE = Place("", (), (), 0)
"""The place of what no operation computes."""


@lru_cache(maxsize=4096)
def read_place(text: str) -> Place:
    """Return a location from its text.

    >>> read_place('loc("jit(f)/sin"("f"("a.py":3:4 to :9)))').columns
    ((4, 9),)
    """
    name = _NAME.match(text)
    frames, columns = [], []
    found = _LOCATION.findall(text)
    for function, file, line, start, last_line, end in found:
        frames.append(Frame(_unescaped(file), int(line), _unescaped(function)))
        is_one_line = end and last_line in ("", line)
        columns.append((int(start), int(end)) if is_one_line else None)
    return Place(
        _unescaped(name[1]) if name else "",
        tuple(frames),
        tuple(columns),
        int(found[0][3]) if found else 0,
    )


def _unescaped(text: str) -> str:
    r"""Return the text of a string of MLIR, in which a byte is two hexadecimal digits.

    >>> _unescaped(r"\C3\A9 \22q\22\09\\09")
    'é "q"\t\\09'
    """

    def resolved(escapes: re.Match[str]) -> str:
        digits = escapes[0].replace("\\\\", "\\5C").replace("\\", "")
        return bytes.fromhex(digits).decode("utf-8", "replace")

    return _ESCAPES.sub(resolved, text) if "\\" in text else text


class Part(NamedTuple):
    """A mesh axis, or a part of it."""

    name: str
    """Name of the mesh axis."""

    major: int
    """Number of parts that are more major."""

    size: int
    """Number of devices along it."""

    def overlaps(self, other: Part) -> bool:
        """Return whether two parts share devices' positions."""
        return (
            self.name == other.name
            and self.major < other.major * other.size
            and other.major < self.major * self.size
        )


def read_part(text: str, sizes: Mapping[str, int]) -> Part:
    """Return a mesh axis, or a part of it as Shardy writes it.

    >>> read_part("model:(2)4", {"model": 8})
    Part(name='model', major=2, size=4)
    """
    found = None if text in sizes else _PART.fullmatch(text)
    return (
        Part(text, 1, sizes.get(text, 1)) if found is None else Part(found[1], int(found[2]), int(found[3]))
    )


@dataclass(slots=True, eq=False)
class Value:
    """A value of the program."""

    dtype: str
    """Element type as MLIR prints it."""

    shape: tuple[int, ...] | None
    """Global shape; None for a token."""

    axes: Axes = ()
    """Mesh axes of each dimension."""

    origins: dict[str, str] = field(default_factory=dict)
    """Origin of each mesh axis as Shardy writes it: ``input: 2``."""

    definer: Operation | None = None
    """Operation that computes it; None for an argument of the program or of a region."""

    argument: int | None = None
    """Number among the arguments of the program."""

    returned: int | None = None
    """Number among the outputs of the program."""

    same: Value | None = None
    """The value outside that enters the region of this argument, or the value inside that leaves."""

    varying: frozenset[str] | None = frozenset()
    """Inside of a ``shard_map``, the manual mesh axes over which it can differ; None if not known."""


@dataclass(eq=False)
class Rule:
    """How an operation propagates shardings."""

    sizes: tuple[int, ...]
    """Size of each factor."""

    operands: tuple[tuple[tuple[int, ...], ...], ...]
    """Factors of each dimension of each operand, major to minor."""

    results: tuple[tuple[tuple[int, ...], ...], ...]
    """Factors of each dimension of each result."""

    whole: frozenset[int]
    """Factors that the operation needs as a whole."""

    @cached_property
    def tensors(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """Factors of each dimension of the operands and the results."""
        return (*self.operands, *self.results)

    @cached_property
    def linked(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """The dimensions that share a factor with each dimension of another operand or result.

        Both are the number of the tensor, the results last, and that of the dimension.
        """
        dims = [
            (tensor, dim, set(factors))
            for tensor, mapping in enumerate(self.tensors)
            for dim, factors in enumerate(mapping)
        ]
        return {
            (tensor, dim): [(other, its) for other, its, theirs in dims if other != tensor and own & theirs]
            for tensor, dim, own in dims
        }

    def __str__(self) -> str:
        """Return the rule as an einsum: ``ik,kj->ij``."""

        def letters(tensors: Sequence[Sequence[Sequence[int]]]) -> str:
            return ",".join("".join(letter_of(one) for dim in tensor for one in dim) for tensor in tensors)

        return f"{letters(self.operands)}->{letters(self.results)}"


def letter_of(factor: int) -> str:
    """Return the letter of a factor, from ``i`` on."""
    return chr(ord("i") + factor) if factor < 18 else f"z{factor - 17}"


@dataclass(eq=False)
class Operation:
    """An operation of the program."""

    name: str
    """Name in MLIR, such as ``stablehlo.dot_general``."""

    place: Place
    """Its location; inside of a function, with that of the call."""

    operands: tuple[Value, ...]
    """Operands."""

    results: tuple[Value, ...]
    """Results."""

    rule: Rule | None
    """How it propagates shardings; None if it does not."""

    origin: str | None
    """Name of a constraint or a ``shard_map`` in origins, such as ``constraint_3``."""

    requested: Axes
    """Mesh axes that the constraint or the ``shard_map`` requests itself."""

    outside: Operation | None
    """The loop, the branch, the function or the ``shard_map`` that it is in."""

    manual: tuple[str, ...] = ()
    """Mesh axes that a ``shard_map`` makes manual inside of it."""

    @cached_property
    def tensors(self) -> tuple[Value, ...]:
        """Operands and results."""
        return (*self.operands, *self.results)

    @cached_property
    def sharding(self) -> tuple[tuple[Axes, ...], tuple[Axes, ...]]:
        """Mesh axes of the operands, and of the results."""
        return tuple(value.axes for value in self.operands), tuple(value.axes for value in self.results)

    @cached_property
    def is_manual(self) -> bool:
        """Whether it is inside of a ``shard_map``."""
        around = self.outside
        return around is not None and (around.name == "sdy.manual_computation" or around.is_manual)

    @cached_property
    def manual_here(self) -> tuple[str, ...]:
        """The manual mesh axes where it stands; empty outside of a ``shard_map``."""
        around = self.outside
        return () if around is None else (*around.manual_here, *around.manual)


class Graph:
    """A program after the propagation.

    Args:
        facts: The answer of ``worker.py``.
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.sizes: dict[str, int] = {name: size for mesh in facts["meshes"] for name, size in mesh}
        self.part = functools.cache(functools.partial(read_part, sizes=self.sizes))
        """Function that returns a mesh axis, or a part of it, by its name."""
        types = [(dtype, None if shape is None else tuple(shape)) for dtype, shape in facts["types"]]
        shardings = [tuple(map(tuple, axes)) for axes in facts["shardings"]]
        self.values = [
            Value(
                types[type_][0],
                types[type_][1],
                _axes(None if sharding is None else shardings[sharding], types[type_][1]),
                {} if origins is None else facts["origins"][origins],
            )
            for type_, sharding, origins in facts["values"]
        ]
        self._rules = [
            Rule(tuple(sizes), _factors(operands), _factors(results), frozenset(whole))
            for sizes, operands, results, whole in facts["rules"]
        ]
        self._requests = [tuple(map(tuple, axes)) for axes in facts["requests"]]
        self.operations: list[Operation] = []
        self.argument_count: int = facts["arguments"]
        self.outputs: list[Value] = []
        """Values that the program returns, with the shardings that they are returned with."""
        self._facts = facts
        self._places = [read_place(text) for text in facts["places"]]
        self._inner_places: dict[tuple[int, int], Place] = {}
        self._inside: set[int] = set()
        for *_, blocks in facts["operations"]:
            for _, numbers in blocks:
                self._inside.update(numbers)
        for number in range(len(facts["operations"])):
            if number not in self._inside:
                self._read(number, None)
        for number, value in enumerate(self.values[: facts["arguments"]]):
            value.argument = number
        self.outputs = [
            Value(value.dtype, value.shape, value.axes, dict(value.origins), returned=number, same=value)
            for number, value in enumerate(self.outputs)
        ]
        for value, sharding in zip(self.outputs, facts["results"], strict=False):
            if sharding is not None:
                value.axes = _axes(shardings[sharding], value.shape)
        self.values += self.outputs
        self.named: dict[str, Operation] = {
            one.origin: one for one in self.operations if one.origin is not None
        }
        self.inside: dict[int, list[Value]] = by_key(
            (id(value.same), value) for value in self.values if value.same is not None
        )
        """The values that are the same inside or after, of each value by its ``id``."""
        self.places: dict[int, list[tuple[Operation, int]]] = by_key(
            (id(value), (operation, place))
            for operation in self.operations
            for place, value in enumerate(operation.tensors)
        )
        """The operations of each value by its ``id``, with its place among their operands and results."""

    def users(self, value: Value) -> list[Operation]:
        """Return the operations that use a value, each once for each operand."""
        return [one for one, place in self.places.get(id(value), ()) if place < len(one.operands)]

    @property
    def stops_at_call(self) -> bool:
        """Whether a called function has an argument in another sharding. XLA inlines it first."""
        return any(
            inside.axes != value.axes
            for one in self.operations
            if one.name == "sdy.named_computation"
            for value in one.operands
            for inside in self.inside.get(id(value), ())
        )

    def _read(self, number: int, outside: Operation | None) -> None:
        """Add an operation and those inside it."""
        name, position, operands, results, rule, origin, own, blocks = self._facts["operations"][number]
        operation = Operation(
            name=name,
            place=self._place(position, outside),
            operands=tuple(self.values[one] for one in operands),
            results=tuple(self.values[one] for one in results),
            rule=None if rule is None else self._rules[rule],
            origin=origin,
            requested=() if own is None else self._requests[own],
            outside=outside,
            manual=tuple(self._facts["manual"].get(str(number), ())),
        )
        self.operations.append(operation)
        varying = _varying(operation)
        for value in operation.results:
            value.definer, value.varying = operation, varying
        if name == "func.return":
            self.outputs = list(operation.operands)
        elif name == "sdy.data_flow_edge":
            operation.results[0].same = operation.operands[0]
        is_loop = name == "stablehlo.while"
        for arguments, inside in blocks:
            self._enter(operation, [self.values[one] for one in arguments], is_loop=is_loop)
            for one in inside:
                self._read(one, operation)
        if blocks:  # what leaves the last one: the body of a loop, a branch, a function
            for value, leaving in zip(operation.results, self.operations[-1].operands, strict=False):
                value.same = leaving
                if name == "sdy.named_computation":
                    value.varying = leaving.varying

    def _place(self, number: int, outside: Operation | None) -> Place:
        """Return a location, inside of a function with that of the call, as in a compiled program."""
        place = self._places[number]
        while outside is not None and outside.name != "sdy.named_computation":
            outside = outside.outside
        if outside is None:
            return place
        call = outside.place
        key = number, id(call)
        if key not in self._inner_places:
            name = place.name if place.name.startswith(call.name) else f"{call.name}/{place.name}"
            frames, columns = (*place.frames, *call.frames), (*place.columns, *call.columns)
            self._inner_places[key] = Place(
                name, frames, columns, place.column if place.frames else call.column
            )
        return self._inner_places[key]

    def _enter(self, operation: Operation, arguments: Sequence[Value], *, is_loop: bool) -> None:
        """Connect the arguments of a region with the values that enter it."""
        outer = operation.results if is_loop else operation.operands
        dims = iter(operation.requested)
        for argument, value, entering in zip(arguments, outer, operation.operands, strict=False):
            argument.same = entering
            argument.varying = None if is_loop else entering.varying
            names = {name for names in islice(dims, len(argument.shape or ())) for name in names}
            if argument.varying is not None:
                argument.varying |= names & set(operation.manual)
            if is_loop and not any(argument.axes):
                argument.axes, argument.origins = value.axes, value.origins


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
    found: frozenset[str] = frozenset()
    for value in operation.operands:
        if value.varying is None:
            return None
        found |= value.varying
    return None if name in _MOVED and not found.issuperset(operation.manual_here) else found


def _axes(axes: Axes | None, shape: tuple[int, ...] | None) -> Axes:
    # A value on one device, such as that of a callback, has a sharding without dimensions.
    return axes or ((),) * len(shape or ())


def _factors(mappings: Sequence[Sequence[Sequence[int]]]) -> tuple[tuple[tuple[int, ...], ...], ...]:
    return tuple(tuple(tuple(dim) for dim in tensor) for tensor in mappings)


def shard_of(shape: Sequence[int], axes: Axes, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of the largest shard."""
    counts = (math.prod(read_part(name, sizes).size for name in names) for names in axes)
    return tuple(-(-dim // count) for dim, count in zip(shape, counts, strict=True))
