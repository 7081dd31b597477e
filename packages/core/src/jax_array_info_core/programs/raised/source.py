"""The user's expression that raised: its node, its variables, and source text with some parts replaced."""

from __future__ import annotations

import ast
import functools
import inspect
import io
import itertools
import linecache
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FrameType, ModuleType, TracebackType, WrapperDescriptorType
from typing import Any

from ...arrays.holders.links import frame_locals
from ...arrays.origins.origins import Owner, UserLines
from ...compat.arrays import attribute

Expression = ast.expr | ast.AugAssign
"""An expression, or the operation and assignment ``z += y``."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
"""Nodes with variables of their own."""

MISSING: Any = object()
"""The value of an expression that cannot be read without running code."""

_MOST_CHARACTERS = 2**22
"""Length of the largest file that is parsed."""
_MOST_FRAMES = 200
"""Frames of a traceback that are read, from the inside."""
_FIELDS = ("member_descriptor", "_tuplegetter")
"""Descriptors of slots and of named tuples, which run no code of the user."""


class Source:
    """The text of a file, and its syntax tree."""

    def __init__(self, text: str) -> None:
        # Python ends a line only there, not at a form feed, as str.splitlines does.
        lines = [line.encode() for line in io.StringIO(text)]
        self.starts = [0, *itertools.accumulate(map(len, lines))]
        self.data = b"".join(lines)
        self.tree = ast.parse(text)

    def span(self, node: Any) -> tuple[int, int]:
        """Return the bytes at which a node starts and ends."""
        start, stop = self.starts[node.lineno - 1], self.starts[node.end_lineno - 1]
        return start + node.col_offset, stop + node.end_col_offset

    def replaced(self, node: ast.AST, parts: Mapping[Any, str]) -> str:
        """Return the text of a node with other texts in place of some nodes in it."""
        start, place = self.span(node)
        pieces = []
        for part in sorted(parts, key=self.span, reverse=True):
            first, last = self.span(part)
            pieces += [self.data[last:place].decode(), parts[part]]
            place = first
        return "".join([self.data[start:place].decode(), *reversed(pieces)])

    def on(self, line: int) -> list[Any]:
        """Return the nodes that include a line, the outer ones first."""
        nodes: list[Any] = [self.tree]
        for outer in nodes:  # grows
            for node in ast.iter_child_nodes(outer):
                first = min(
                    getattr(part, "lineno", line) for part in (node, *getattr(node, "decorator_list", ()))
                )
                nodes += [node] if first <= line <= getattr(node, "end_lineno", line) else []
        return [node for node in nodes if hasattr(node, "lineno")]

    def at(self, position: tuple[int | None, ...], line: int) -> Expression | None:
        """Return the expression at a position; without one there, the largest call or operation of a line."""
        expressions = [node for node in self.on(line) if isinstance(node, Expression)]
        for node in expressions:
            # After a with statement, the position is that of the statement.
            if (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset) == position:
                return node
        kinds = (ast.Call, ast.BinOp, ast.AugAssign, ast.Subscript)
        return next((node for node in expressions if node.lineno == line and isinstance(node, kinds)), None)

    def around(self, node: Any, *kinds: type[ast.AST]) -> list[Any]:
        """Return a node and those around it, from the inside, as far as they are of some kinds."""
        start, stop = self.span(node)
        spans = [
            (*self.span(outer), outer) for outer in reversed(self.on(node.lineno)) if isinstance(outer, kinds)
        ]
        return [outer for first, last, outer in spans if first <= start and stop <= last]

    def unique(self, node: Expression) -> Expression:
        """Return the smallest expression around another whose text stands nowhere before it in its line."""
        around: list[Expression] = self.around(node, ast.expr, ast.AugAssign)
        for outer in around:
            start, stop = self.span(outer)
            if self.data.index(self.data[start:stop], self.starts[outer.lineno - 1]) == start:
                return outer
        return node


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Place:
    """A line of the user in a traceback."""

    file: str
    """Path of the file."""

    function: str
    """Name of the function."""

    source: Source
    """The source of the file."""

    node: Expression
    """The expression that raised."""

    names: Mapping[str, Any]
    """Variables of the frame, over those of its module."""

    passed: tuple[Any, ...] = ()
    """Arguments of the call as JAX has received them; empty if they are not known."""

    caller: Place | None = None
    """The user's line that has called the function."""

    is_direct: bool = True
    """Whether the expression calls JAX, not a package that calls JAX."""

    def text(self, node: ast.AST | None = None) -> str:
        """Return the source text of a node, by default of the expression."""
        return self.source.replaced(self.node if node is None else node, {})

    def value(self, node: ast.AST) -> Any:
        """Return the value of an expression if it can be read without running code, else ``MISSING``."""
        return value_of(node, self.names)

    def path_to(self, *paths: str) -> str:
        """Return the shortest name of this program for a part of JAX, such as ``P`` or ``jax.P``.

        Args:
            paths: Dotted paths of the part in JAX.

        Raises:
            LookupError: If the program has no name for it.
        """
        name = shortest_name(self.names, paths)
        if name is None:
            raise LookupError(paths)
        return name


