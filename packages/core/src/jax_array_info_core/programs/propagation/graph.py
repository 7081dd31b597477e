"""The program after Shardy's propagation: values with their shardings, and operations with their rules."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, cast

from ...base.grouping import by_key
from ...geometry.layouts.dtypes import bits_of_name, named_in_full, packed_nbytes
from ...xla.hlo.source import Frame
from .einsums import einsum_letters

Axes = tuple[tuple[str, ...], ...]
"""Mesh axes, or parts of them, of each dimension."""
Factors = tuple[tuple[tuple[int, ...], ...], ...]
"""Numbers of the factors of each dimension of each operand or result, major to minor."""
Key = tuple[str, tuple[Frame, ...], int]
"""Name of an operation, its source lines, innermost first, and its column: the same in a compiled program."""

_LOCATION = re.compile(
    r'"((?:[^"\\]|\\.)*)"\("((?:[^"\\]|\\.)*)":(\d{1,9}):(\d{1,9})(?: to (?:(\d{1,9}))?:(\d{1,9}))?\)'
)
_NAME = re.compile(r'loc\("((?:[^"\\]|\\.)*)"')
_ESCAPES = re.compile(r"(?:\\(?:[0-9A-Fa-f]{2}|\\))+")
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
    locations = _LOCATION.findall(text)
    for function, file, line, start, last_line, end in locations:
        frames.append(Frame(_unescaped(file), int(line), _unescaped(function)))
        is_one_line = end and last_line in ("", line)
        columns.append((int(start), int(end)) if is_one_line else None)
    return Place(
        _unescaped(name[1]) if name else "",
        tuple(frames),
        tuple(columns),
        int(locations[0][3]) if locations else 0,
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
    match = None if text in sizes else _PART.fullmatch(text)
    return (
        Part(text, 1, sizes.get(text, 1)) if match is None else Part(match[1], int(match[2]), int(match[3]))
    )


@functools.lru_cache
def dtype_of(text: str) -> str:
    """Return the name of a dtype from an element type of MLIR.

    >>> dtype_of("bf16"), dtype_of("ui8"), dtype_of("i1"), dtype_of("complex<f32>"), dtype_of("f8E4M3FN")
    ('bfloat16', 'uint8', 'bool', 'complex64', 'float8_e4m3fn')
    """
    return named_in_full(_SHORT.get(text, text.lower().replace("ui", "u", 1))) or text


@dataclass(slots=True, eq=False)
class Value:
    """A value of the program."""

    dtype: str
    """Name of the dtype."""

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

    outer: Value | None = None
    """The same value: that which enters the region of this argument, or that inside which leaves."""

    varying: frozenset[str] | None = frozenset()
    """Inside of a ``shard_map``, the manual mesh axes over which it can differ; None if not known."""

    @property
    def place(self) -> Place:
        """Location of the operation that computes it."""
        return NOWHERE if self.definer is None else self.definer.place


@dataclass(eq=False)
class Rule:
    """How an operation propagates shardings."""

    sizes: tuple[int, ...]
    """Size of each factor."""

    operands: Factors
    """Factors of each dimension of each operand, major to minor."""

    results: Factors
    """Factors of each dimension of each result."""

    whole: frozenset[int]
    """Factors that the operation needs as a whole."""

    @cached_property
    def tensors(self) -> Factors:
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
            (tensor, dim): [
                (other, its) for other, its, theirs in dims if other != tensor and factors & theirs
            ]
            for tensor, dim, factors in dims
        }

    def written(self, names: Mapping[int, str]) -> str:
        """Return the rule as an einsum: ``ik,kj->ij``, with other letters of some factors."""

        def letters(tensors: Factors) -> str:
            words = (
                "".join(names.get(factor) or letter_of(factor) for dim in tensor for factor in dim)
                for tensor in tensors
            )
            return ",".join(words)

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

    number: int | None = None
    """Number in the module as it is read, as in ``edits.Edit``. Operations of a function that is called
    several times share theirs. None if a pass added it."""

    @cached_property
    def tensors(self) -> tuple[Value, ...]:
        """Operands and results."""
        return (*self.operands, *self.results)

    @cached_property
    def sharding(self) -> tuple[tuple[Axes, ...], tuple[Axes, ...]]:
        """Mesh axes of the operands, and of the results."""
        return tuple(value.axes for value in self.operands), tuple(value.axes for value in self.results)

    @cached_property
    def einsum(self) -> Mapping[int, str]:
        """The letters of the user's einsum for the factors of its rule; empty if it is not of one."""
        if self.name != "stablehlo.dot_general" or self.rule is None:
            return {}
        return einsum_letters(self.place.name, self.rule.operands, self.rule.results)

    @property
    def written_rule(self) -> str:
        """Its rule as an einsum, with the user's letters if they are known."""
        return "" if self.rule is None else self.rule.written(self.einsum)

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


