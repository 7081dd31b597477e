"""Names and source lines of the operations of a program, as XLA and MLIR print them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple, TypeVar

from ...geometry.layouts.dtypes import bits_of_name, packed_nbytes
from .messages import WITHOUT_DATA, ArrayShape, dtype_of

_Frame = tuple[str, int, int, str]
"""File, line, column and function."""
Stack = tuple[_Frame, ...]
"""Frames of an operation, outermost first."""

_LOCATION = re.compile(r"(#loc\d*) = loc\((.*)\)")
_OF_OPERATION = re.compile(r"loc\((#loc\d*)\)$")
_FILE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d{1,9}):(\d{1,9})')
_NAMED = re.compile(r'"((?:[^"\\]|\\.)*)"\((#loc\d*)\)')
_CALL_SITE = re.compile(r"callsite\((#loc\d*) at (#loc\d*)\)")
_FUNCTION = re.compile(r"\s*func\.func (?:\w+ )?@([^\s(]+)\(")
_CALL = re.compile(r"(?:^|= |\s)(?:func\.)?call @([^\s(]+)\(")


def operations(mlir: str) -> Iterator[tuple[str, Stack]]:
    """Yield the names and stacks of the operations, those of a called function at its first call.

    In some versions, names and stacks of a called function begin in it: XLA puts those of each call in front.
    """
    locations: dict[str, str] = {}
    functions: dict[str, list[tuple[str, str]]] = {}
    inside: list[tuple[str, str]] = []
    for line in mlir.splitlines():
        if line.startswith("#loc"):
            location = _LOCATION.fullmatch(line)
            if location is not None:
                locations[location[1]] = location[2]
        elif (function := _FUNCTION.match(line)) is not None:
            inside = functions.setdefault(function[1], [])
        elif (place := _OF_OPERATION.search(line)) is not None:
            called = _CALL.search(line)
            inside.append((place[1], called[1] if called and "custom_call" not in line else ""))
    entered = {"main"}
    waiting = [iter(functions.get("main", ()))]
    while waiting:
        operation = next(waiting[-1], None)
        if operation is None:
            waiting.pop()
        elif operation[1] not in functions:
            yield from _described(operation[0], locations)
        elif operation[1] not in entered:
            entered.add(operation[1])
            waiting.append(iter(functions[operation[1]]))


def source_lines(mlir: str) -> set[tuple[str, int]]:
    """Return file and line of all locations in a lowered program."""
    return {(unescaped(file), int(line)) for file, line, _ in _FILE.findall(mlir)}


def _described(place: str, locations: Mapping[str, str]) -> Iterator[tuple[str, Stack]]:
    """Yield the name and the stack of an operation, if its location is known."""
    named = _NAMED.fullmatch(locations.get(place, ""))
    if named is None:
        return
    frames: list[_Frame] = []
    outer = named[2]
    while (site := _CALL_SITE.fullmatch(locations.get(outer, ""))) is not None and len(frames) < 1000:
        frames += _frame(site[1], locations)
        outer = site[2]
    frames += _frame(outer, locations)
    if frames:
        yield unescaped(named[1]), tuple(reversed(frames))


def _frame(place: str, locations: Mapping[str, str]) -> list[_Frame]:
    """Return the frame of a location: a function's name around a place in a file."""
    named = _NAMED.fullmatch(locations.get(place, ""))
    file = None if named is None else _FILE.match(locations.get(named[2], ""))
    if named is None or file is None:
        return []
    return [(unescaped(file[1]), int(file[2]), int(file[3]), unescaped(named[1]))]


_ESCAPES = re.compile(r"(?:\\(?:[0-7]{3}|x[0-9a-fA-F]{2}|.))+")
_ESCAPE = re.compile(r"\\(?:([0-7]{3})|x([0-9a-fA-F]{2})|(.))")
_CONTROL = {"n": "\n", "r": "\r", "t": "\t"}


def unescaped(text: str) -> str:
    r"""Return the text of a string with its escapes resolved: ``params[\'wi\']`` is ``params['wi']``."""
    return _ESCAPES.sub(_resolve, text) if "\\" in text else text


def _resolve(escapes: re.Match[str]) -> str:
    """Return the text of adjacent escapes. XLA escapes each byte of a character that is not ASCII."""
    data = bytearray()
    for octal, hexadecimal, character in _ESCAPE.findall(escapes[0]):
        if character:
            data += _CONTROL.get(character, character).encode("utf-8", "surrogatepass")
        else:
            data.append(int(octal, 8) & 255 if octal else int(hexadecimal, 16))
    return data.decode("utf-8", "replace")


# JAX keeps ten frames of each operation, unless it is asked for more.
_DEEPEST = 100


class Frame(NamedTuple):
    """A line of source code in the program's tables."""

    file: str
    line: int
    function: str
    """Qualified name; empty where only the file and the line are known."""


