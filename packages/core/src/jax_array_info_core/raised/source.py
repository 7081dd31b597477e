"""The user's expression that raised: its node, its variables, and source text with some parts replaced."""

from __future__ import annotations

import ast
import functools
import itertools
import linecache
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType, ModuleType
from typing import Any

from ..compat.arrays import attribute
from ..compat.values import is_array, is_tracer
from ..holders.links import frame_locals
from ..origins.origins import Owner, UserLines

MISSING: Any = object()
"""The value of an expression that cannot be read without running code."""

_MOST_BYTES = 2**22
"""Size up to which a file of source is parsed."""
_OF_ARRAYS = ("T", "mT")
"""Attributes of arrays that are types of their own."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Place:
    """A line of the user in a traceback."""

    file: str
    """Path of the file."""

    line: int
    """Line number."""

    function: str
    """Name of the function."""

    source: Source
    """The source of the file."""

    node: ast.expr
    """The expression that raised."""

    names: Mapping[str, Any] = field(default_factory=dict)
    """Variables of the frame, over those of its module."""

    passed: tuple[Any, ...] = ()
    """Arguments of the call as JAX has received them; empty if they are not known."""

    caller: Place | None = None
    """The user's line that has called the function."""

    def text(self, node: ast.AST | None = None) -> str:
        """Return the source text of a node, by default of the expression."""
        return self.source.text(self.node if node is None else node)

    def value(self, node: ast.AST) -> Any:
        """Return the value of an expression if it can be read without running code, else ``MISSING``.

        Readable are variables, attributes of modules and of plain objects, and items of plain lists, tuples
        and dicts at a constant.
        """
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self.names.get(node.id, MISSING)
            case ast.Attribute():
                return _attribute(self.value(node.value), node.attr)
            case ast.Subscript(slice=ast.Constant(value=int() | str() as key)):
                return _item(self.value(node.value), key)
        return MISSING

    def path_to(self, *paths: str) -> str | None:
        """Return a name of this program for a part of JAX, or a dotted path; None if it has neither.

        Args:
            paths: Dotted paths of the same object in JAX, the best first.
        """
        for path in paths:
            if (target := at_path(path)) is None:
                continue
            known = [name for name, value in self.names.items() if value is target]
            for prefix, rest in _splits(path):
                module = at_path(prefix)
                known += [f"{name}.{rest}" for name, value in self.names.items() if value is module]
            if known:
                return min(known, key=lambda name: (name.count("."), len(name)))
        return None


def _splits(path: str) -> Iterator[tuple[str, str]]:
    parts = path.split(".")
    for count in range(1, len(parts)):
        yield ".".join(parts[:count]), ".".join(parts[count:])


def at_path(path: str) -> Any:
    """Return the part of JAX at a dotted path; None if this version lacks it."""
    first, *rest = path.split(".")
    return functools.reduce(attribute, rest, sys.modules.get(first))


def _attribute(value: Any, name: str) -> Any:
    """Return an attribute of a module or from the ``__dict__`` of an object, without running code."""
    if value is MISSING or is_array(value) or is_tracer(value):
        return MISSING
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return _slot(value, name)
    if isinstance(value, ModuleType) or type(held) is dict:
        return held.get(name, _slot(value, name))
    return MISSING


def _slot(value: Any, name: str) -> Any:
    """Return a field of a named tuple or a class with slots."""
    for cls in type.__dict__["__mro__"].__get__(type(value)):
        found = cls.__dict__.get(name)
        if type(found).__name__ in ("member_descriptor", "_tuplegetter"):
            try:
                return found.__get__(value)
            except AttributeError:
                return MISSING
    return MISSING


def _item(value: Any, key: int | str) -> Any:
    kind = type(value)
    if kind in (list, tuple) and type(key) is int and -len(value) <= key < len(value):
        return value[key]
    return value.get(key, MISSING) if kind is dict else MISSING