@dataclass(eq=False)
class Graph:
    """A program after the propagation."""

    sizes: dict[str, int]
    """Size of each mesh axis."""

    values: list[Value] = field(default_factory=list)
    """Values of the program: first its arguments, last its outputs."""

    argument_count: int = 0
    """Number of the arguments."""

    operations: list[Operation] = field(default_factory=list)
    """Operations, each before those inside it."""

    outputs: list[Value] = field(default_factory=list)
    """Values that the program returns, with the shardings that they are returned with."""

    results: dict[Any, Any] = field(default_factory=dict)
    """The functions that keep their results for this program."""

    def __post_init__(self) -> None:
        self.part = functools.cache(functools.partial(read_part, sizes=self.sizes))
        """Function that returns a mesh axis, or a part of it, by its name."""

    @cached_property
    def named(self) -> dict[str, Operation]:
        """The constraints and each ``shard_map`` by their names in origins."""
        return {operation.origin: operation for operation in self.operations if operation.origin is not None}

    @cached_property
    def inside(self) -> dict[Value, list[Value]]:
        """The values that are the same inside or after, of each value."""
        return by_key((value.outer, value) for value in self.values if value.outer is not None)

    @cached_property
    def places(self) -> dict[Value, list[tuple[Operation, int]]]:
        """The operations of each value, with its place among their operands and results."""
        return by_key(
            (value, (operation, place))
            for operation in self.operations
            for place, value in enumerate(operation.tensors)
        )

    @cached_property
    def computing(self) -> list[Operation]:
        """The operations that compute something."""
        return [operation for operation in self.operations if not operation.name.startswith(_NOT_COMPUTED)]

    def users(self, value: Value) -> list[Operation]:
        """Return the operations that use a value, each once for each operand."""
        return [
            operation for operation, place in self.places.get(value, ()) if place < len(operation.operands)
        ]

    @property
    def stops_at_call(self) -> bool:
        """Whether a called function has an argument in another sharding. XLA inlines it first."""
        return any(
            inside.axes != value.axes
            for operation in self.operations
            if operation.name == "sdy.named_computation"
            for value in operation.operands
            for inside in self.inside.get(value, ())
        )


def shard_of(shape: Sequence[int], axes: Axes, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of the largest shard."""
    counts = (math.prod(read_part(name, sizes).size for name in names) for names in axes)
    return tuple(-(-dim // count) for dim, count in zip(shape, counts, strict=True))


_Program = TypeVar("_Program", bound=Any)
"""What keeps results: a graph, or what has one."""
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def remembered(
    function: Callable[Concatenate[_Program, _Given], _Result],
) -> Callable[Concatenate[_Program, _Given], _Result]:
    """Return a function that keeps its results for a program: equal layers have equal rules and shardings."""

    @functools.wraps(function)
    def remembering(program: _Program, /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        results = program.results
        if function not in results:
            results[function] = functools.cache(functools.partial(function, program))
        return cast(_Result, results[function](*args, **kwargs))

    return remembering


@remembered
def has_axis(graph: Graph, axes: Axes, name: str) -> bool:
    """Return whether a sharding has a mesh axis, or part of it."""
    part = graph.part(name)
    return any(graph.part(other).overlaps(part) for names in axes for other in names)


@remembered
def shard_without(
    graph: Graph, shape: tuple[int, ...], axes: Axes, without: frozenset[str]
) -> tuple[int, ...]:
    """Return the shape of a value on a device, if some mesh axes do not shard it."""
    part = graph.part
    kept = tuple(tuple(name for name in names if part(name).name not in without) for names in axes)
    return shard_of(shape, kept, graph.sizes)


@remembered
def nbytes_of(graph: Graph, shape: tuple[int, ...] | None, axes: Axes, dtype: str) -> int | None:
    """Return the bytes of a value on a device; None if unknown."""
    return None if shape is None else packed_nbytes(shard_of(shape, axes, graph.sizes), bits_of_name(dtype))


def nbytes(graph: Graph, value: Value) -> int | None:
    """Return the bytes of a value on a device; None if unknown."""
    return nbytes_of(graph, value.shape, value.axes, value.dtype)
