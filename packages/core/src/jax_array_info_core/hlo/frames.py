"""Stack frames, source lines and name scopes of the instructions of a program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from .module import Frame, read_fields, unescaped

SECTIONS = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
"""Titles of the tables at the beginning of a program, since JAX 0.8."""

# JAX keeps ten frames of each operation, unless it is asked for more.
_DEEPEST = 100

_NAME = re.compile(r'(\d{1,9}) "(.*)"')
_ROW = re.compile(r"(\d{1,9}) \{(\w+=\d{1,9}(?: \w+=\d{1,9})*)\}")


@dataclass(slots=True)
class FrameTables:
    """Tables of a program, filled line by line."""

    names: dict[str, dict[int, str]] = field(default_factory=lambda: {"FileNames": {}, "FunctionNames": {}})
    """Names of files and of functions by number."""

    rows: dict[str, dict[int, dict[str, int]]] = field(
        default_factory=lambda: {"FileLocations": {}, "StackFrames": {}}
    )
    """Locations and frames by number: the fields of each."""

    _known: dict[int, tuple[Frame, ...]] = field(default_factory=dict)
    """Stacks that were asked for, by the number of the innermost frame."""

    _first: int | None = None
    """What the outermost frame has as the number of its parent."""

    def add(self, section: str, line: str) -> bool:
        """Add a line of a table. Return whether it could be read."""
        if section in self.names:
            name = _NAME.fullmatch(line)
            if name is not None:
                self.names[section][int(name[1])] = unescaped(name[2])
            return name is not None
        row = _ROW.fullmatch(line)
        if row is not None:
            fields = {key: int(value) for key, value in read_fields(row[2]).items()}
            self.rows[section][int(row[1])] = fields
        return row is not None

    def stack(self, number: int) -> tuple[Frame, ...]:
        """Return a frame and its callers, innermost first; empty for an unknown number."""
        if number not in self._known:
            self._known[number] = tuple(self._walk(number))
        return self._known[number]

    def _walk(self, number: int) -> list[Frame]:
        """Return a frame and its callers, up to one that is missing."""
        frames = self.rows["StackFrames"]
        if self._first is None:
            # XLA prints the number of the parent plus one, so the outermost frame seems to be its own parent.
            # A version that prints the number itself has 0 there, or nothing.
            self._first = min((row.get("parent_frame_id", 0) for row in frames.values()), default=0)
            self._first = min(self._first, 1)
        found: list[Frame] = []
        for _ in range(_DEEPEST):
            if number not in frames:
                break
            frame = self._frame(frames[number].get("file_location_id", 0))
            if frame is not None:
                found.append(frame)
            number = frames[number].get("parent_frame_id", 0) - self._first
        return found

    def _frame(self, location: int) -> Frame | None:
        """Return the frame at a location; None if it is unknown."""
        fields = self.rows["FileLocations"].get(location, {})
        file = self.names["FileNames"].get(fields.get("file_name_id", 0))
        if file is None:
            return None
        function = self.names["FunctionNames"].get(fields.get("function_name_id", 0), "")
        return Frame(file, fields.get("line", 0), function)


def column_of(metadata: dict[str, str], tables: FrameTables) -> int:
    """Return the column at which an instruction begins in its innermost source line; 0 if it is unknown."""
    number = metadata.get("stack_frame_id", "")
    frame = tables.rows["StackFrames"].get(int(number) if _is_number(number) else 0, {})
    return tables.rows["FileLocations"].get(frame.get("file_location_id", 0), {}).get("column", 0)


def frames_of(metadata: dict[str, str], tables: FrameTables) -> tuple[Frame, ...]:
    """Return the source lines of an instruction, innermost first.

    Up to JAX 0.7 the metadata has one file and line, without a function.
    """
    number = metadata.get("stack_frame_id", "")
    if _is_number(number):
        stack = tables.stack(int(number))
        if stack:
            return stack
    file, line = metadata.get("source_file"), metadata.get("source_line", "0")
    return (Frame(file, int(line), ""),) if file and _is_number(line) else ()


def _is_number(text: str) -> bool:
    """Return whether a text is a number of at most nine digits."""
    return len(text) < 10 and text.isdecimal()


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


_TABLE = re.compile(r"^(FileNames|FunctionNames|FileLocations|StackFrames)\n((?:\d+ .*\n)*)", re.MULTILINE)
_STACK_FRAMES = re.compile(r"^StackFrames\n(?:\d+ .*\n)*", re.MULTILINE)
_OP = re.compile(r'op_name="([^"]*)" stack_frame_id=(\d{1,9})')


def renumbered(text: str, mlir: str) -> str:
    """Return the text of a program with a table of stack frames that has the numbers of its instructions.

    Without that table, if the numbers do not fit the lowered program: then no lines are known.

    Args:
        text: Text of the compiled program.
        mlir: Text of the lowered program, with locations; empty if it is not known.
    """
    table = _table(text)
    is_partitioned = "num_partitions=" in text.partition("\n")[0]
    if not table or not is_partitioned or (mlir and "sdy." not in mlir):
        return text
    locations = dict(table.values())
    names: dict[str, set[Stack]] = {}
    numbers: dict[Stack, int] = {}
    for name, stack in operations(mlir):
        names.setdefault(name, set()).add(stack)
        names.setdefault(_last(name), set()).add(stack)
        # Constants are folded before the numbers are given: their stacks are not in the table.
        for depth in range(1, len(stack) + 1 if stack in locations else 1):
            numbers.setdefault(stack[:depth], len(numbers) + 1)
    if locations.keys() != numbers.keys():
        return _STACK_FRAMES.sub("", text, count=1)
    used = set(_OP.findall(text))
    as_printed = {number: stack for number, (stack, _) in table.items()}
    as_in_mlir = {number: stack for stack, number in numbers.items()}
    if _contradict(used, as_in_mlir, names):
        # Operations that were folded or merged can change the order of the others.
        agrees = not _contradict(used, as_printed, names)
        return text if agrees else _STACK_FRAMES.sub("", text, count=1)
    rows = (
        f"{number} {{file_location_id={locations[stack]} parent_frame_id={numbers.get(stack[:-1], 0) + 1}}}\n"
        for stack, number in numbers.items()
    )
    section = "StackFrames\n" + "".join(rows)
    return _STACK_FRAMES.sub(lambda _: section, text, count=1)


def _contradict(
    used: Iterable[tuple[str, str]], stacks: Mapping[int, Stack], names: Mapping[str, set[Stack]]
) -> bool:
    """Return whether an instruction gets a stack that no operation of its name has."""
    known = ((names.get(name) or names.get(_last(name)), int(number)) for name, number in used)
    return any(found is not None and stacks.get(number) not in found for found, number in known)


def _last(name: str) -> str:
    """Return the operation in the name of an instruction, without the functions around it."""
    return name.rpartition("/")[2]


def _table(text: str) -> dict[int, tuple[Stack, int]]:
    """Return the stacks of a program's table by number, each with the number of its location."""
    tables = FrameTables()
    for section, rows in _TABLE.findall(text):
        for row in rows.splitlines():
            tables.add(section, row)
    found: dict[int, tuple[Stack, int]] = {}
    for number, row in sorted(tables.rows["StackFrames"].items()):
        place = row.get("file_location_id", 0)
        fields = tables.rows["FileLocations"].get(place, {})
        frame = (
            tables.names["FileNames"].get(fields.get("file_name_id", 0), ""),
            fields.get("line", 0),
            fields.get("column", 0),
            tables.names["FunctionNames"].get(fields.get("function_name_id", 0), ""),
        )
        # Parents come first, and their number is printed plus one.
        callers = found.get(row.get("parent_frame_id", 0) - 1, ((), 0))[0]
        found[number] = ((*callers, frame), place)
    return found


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


def pass_of(op_name: str | None) -> Literal["forward", "backward"] | None:
    """Return the pass of an operation; None if its name does not contain it.

    Values that ``jax.checkpoint`` computes again belong to the backward pass.
    """
    if _TRANSPOSE.search(op_name or ""):
        return "backward"
    return "forward" if _JVP.search(op_name or "") else None


_CALL_IN_SCOPE = re.compile(r"(\w+)\((.*)\)", re.DOTALL)
_MARK = re.compile("[/()]")
_LONGEST = 4000
"""Characters of a name that are read."""
_DEEPEST_SCOPE = 20
"""Transformations inside each other. What is deeper is a name."""
_FUNCTIONS = ("jit", "pjit", "pmap", "xla_call")
"""Calls of functions. What is in their parentheses is the name of the function."""
_CONTROL = re.compile(
    r"while|body|cond|branch_\d+_fun|scan|(?:closed|core|remat)_call|eval_jaxpr|checkpoint|remat2?|"
    rf"{REMATTED}|custom_[jv][vj]p_call(?:_jaxpr)?|custom_lin|shard_map|pjit"
)
"""Parts that JAX adds for its own operations."""


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
        if part and not _CONTROL.fullmatch(part):
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