class Source:
    """The text of a file, and its syntax tree."""

    def __init__(self, text: str) -> None:
        self.lines = [line.encode() for line in text.splitlines(keepends=True)]
        self.starts = [0, *itertools.accumulate(map(len, self.lines))]
        self.data = b"".join(self.lines)
        self.tree = ast.parse(text)

    def span(self, node: Any) -> tuple[int, int]:
        """Return the bytes at which a node starts and ends."""
        starts = self.starts
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.AST) -> str:
        """Return the text of a node."""
        start, stop = self.span(node)
        return self.data[start:stop].decode()

    def replaced(self, node: ast.AST, parts: Mapping[Any, str]) -> str:
        """Return the text of a node with other texts in place of some nodes in it."""
        start, place = self.span(node)
        pieces = []
        for part in sorted(parts, key=self.span, reverse=True):
            first, last = self.span(part)
            pieces += [self.data[last:place].decode(), parts[part]]
            place = first
        return self.data[start:place].decode() + "".join(reversed(pieces))

    def around(self, node: ast.expr) -> Iterator[ast.expr]:
        """Yield an expression and those around it, from the inside."""
        start, stop = self.span(node)
        spans = [(self.span(one), one) for one in ast.walk(self.tree) if isinstance(one, ast.expr)]
        outer = [one for one in spans if one[0][0] <= start and stop <= one[0][1]]
        yield from (one for _, one in sorted(outer, key=lambda one: one[0][1] - one[0][0]))

    def is_first(self, node: ast.expr) -> bool:
        """Return whether the text of an expression stands nowhere before it in its line."""
        start, stop = self.span(node)
        return self.data.index(self.data[start:stop], self.starts[node.lineno - 1]) == start

    def at(
        self, line: int, end_line: int | None, column: int | None, end_column: int | None
    ) -> ast.expr | None:
        """Return the expression at a position; without one, the largest call or operation of a line."""
        found = None
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.expr):
                continue
            if (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset) == (
                line,
                end_line,
                column,
                end_column,
            ):
                return node
            if (
                found is None
                and node.lineno == line
                and isinstance(node, ast.Call | ast.BinOp | ast.Subscript)
            ):
                found = node
        return found


def source_of(file: str, variables: Mapping[str, Any]) -> Source | None:
    """Return the source of a file or of a notebook cell; None if it cannot be read."""
    # A pipe would wait, and several sources have names such as <string>.
    if file not in linecache.cache and not os.path.isfile(file):
        return None
    text = "".join(linecache.getlines(file, dict(variables)))
    try:
        return Source(text) if 0 < len(text) < _MOST_BYTES else None
    except (SyntaxError, ValueError, RecursionError):
        return None


def place_of(error: BaseException) -> Place | None:
    """Return the user's innermost line in the traceback of an error; None if there is none with source."""
    lines = UserLines()
    found, inside = None, None
    entries = list(_entries(error))
    best = min((lines.owner(frame.f_code.co_filename) for frame, *_ in entries), default=Owner.MACHINERY)
    if best > Owner.PACKAGE:
        return None
    for number, (frame, line, lasti) in enumerate(entries):
        if lines.owner(frame.f_code.co_filename) is best:
            inside = entries[number + 1][0] if number + 1 < len(entries) else None
            found = _place(frame, line, lasti, inside, found) or found
    return found


def _entries(error: BaseException) -> Iterator[tuple[FrameType, int, int]]:
    entry = error.__traceback__
    while entry is not None:
        yield entry.tb_frame, entry.tb_lineno, entry.tb_lasti
        entry = entry.tb_next


def _place(
    frame: FrameType, line: int, lasti: int, inside: FrameType | None, caller: Place | None
) -> Place | None:
    code = frame.f_code
    source = source_of(code.co_filename, frame.f_globals)
    if source is None:
        return None
    position = next(itertools.islice(code.co_positions(), lasti // 2, None), (None,) * 4)
    place = (
        position
        if position[0] is not None and position[0] <= line <= (position[1] or 0)
        else (line, *[None] * 3)
    )
    node = source.at(*place)  # type: ignore[arg-type]
    if node is None:
        return None
    held = dict(frame_locals(frame) or ())
    passed: tuple[Any, ...] = ()
    if inside is not None:
        received = dict(frame_locals(inside) or ())
        taken = inside.f_code.co_varnames[: inside.f_code.co_argcount]
        passed = tuple(received.get(name, MISSING) for name in taken)
    return Place(
        file=code.co_filename,
        line=node.lineno if node.lineno <= line else line,
        function=code.co_name,
        source=source,
        node=node,
        names={**frame.f_globals, **held},
        passed=passed,
        caller=caller,
    )
