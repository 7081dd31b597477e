"""A compiled program as plain values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Any, Literal, NamedTuple, TypeVar

from ..layouts.dtypes import bits_of_name, named_in_full, packed_nbytes


class Frame(NamedTuple):
    """A line of source code in the program's tables."""

    file: str
    line: int
    function: str
    """Qualified name; empty where XLA keeps the file and the line only (JAX up to 0.6)."""


class ArrayShape(NamedTuple):
    """Type of an array on one device."""

    dtype: str
    """Name in JAX, such as ``float32``; the name in XLA for types that JAX lacks, such as ``token``."""

    dims: tuple[int, ...]
    """Shape."""

    nbytes: int
    """Bytes, packed below 8 bits; 0 for tokens and other types without data."""

    memory_space: int = 0
    """XLA's memory space: 0 for the default, such as HBM; others, such as 1 for VMEM on TPU."""


class Instruction(NamedTuple):
    """One instruction."""

    name: str
    """Name without the ``%``."""

    opcode: str
    """Name of the operation, such as ``all-gather-start``."""

    shapes: tuple[ArrayShape, ...]
    """Types of the result; those of a tuple in order, nested ones flattened."""

    groups: tuple[int, ...]
    """Index of the outermost tuple element of each of ``shapes``; empty if the result is not a tuple."""

    operands: tuple[str, ...]
    """Names of the operands; for ``parameter`` and ``constant`` empty."""

    attributes: Mapping[str, str]
    """Attributes after the operands by name, as text: ``replica_groups``, ``calls``, ``body``, ``condition``,
    ``to_apply``, ``branch_computations``, ``dimensions``, ``channel_id``, ``lhs_contracting_dims``,
    ``known_trip_count`` (the number, from ``backend_config``), … without ``metadata``. Names of computations
    have their ``%``."""

    op_name: str | None
    """``op_name`` of the metadata: the path of an argument, or the stack of transformations."""

    frames: tuple[Frame, ...]
    """Source lines, innermost first; empty if there are none."""

    literal: str
    """Text in the parentheses of a ``parameter`` (its number) or a ``constant`` (its value); else empty."""

    is_root: bool
    """Whether it is the result of its computation."""

    column: int = 0
    """Column of the innermost source line at which it begins, from 0; 0 also if it is unknown."""

    @property
    def element(self) -> int | None:
        """Index of the element that a get-tuple-element takes; None for others, and if it was not read."""
        if self.opcode != "get-tuple-element":
            return None
        index = self.attributes.get("index", "")
        return int(index) if index.isdecimal() and len(index) < 10 else None


@dataclass(frozen=True, slots=True)
class Computation:
    """A computation: the entry, a loop's body or condition, a branch, a fusion or a reducer."""

    name: str
    """Name without the ``%``."""

    instructions: tuple[Instruction, ...]
    """Instructions, in the order of the schedule."""

    by_name: Mapping[str, Instruction]
    """Instructions by name."""

    @property
    def root(self) -> Instruction | None:
        """The instruction that is the result; None if it could not be read."""
        return next((one for one in reversed(self.instructions) if one.is_root), None)


class Alias(NamedTuple):
    """An output that reuses the memory of an argument, from ``input_output_alias`` of the header."""

    output: int
    """Index of the flat output."""

    parameter: int
    """Number of the parameter of the entry computation."""


_Made = TypeVar("_Made")