class StackFrames:
    """The stack frames of a program by number. That of a frame's caller is less."""

    def __init__(self, index: Any) -> None:
        """Read the tables when they are asked for.

        Args:
            index: A ``StackFrameIndexProto``. Its numbers are from 1.
        """
        self._index = index
        self._known: dict[int, tuple[Frame, ...]] = {0: ()}

    @cached_property
    def frames(self) -> Mapping[int, tuple[int, int]]:
        """Location and caller of each frame by number, 0 for none."""
        rows = enumerate(self._index.stack_frames, 1)
        return {number: (row.file_location_id, row.parent_frame_id) for number, row in rows}

    def of(self, number: int) -> tuple[Frame, ...]:
        """Return a frame and its callers, innermost first; empty for an unknown number."""
        if number not in self._known:
            self._known[number] = tuple(
                Frame(file, line, function) for file, line, _, function in self._walk(number)
            )
        return self._known[number]

    def column(self, number: int) -> int:
        """Return the column at which a frame begins, from 0; 0 also if it is unknown."""
        place, _ = self.frames.get(number, (0, 0))
        locations = self._index.file_locations
        return int(locations[place - 1].column) if 0 < place <= len(locations) else 0

    def _walk(self, number: int) -> Stack:
        """Return the file, line, column and function of a frame and of its callers, up to a missing one."""
        frames: list[tuple[str, int, int, str]] = []
        while (frame := self.frames.get(number)) is not None and len(frames) < _DEEPEST:
            place, number = frame
            if 0 < place <= len(self._index.file_locations):
                location = self._index.file_locations[place - 1]
                file = _named(self._index.file_names, location.file_name_id)
                function = _named(self._index.function_names, location.function_name_id)
                if file:
                    frames.append((file, location.line, location.column, function))
        return tuple(frames)

    def renumber(self, mlir: str, used: Iterable[tuple[str, int]]) -> None:
        """Give the frames the numbers that instructions have; forget them if these do not fit the table.

        In a partitioned program of JAX 0.8, instructions have numbers in the order of the lowered program,
        and the table has another order.

        Args:
            mlir: Text of the lowered program, with locations; empty if it is not known.
            used: Name and number of each instruction.
        """
        if not self.frames or (mlir and "sdy." not in mlir):
            return
        as_printed = {number: self._walk(number)[::-1] for number in self.frames}
        places = {stack: self.frames[number][0] for number, stack in as_printed.items()}
        names: dict[str, set[Stack]] = {}
        numbers: dict[Stack, int] = {}
        for name, stack in operations(mlir):
            names.setdefault(name, set()).add(stack)
            names.setdefault(_last(name), set()).add(stack)
            # Constants are folded before the numbers are given: their stacks are not in the table.
            for depth in range(1, len(stack) + 1 if stack in places else 1):
                numbers.setdefault(stack[:depth], len(numbers) + 1)
        used = set(used)
        if places.keys() != numbers.keys():
            self.frames = {}
        elif _contradict(used, {number: stack for stack, number in numbers.items()}, names):
            # Operations that were folded or merged can change the order of the others.
            if _contradict(used, as_printed, names):
                self.frames = {}
        else:
            self.frames = {
                number: (places[stack], numbers.get(stack[:-1], 0)) for stack, number in numbers.items()
            }


def _named(names: Any, number: int) -> str:
    return str(names[number - 1]) if 0 < number <= len(names) else ""


def _contradict(
    used: Iterable[tuple[str, int]], stacks: Mapping[int, Stack], names: Mapping[str, set[Stack]]
) -> bool:
    """Return whether an instruction gets a stack that no operation of its name has."""
    known = ((names.get(name) or names.get(_last(name)), number) for name, number in used)
    return any(
        candidates is not None and stacks.get(number) not in candidates for candidates, number in known
    )


def _last(name: str) -> str:
    """Return the operation in the name of an instruction, without the functions around it."""
    return name.rpartition("/")[2]


_OP_NAME = re.compile(r'\bop_name="((?:[^"\\]|\\.)*+)"')
_SOURCE = re.compile(r'\bsource_file="((?:[^"\\]|\\.)*+)" source_line=(\d{1,9})')


def read_metadata(text: str) -> tuple[str | None, tuple[Frame, ...]]:
    """Return the ``op_name`` of an instruction and its source line, as far as its metadata has them."""
    op, source = _OP_NAME.search(text), _SOURCE.search(text)
    frames = (Frame(unescaped(source[1]), int(source[2]), ""),) if source else ()
    return (unescaped(op[1]) or None if op else None), frames


MOST_AXES = 64
"""More than any array in JAX has."""
_ARRAY = re.compile(r"(?P<tuple>\()?([a-z]\w*)\[([\d,<= ]*)\](?:\{([^{}]*)\})?(?(tuple)\))")
"""The type of an array, also of one alone in a tuple."""
_DIM = re.compile(r" *(?:<=)?(\d{1,18}) *")
_MEMORY_SPACE = re.compile(r"[:)]S\((\d{1,9})\)")


