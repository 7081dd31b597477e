"""The names that the code of a change can use at its place."""

from __future__ import annotations

import ast
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from ...arrays.origins.origins import code_of, wrapped_functions
from ..raised.source import Source
from .candidates import Site

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def scope_of(site: Site, source: Source, function: Any) -> Mapping[str, Any]:
    """Return the variables that are known at an expression: those of its module, and of a closure.

    Args:
        site: The expression.
        source: The source of its file.
        function: The function that is advised on, whose closure is known.
    """
    layers = [(one, code_of(one)) for one in wrapped_functions(function)]
    here = [(one, code) for one, code in layers if code is not None and code.co_filename == site.file]
    names: dict[str, Any] = dict(_globals(site.file))
    for one, _ in here:
        names |= getattr(one, "__globals__", {})
    around = [node for node in ast.walk(source.tree) if isinstance(node, _Function) and _contains(node, site)]
    own = [_bound(node) for node in around]  # from the outside
    names = {name: value for name, value in names.items() if not any(name in each for each in own)}
    for one, code in here:
        for place, node in enumerate(around):
            if (
                code.co_name == getattr(node, "name", "<lambda>")
                and _first(node) <= code.co_firstlineno <= node.lineno
            ):
                cells = zip(code.co_freevars, getattr(one, "__closure__", None) or (), strict=False)
                closed = {name: cell for name, cell in cells if not any(name in each for each in own[place:])}
                names |= {name: value for name, cell in closed.items() for value in _contents(cell)}
    return names


def _globals(file: str) -> Mapping[str, Any]:
    """Return the variables of the module of a file; none if it is not imported."""
    for module in [*sys.modules.values()]:
        if isinstance(module, ModuleType):
            own: dict[str, Any] = object.__getattribute__(module, "__dict__")  # a lazy one is not loaded
            if own.get("__file__") == file:
                return own
    return {}


def _contents(cell: Any) -> Iterator[Any]:
    try:
        yield cell.cell_contents
    except ValueError:  # it is empty yet
        return


def _first(node: _Function) -> int:
    """Return the first line of a function, with its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min(one.lineno for one in (node, *decorators))


def _contains(node: _Function, site: Site) -> bool:
    start, stop = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
    return start <= (site.line, site.column) and (site.end_line, site.end_column) <= stop


def _bound(node: _Function) -> set[str]:
    """Return the names that a function binds: its parameters, and what is assigned in it."""
    arguments = node.args
    found = {
        one.arg
        for one in (
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            arguments.vararg,
            arguments.kwarg,
        )
        if one is not None
    }
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load):
            found.add(one.id)
        elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and one is not node:
            found.add(one.name)
        elif isinstance(one, ast.alias):
            found.add((one.asname or one.name).partition(".")[0])
    return found


def operand_of(node: ast.expr, site: Site, known: Container[Site]) -> ast.expr | None:
    """Return a part of an expression whose value is an array, with a short text; None if none is known.

    Args:
        node: The expression, whose value is an array that is computed from others.
        site: Its place.
        known: The expressions whose values are arrays.
    """
    parts: Sequence[ast.expr] = ()
    match node:
        case ast.BinOp(op=ast.MatMult(), left=left, right=right):
            parts = left, right
        case ast.BinOp(left=left, right=ast.Constant()) | ast.UnaryOp(operand=left):
            parts = (left,)
        case ast.BinOp(left=ast.Constant(), right=right):
            parts = (right,)
        case ast.Subscript(value=value):
            parts = (value,)
        case ast.Call(args=args):
            parts = [one for one in args if not isinstance(one, ast.Constant | ast.Starred)][:1]
    found = [*filter(_is_plain, parts)]
    for one in ast.walk(node):
        if one is not node and isinstance(one, ast.expr) and _site(one, site.file) in known:
            found.append(one)
    sizes = [(one.end_lineno or 0, (one.end_col_offset or 0) - one.col_offset) for one in found]
    return min(zip(sizes, found, strict=True), key=lambda pair: pair[0])[1] if found else None


def _is_plain(node: ast.expr) -> bool:
    """Return whether an expression only reads: it can be written a second time."""
    kinds = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.Load)
    return all(isinstance(one, kinds) for one in ast.walk(node))


def _site(node: ast.expr, file: str) -> Site:
    return Site(file, node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)
