"""Files of the user that have run, with their syntax trees."""

from __future__ import annotations

import ast
import bisect
from collections.abc import Mapping
from importlib.util import decode_source
from typing import Any

from jax_array_info_core.facts.reports.advice import RemedyPlace
from jax_array_info_core.programs.advice.edits import Columns, Site
from jax_array_info_core.programs.raised.source import FUNCTIONS, Source

Span = tuple[int, int]
"""Bytes at which a part of a file starts and ends."""
Codes = Mapping[str, tuple[bytes, Mapping[str, Any]]]
"""Files by path: the content, and the variables of the module."""


class File:
    """A file.

    Args:
        path: Its path.
        code: Its content.
        names: The variables of its module.
    """

    def __init__(self, path: str, code: bytes, names: Mapping[str, Any]) -> None:
        self.path = path
        self.names = names
        self._source = Source(decode_source(code))
        self.span = self._source.span
        self.on = self._source.on
        nodes = ast.walk(self._source.tree)
        self.around = {part: node for node in nodes for part in ast.iter_child_nodes(node)}
        """The node around each node."""

    def text(self, span: Span) -> str:
        """Return a part of the file."""
        return self._source.data[span[0] : span[1]].decode()

    def site(self, span: Span) -> Site:
        """Return the place of a part."""
        starts = self._source.starts
        first, last = (bisect.bisect_right(starts, place) - 1 for place in span)
        return Site(self.path, first + 1, span[0] - starts[first], last + 1, span[1] - starts[last])

    def span_of(self, site: Site) -> Span:
        """Return the part at a place."""
        starts = self._source.starts
        return starts[site.line - 1] + site.column, starts[site.end_line - 1] + site.end_column

    def place(self, span: Span) -> RemedyPlace:
        """Return the place of a part as it is said: its column in characters."""
        line = bisect.bisect_right(self._source.starts, span[0])
        column = len(self.text((self._source.starts[line - 1], span[0])))
        inside = [
            node
            for node in self.on(line)
            if isinstance(node, FUNCTIONS) and self.span(node)[0] <= span[0] < self.span(node)[1]
        ]
        name = getattr(inside[-1], "name", "<lambda>") if inside else None
        return RemedyPlace(file=self.path, line=line, column=column, function=name)

    def calls(self, line: int, columns: Columns) -> list[ast.Call]:
        """Return the calls that include a line, the outer ones first; or the one at its columns."""
        calls = [node for node in self.on(line) if isinstance(node, ast.Call)]
        places = [(call.lineno, call.end_lineno, call.col_offset, call.end_col_offset) for call in calls]
        place = (line, line, *(columns or ()))
        return [calls[places.index(place)]] if place in places else calls

    def function(self, node: ast.AST) -> Any:
        """Return the function around a node; None if it is outside of all."""
        outer = self.around.get(node)
        return outer if outer is None or isinstance(outer, FUNCTIONS) else self.function(outer)

    def bindings(self, name: str, function: Any = None) -> list[ast.AST]:
        """Return the nodes that bind a name in a function, or in the module."""
        nodes = (node for node in ast.walk(function or self._source.tree) if _bound_by(node) == name)
        return [node for node in nodes if self.function(node) is function]


class Files:
    """Files, each parsed once."""

    def __init__(self, codes: Codes) -> None:
        self._codes = codes
        self._files: dict[str, File | None] = {}

    def get(self, path: str | None) -> File | None:
        """Return a file; None if it has not run, or cannot be parsed."""
        if path is None or path not in self._codes:
            return None
        if path not in self._files:
            try:
                self._files[path] = File(path, *self._codes[path])
            except (SyntaxError, ValueError, RecursionError):
                self._files[path] = None
        return self._files[path]

    def module(self, name: str | None) -> File | None:
        """Return the file of a module; None if it has not run."""
        paths = (path for path, (_, names) in self._codes.items() if names.get("__name__") == name)
        return self.get(next(paths, None))


def _bound_by(node: ast.AST) -> str | None:
    """Return the name that a node binds in the function around it."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.alias(name=name, asname=other):
            return other or name.partition(".")[0]
    return None