def read_array(text: str) -> ArrayShape | None:
    """Return the type of an array; None for several arrays, and for a dtype or a shape that is not known."""
    match = _ARRAY.fullmatch(text.strip())
    if match is None:
        return None
    _, name, dims_text, layout = match.groups()
    dtype = dtype_of(name)
    parts = dims_text.split(",") if dims_text else []
    lengths = [_DIM.fullmatch(part) for part in parts]
    if dtype is None or len(parts) > MOST_AXES or None in lengths:
        return None
    # A bounded dimension is printed as <=8, and takes the memory of 8.
    dims = tuple(int(length[1]) for length in lengths if length)
    space = _MEMORY_SPACE.search(layout or "")
    nbytes = 0 if dtype in WITHOUT_DATA else packed_nbytes(dims, bits_of_name(dtype))
    if nbytes is None:
        return None
    return ArrayShape(dtype, dims, nbytes, int(space[1]) if space else 0)


_T = TypeVar("_T")


def without_repeats(entries: Iterable[_T]) -> list[_T]:
    """Return a sequence in which each part that immediately follows an equal part is left out.

    >>> without_repeats("abcbcbcd")
    ['a', 'b', 'c', 'd']
    """
    kept: list[_T] = []
    for entry in entries:
        kept.append(entry)
        for size in range(1, len(kept) // 2 + 1):
            if kept[-1] == kept[-1 - size] and kept[-size:] == kept[-2 * size : -size]:
                del kept[-size:]
                break
    return kept


_TRANSPOSE = re.compile(r"(?:^|[/(])transpose\(")
_JVP = re.compile(r"(?:^|[/(])jvp\(")


REMATTED = "rematted_computation"
"""Part of the names of what ``jax.checkpoint`` computes again."""


@lru_cache(maxsize=256)
def pass_of(op_name: str | None) -> Literal["forward", "backward"] | None:
    """Return the pass of an operation; None if its name does not contain it.

    Values that ``jax.checkpoint`` computes again belong to the backward pass.
    """
    if _TRANSPOSE.search(op_name or ""):
        return "backward"
    return "forward" if _JVP.search(op_name or "") else None


_DERIVATIVE = re.compile(r"(?<![^/(])(?:jvp|transpose)(?=\()")


def is_nested_derivative(op_name: str | None) -> bool:
    """Return whether an operation belongs to a derivative of a backward pass.

    >>> is_nested_derivative("jit(f)/jvp(transpose(jvp()))/mul")
    True
    >>> is_nested_derivative("jit(f)/transpose(jvp())/mul;jit(f)/jvp()/mul")
    False
    """
    # XLA joins the names of operations that it merges.
    derivatives = (_DERIVATIVE.findall(name) for name in (op_name or "").split(";"))
    return any(marks[:1] == ["jvp"] and "transpose" in marks for marks in derivatives)


_CALL_IN_SCOPE = re.compile(r"(\w+)\((.*)\)", re.DOTALL)
_MARK = re.compile("[/()]")
_LONGEST = 4000
"""Characters of a name that are read."""
_DEEPEST_SCOPE = 20
"""Transformations inside each other. What is deeper is a name."""
_FUNCTIONS = ("jit", "pjit", "pmap", "xla_call")
"""Calls of functions. What is in their parentheses is the name of the function."""
_CONTROL_FLOW = re.compile(
    r"while|body|cond|branch_\d+_fun|scan|(?:closed|core|remat)_call|eval_jaxpr|checkpoint|remat2?|"
    rf"{REMATTED}|custom_[jv][vj]p_call(?:_jaxpr)?|custom_lin|shard_map|pjit"
)
"""Parts that JAX adds for its own operations."""


@lru_cache(maxsize=256)
def scope_of(op_name: str | None) -> str:
    """Return the named scopes around an operation, outermost first; empty without any.

    >>> scope_of("jit(step)/transpose(jvp(Model))/while/body/closed_call/layers/attn/dot_general")
    'Model/layers/attn'
    """
    # XLA joins the names of operations that it merges.
    *parts, _ = _parts((op_name or "")[:_LONGEST].partition(";jit(")[0])
    # The backward pass of a scope is inside its forward pass.
    return "/".join(without_repeats(name for part in parts for name in _names(part)))


def _names(part: str, depth: int = 0) -> Iterator[str]:
    """Yield the scopes in a part of a name, also those inside transformations."""
    call = _CALL_IN_SCOPE.fullmatch(part) if depth < _DEEPEST_SCOPE else None
    if call is None:
        if part and not _CONTROL_FLOW.fullmatch(part):
            yield part
    elif call[1] not in _FUNCTIONS:
        for inner in _parts(call[2]):
            yield from _names(inner, depth + 1)


def _parts(name: str) -> list[str]:
    """Return the parts of a name between slashes outside parentheses."""
    parts, depth, start = [], 0, 0
    for mark in _MARK.finditer(name):
        depth += (mark[0] == "(") - (mark[0] == ")")
        if mark[0] == "/" and depth <= 0:
            parts.append(name[start : mark.start()])
            start = mark.end()
    return [*parts, name[start:]]