def value_of(node: ast.AST, names: Mapping[str, Any]) -> Any:
    """Return the value of an expression if it can be read without running code, else ``MISSING``.

    Readable are variables, attributes of modules and of objects, fields of named tuples, and items of lists,
    tuples and dicts at a constant.

    Args:
        node: The expression.
        names: The variables of its scope.
    """
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return names.get(node.id, MISSING)
        case ast.Attribute():
            return _attribute(value_of(node.value, names), node.attr)
        case ast.Subscript(slice=ast.Constant(value=int() | str() as key)):
            held = value_of(node.value, names)
            try:
                return held[key] if type(held) in (list, tuple, dict) else MISSING
            except (LookupError, TypeError):
                return MISSING
    return MISSING


def shortest_name(names: Mapping[str, Any], paths: Sequence[str]) -> str | None:
    """Return the shortest name of a program for a part of JAX, such as ``P`` or ``jax.P``; None without one.

    Args:
        names: The variables of the program.
        paths: Dotted paths of the part in JAX.
    """
    known = []
    for path in paths:
        parts = path.split(".")
        for count in range(len(parts), 0, -1):
            target = at_path(".".join(parts[:count])) if at_path(path) is not None else MISSING
            tail = ["", *parts[count:]]
            known += [f"{name}{'.'.join(tail)}" for name, value in names.items() if value is target]
    return min(known, key=lambda name: (name.count("."), len(name)), default=None)


def at_path(path: str) -> Any:
    """Return the part of JAX at a dotted path; None if this version lacks it."""
    first, *names = path.split(".")
    return functools.reduce(attribute, names, sys.modules.get(first))


def _attribute(value: Any, name: str) -> Any:
    """Return an attribute of a module or an object, without running code; no method or property."""
    if value is MISSING or _is_watched(type(value)):
        return MISSING
    member = inspect.getattr_static(value, name, MISSING)
    if _is_watched(type(member)):
        return MISSING
    if type(member).__name__ in _FIELDS:
        try:
            return member.__get__(value)
        except (AttributeError, TypeError):  # an empty slot, or a field of a class
            return MISSING
    is_plain = isinstance(value, ModuleType) or inspect.getattr_static(type(member), "__get__", None) is None
    return member if is_plain else MISSING


def _is_watched(cls: type) -> bool:
    """Return whether reading an attribute of an instance runs code of its class or metaclass."""
    classes = (base for one in (cls, type(cls)) for base in type.__dict__["__mro__"].__get__(one))
    members = (type.__dict__["__dict__"].__get__(base).get("__getattribute__") for base in classes)
    return any(not isinstance(member, WrapperDescriptorType | None) for member in members)


def source_of(file: str, variables: dict[str, Any]) -> Source | None:
    """Return the source of a file or of a notebook cell; None if it cannot be read."""
    # A pipe would wait. What eval runs has the name of the program of python -c, which linecache has.
    if file == "<string>" or (file not in linecache.cache and not os.path.isfile(file)):
        return None
    text = "".join(linecache.getlines(file, variables))
    try:
        return Source(text) if 0 < len(text) < _MOST_CHARACTERS else None
    except (SyntaxError, ValueError, RecursionError):
        return None


def place_of(error: BaseException) -> Place | None:
    """Return the user's innermost line in the traceback of an error; None if there is none with source."""
    owner = UserLines().owner
    frames = [*_frames(error.__traceback__)][-_MOST_FRAMES:]
    best = min((owner(frame.f_code.co_filename) for frame, *_ in frames), default=Owner.MACHINERY)
    sources: dict[str, Source | None] = {}
    place = None
    for (frame, line, lasti), (inside, *_) in itertools.pairwise([*frames, (None, 0, 0)]):
        file = frame.f_code.co_filename
        if owner(file) is best <= Owner.PACKAGE:
            if file not in sources:
                sources[file] = source_of(file, frame.f_globals)
            place = _place(frame, line, lasti, inside, sources[file], place) or place
        elif place and owner(file) in (Owner.PACKAGE, Owner.LIBRARY) and "-packages" in file:
            place = replace(place, is_direct=False)
    return place


def _frames(entry: TracebackType | None) -> Iterator[tuple[Any, int, int]]:
    while entry is not None:
        yield entry.tb_frame, entry.tb_lineno, entry.tb_lasti
        entry = entry.tb_next


def _place(
    frame: FrameType,
    line: int,
    lasti: int,
    inside: FrameType | None,
    source: Source | None,
    caller: Place | None,
) -> Place | None:
    code = frame.f_code
    position = next(itertools.islice(code.co_positions(), lasti // 2, None), (None,) * 4)
    if source is None or (node := source.at(position, line)) is None:
        return None
    received = dict(frame_locals(inside) or ()) if inside else {}
    called = inside.f_code if inside else None
    taken = called.co_varnames[: called.co_argcount] if called else ()
    passed = [received.get(name, MISSING) for name in taken]
    if called and called.co_flags & inspect.CO_VARARGS:
        # Such as the operands of einsum, which puts their letters before them and takes these away again.
        further = received.get(called.co_varnames[called.co_argcount + called.co_kwonlyargcount], ())
        passed += [value for value in further if not isinstance(value, str)]
    return Place(
        file=code.co_filename,
        function=code.co_name,
        source=source,
        node=node,
        names={**frame.f_globals, **dict(frame_locals(frame) or ())},
        passed=tuple(passed),
        caller=caller,
    )