def _no_frames(_: int) -> tuple[Frame, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Module:
    """A compiled program."""

    name: str
    """Name, such as ``jit_step``."""

    entry: str
    """Name of the entry computation; empty if there is none."""

    computations: Mapping[str, Computation]
    """Computations by name, in the order of the text: called ones before their callers."""

    aliases: tuple[Alias, ...] = ()
    """Outputs that reuse the memory of an argument."""

    buffer_donors: tuple[int, ...] = ()
    """Numbers of the parameters that are donated without a fixed output."""

    device_count: int = 1
    """``num_partitions`` times ``replica_count``."""

    unread: tuple[str, ...] = field(default=())
    """Lines that could not be read."""

    stack: Callable[[int], tuple[Frame, ...]] = field(default=_no_frames, compare=False, repr=False)
    """Function from a ``stack_frame_id``, as in XLA's warnings, to the source lines, innermost first."""

    _made: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def once(self, make: Callable[[Module], _Made]) -> _Made:
        """Return what a function makes of the program. It is called the first time only."""
        if make not in self._made:
            self._made[make] = make(self)
        found: _Made = self._made[make]
        return found

    def parameters(self) -> Iterator[Instruction]:
        """Yield the parameters of the entry computation, in order of their numbers."""
        if self.entry in self.computations:
            found = [one for one in self.computations[self.entry].instructions if one.opcode == "parameter"]
            yield from sorted(found, key=lambda one: int(one.literal))


class Passing(Flag):
    """What an operation that passes values on does with those of its first operand."""

    SAME = auto()
    """The result has them at the same places, or is the same tuple."""

    NUMBER = auto()
    """If they are one integer, the result is the same number."""

    VIEW = auto()
    """The result is in their memory."""

    COPY = auto()
    """The result has all of them in memory of its own, converted or in another order."""

    MOVE = auto()
    """Nothing is computed: the result has them as they are, some or all, in some order."""


_SAME = Passing.SAME | Passing.NUMBER | Passing.MOVE
PASSING = {
    **dict.fromkeys(("add-dependency", "async-update", "bitcast", "domain"), _SAME | Passing.VIEW),
    **dict.fromkeys(("opt-barrier", "optimization-barrier"), _SAME | Passing.VIEW),
    **dict.fromkeys(("copy", "copy-start"), _SAME | Passing.COPY),
    "copy-done": _SAME,
    **dict.fromkeys(("reshape", "transpose"), Passing.NUMBER | Passing.MOVE | Passing.COPY),
    "convert": Passing.NUMBER | Passing.COPY,
    **dict.fromkeys(("dynamic-slice", "slice"), Passing.MOVE),
    **dict.fromkeys(("bitcast-convert", "pad", "ragged-all-to-all", "reduce-precision"), Passing(0)),
}
"""The operations whose result has values of their first operand: all or some, in any order, converted."""


def operations(kind: Passing) -> frozenset[str]:
    """Return the operations that pass on values of their first operand in a way.

    >>> sorted(operations(Passing.COPY))
    ['convert', 'copy', 'copy-start', 'reshape', 'transpose']
    """
    return frozenset(opcode for opcode, passing in PASSING.items() if kind in passing)


Role = Literal["body", "condition", "branch", "callee", "unknown"]
"""Part of a computation in the instruction that calls it:

- ``body`` and ``condition`` of a loop;
- ``branch`` of a conditional;
- ``callee``: it runs once in each execution of the instruction, such as the computation of a fusion;
- ``unknown``: a computation of a custom call.
"""

_NAME = re.compile(r"%([^\s,{}]+)")
_ROLES: dict[str, Role] = {
    "body": "body",
    "condition": "condition",
    "branch_computations": "branch",
    "true_computation": "branch",
    "false_computation": "branch",
    "calls": "callee",
    "called_computations": "callee",
}
_ATTRIBUTES = frozenset(("to_apply", *_ROLES))


class Call(NamedTuple):
    """A computation that an instruction executes."""

    name: str
    """Name of the computation."""

    role: Role
    """Its part in the instruction."""


def calls_of(instruction: Instruction) -> Sequence[Call]:
    """Return the computations that an instruction executes.

    Computations of single elements are left out, such as the ``to_apply`` of a reduce or an all-reduce.
    """
    # Most instructions execute none.
    if not instruction.attributes or _ATTRIBUTES.isdisjoint(instruction.attributes):
        return ()
    opcode = instruction.opcode
    if opcode.endswith(("-update", "-done")):
        return ()  # They repeat the computation of their start.
    found: list[Call] = []
    for attribute, text in instruction.attributes.items():
        role = _ROLES.get(attribute)
        if attribute == "to_apply" and opcode == "call":
            role = "callee"
        if role is not None:
            for name in names_in(text):
                found.append(Call(name, "unknown" if opcode == "custom-call" else role))
    return found


def called(instruction: Instruction, attribute: str) -> str | None:
    """Return the name of the computation in an attribute; None if there is none."""
    return next(iter(names_in(instruction.attributes.get(attribute, ""))), None)


def names_in(text: str) -> list[str]:
    """Return the names of the computations in the text of an attribute."""
    return _NAME.findall(text)


STRING = r'"(?:[^"\\]++|\\(?s:.))*+"'
"""Pattern of a quoted string."""

# A part of the groups of a collective looks like an attribute: mesh['x'=8], device_ids=([8]) {'x'}.
_TOKEN = re.compile(rf'{STRING}|\{{(?:[^{{}}"]++|{STRING})*+\}}|[{{}}"]|, (?!device_ids=)([\w-]++)=')
_FIELD = re.compile(rf"\b(\w++)=(?:({STRING})|(\S+))(?:\s|$)")

_ESCAPES = re.compile(r"(?:\\(?:[0-7]{3}|x[0-9a-fA-F]{2}|.))+")
_ESCAPE = re.compile(r"\\(?:([0-7]{3})|x([0-9a-fA-F]{2})|(.))")
_CONTROL = {"n": "\n", "r": "\r", "t": "\t"}


def read_attributes(text: str) -> tuple[dict[str, str], bool]:
    """Return the attributes by name, each with its text, and whether all of the text was read.

    An attribute ends where its quotes and braces end. The time is linear in the length of the text.
    """
    found: dict[str, str] = {}
    name, start, depth = "", 0, 0
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark == "{":
            depth += 1
        elif mark == "}":
            depth -= 1
        elif not depth and mark[0] == ",":
            if name:
                found[name] = text[start : token.start()]
            elif token.start():
                break
            name, start = token[1], token.end()
        if mark == '"' or depth < 0 or not name:
            return found, False
    is_whole = not depth and bool(name or not text)
    if is_whole and name:
        found[name] = text[start:]
    return found, is_whole


def read_fields(text: str) -> dict[str, str]:
    """Return the fields of ``{file_name_id=1 line=97}``, or of metadata, by name, strings without quotes."""
    fields = _FIELD.findall(text.strip("{}"))
    return {name: unescaped(string[1:-1]) if string else bare for name, string, bare in fields}


def unescaped(text: str) -> str:
    r"""Return the text of a string with its escapes resolved: ``params[\'wi\']`` is ``params['wi']``."""
    return _ESCAPES.sub(_resolve, text) if "\\" in text else text


def _resolve(escapes: re.Match[str]) -> str:
    """Return the text of adjacent escapes. XLA escapes each byte of a character that is not ASCII."""
    found = bytearray()
    for octal, hexadecimal, character in _ESCAPE.findall(escapes[0]):
        if character:
            found += _CONTROL.get(character, character).encode("utf-8", "surrogatepass")
        else:
            found.append(int(octal, 8) & 255 if octal else int(hexadecimal, 16))
    return found.decode("utf-8", "replace")


_WITHOUT_DATA = ("token", "opaque")

MOST_AXES = 64
"""More than any array in JAX has."""
_SHAPE = re.compile(r"([a-z]\w*)\[([\d,<= ]*)\](?:\{([^{}]*)\})?")
_DIM = re.compile(r" *(?:<=)?(\d{1,18}) *")
_MEMORY_SPACE = re.compile(r"[:)]S\((\d{1,9})\)")
_COMMENT = re.compile(r"/\*[^*]*+\*/")


class Type(NamedTuple):
    """Type of the result of an instruction."""

    shapes: tuple[ArrayShape, ...]
    """Arrays, nested tuples flattened."""

    groups: tuple[int, ...]
    """Index of the outermost tuple element of each; empty if the type is not a tuple."""


def dtype_of(name: str) -> str | None:
    """Return JAX's name of a type of XLA, such as ``float32`` for ``f32``.

    XLA's own name for types without data, such as ``token``. None if the type is not known.
    """
    return name if name in _WITHOUT_DATA else named_in_full(name)


def read_type(text: str) -> Type | None:
    """Return the type that a text describes; None if it is not one."""
    text = _COMMENT.sub("", text)
    shapes: list[ArrayShape] = []
    groups: list[int] = []
    position, depth, group = 0, 0, 0
    while position < len(text):
        found = _SHAPE.match(text, position)
        if found is not None:
            shape = _array_shape(found)
            if shape is None:
                return None
            shapes.append(shape)
            groups.append(group)
            position = found.end()
            continue
        character = text[position]
        if character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
        elif character == ",":
            group += depth == 1
        elif character != " ":
            return None
        position += 1
    is_tuple = text.startswith("(")
    if depth or not (is_tuple or len(shapes) == 1):
        return None
    return Type(tuple(shapes), tuple(groups) if is_tuple else ())


def _array_shape(found: re.Match[str]) -> ArrayShape | None:
    """Return an array's type; None for a dtype or a shape that is not known."""
    name, dims_text, layout = found.groups()
    dtype = dtype_of(name)
    parts = dims_text.split(",") if dims_text else []
    lengths = [_DIM.fullmatch(part) for part in parts]
    if dtype is None or len(parts) > MOST_AXES or None in lengths:
        return None
    # A bounded dimension is printed as <=8, and takes the memory of 8.
    dims = tuple(int(one[1]) for one in lengths if one)
    space = _MEMORY_SPACE.search(layout or "")
    nbytes = 0 if dtype in _WITHOUT_DATA else packed_nbytes(dims, bits_of_name(dtype))
    if nbytes is None:
        return None
    return ArrayShape(dtype, dims, nbytes, int(space[1]) if space else 0)
