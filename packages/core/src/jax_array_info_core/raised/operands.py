"""The arrays in an expression that raised, with their types and where these were made."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..quantities import known_sum
from .explanation import Operand
from .source import MISSING, Place, at_path
from .types import ArrayType, Axes, type_of

_SPECS = ("jax.sharding.PartitionSpec", "jax.sharding.NamedSharding")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_NEVER_ARRAYS = (ast.Constant, ast.Lambda, ast.Starred, ast.JoinedStr, ast.Slice, ast.Dict, ast.Compare)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Array:
    """An operand that is an array, or could be one."""

    node: ast.expr
    """The expression."""

    type: ArrayType | None
    """Its type; None if it is not known."""

    axes: Axes | None = None
    """Mesh axes of each array axis, which can be known without the type; None if they are not known."""

    parts: tuple[ArrayType, ...] = ()
    """Types of the arrays in it, if it is a list or a tuple."""

    def resharded_nbytes(self, axes: Axes) -> int | None:
        """Return the bytes that a device sends to reshard it; None if they are not known."""
        return known_sum(one and one.resharded_nbytes(axes) for one in self.parts or (self.type,))


def arrays_of(place: Place) -> list[Array]:
    """Return the arrays among the operands of an expression, in its order."""
    known = _received(place)
    found = []
    for node in operand_nodes(place):
        value = place.value(node)
        value = known.get(node, MISSING) if value is MISSING else value
        if value is MISSING:
            if isinstance(node, _NEVER_ARRAYS) or _is_spec_call(place, node):
                continue
            found.append(_array(node, _inferred(place, node)))
        elif (one := type_of(value)) is not None:
            found.append(_array(node, one))
        elif type(value) in (list, tuple) and (parts := [*filter(None, map(type_of, value))]):
            one = parts[0] if len({*parts}) == 1 else None
            found.append(Array(node=node, type=one, axes=one and one.axes, parts=tuple(parts)))
    return found


def _array(node: ast.expr, one: ArrayType | None) -> Array:
    return Array(node=node, type=one, axes=one and one.axes)


def operand_nodes(place: Place) -> Iterator[ast.expr]:
    """Yield the operands of an expression: those of an operator, or the receiver and the arguments of a call."""
    match place.node:
        case ast.Call(func=func, args=args, keywords=keywords):
            if (receiver := receiver_of(place, func)) is not None:
                yield from _indexed(receiver)
            for arg in args:
                yield from arg.elts if isinstance(arg, ast.List | ast.Tuple) else [arg]
            yield from (keyword.value for keyword in keywords if keyword.arg is not None)
        case ast.BinOp(left=left, right=right):
            yield from (left, right)
        case ast.Compare(left=left, comparators=others):
            yield from (left, *others)
        case ast.UnaryOp(operand=operand) | ast.Attribute(value=operand):
            yield operand
        case ast.Subscript():
            yield from _indexed(place.node)


def receiver_of(place: Place, func: ast.expr) -> ast.expr | None:
    """Return the array whose method is called; None if a function is called."""
    if not isinstance(func, ast.Attribute):
        return None
    value = place.value(func.value)
    is_array = (value is MISSING and not isinstance(func.value, ast.Name)) or type_of(value) is not None
    return func.value if is_array else None


def _indexed(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the parts of ``x[i, j]`` and of ``x.at[i, j]``, else the expression itself."""
    if not isinstance(node, ast.Subscript):
        yield node
        return
    value, index = node.value, node.slice
    yield value.value if isinstance(value, ast.Attribute) and value.attr == "at" else value
    yield from index.elts if isinstance(index, ast.Tuple) else [index]


def _received(place: Place) -> dict[ast.expr, Any]:
    """Return the values of operands as JAX has received them, if these agree with those that are known."""
    nodes: list[ast.expr | None]
    match place.node:
        case ast.Call(func=func, args=args):
            receiver = receiver_of(place, func)
            nodes = [*args] if receiver is None else [receiver, *args]
        case ast.BinOp(left=left, right=right):
            nodes = [left, right]
        case ast.Subscript(value=value, slice=index):
            nodes = [value, index]
        case _:
            return {}
    found: dict[ast.expr, Any] = {}
    for node, value in zip(nodes, place.passed, strict=False):
        if isinstance(node, ast.List | ast.Tuple) and isinstance(value, list | tuple):
            found.update(zip(node.elts, value, strict=False))
        elif node is not None:
            found[node] = value
    pairs = [(place.value(node), value) for node, value in found.items()]
    agree = all(
        known is MISSING or known is value or type_of(known) == type_of(value) for known, value in pairs
    )
    return found if agree else {}


def _is_spec_call(place: Place, node: ast.expr) -> bool:
    """Return whether an expression makes a PartitionSpec or a sharding."""
    return isinstance(node, ast.Call) and place.value(node.func) in map(at_path, _SPECS)


def _inferred(place: Place, node: ast.expr) -> ArrayType | None:
    """Return the type of a transposed, negated or nested expression of known arrays."""
    match node:
        case ast.Attribute(value=value, attr="T"):
            one = _typed(place, value)
            return one and replace(one, shape=one.shape[::-1], axes=one.axes[::-1])
        case ast.Attribute(value=value, attr="mT"):
            one = _typed(place, value)
            order = [*range(len(one.shape))] if one else []
            order[-2:] = order[-2:][::-1]
            pick = lambda items: tuple(items[axis] for axis in order)  # noqa: E731
            return one and replace(one, shape=pick(one.shape), axes=pick(one.axes))
        case ast.UnaryOp(operand=operand):
            return _typed(place, operand)
    return None


def _typed(place: Place, node: ast.expr) -> ArrayType | None:
    value = place.value(node)
    return _inferred(place, node) if value is MISSING else type_of(value)


def described(place: Place, one: Array) -> Iterator[Operand]:
    """Yield an operand with its type and where that was made; the items of a list one by one."""
    text, made = place.text(one.node), _made(place, one.node)
    if one.parts:
        for number, part in enumerate(one.parts):
            yield Operand(expression=f"{text}[{number}]", type=str(part), made=made)
    else:
        yield Operand(expression=text, type=str(one.type or ""), made=made)


def _made(place: Place, node: ast.AST) -> str:
    """Return where the variable of an expression was assigned, if the source says so without doubt."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    tree = place.source.tree
    functions = [
        one
        for one in ast.walk(tree)
        if isinstance(one, _FUNCTIONS)
        and one.lineno <= node.lineno <= (one.end_lineno or 0)
        and any(inner is node for inner in ast.walk(one))
    ]
    for scope in (*reversed(functions), tree):
        lines = _stores(scope, node.id)
        if scope is not tree and any(arg.arg == node.id for arg in _parameters(scope)):
            name = getattr(scope, "name", "the lambda")
            return "" if lines else f"argument of {name}"
        if lines:
            before = [line for line in lines if line is not None and line < place.line]
            is_sure = len(lines) == 1 or None not in lines
            return f"made at {os.path.basename(place.file)}:{before[-1]}" if before and is_sure else ""
    return ""


def _parameters(function: Any) -> list[ast.arg]:
    args = function.args
    return [*args.posonlyargs, *args.args, *args.kwonlyargs]


def _stores(scope: Any, name: str) -> list[int | None]:
    """Return the lines that assign a variable; None for one in a loop or a branch, unless it is the only one."""
    found: list[tuple[int, bool]] = []
    for statement in scope.body if isinstance(scope.body, list) else ():
        is_straight = isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.With)
        if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
            continue
        found += [
            (one.lineno, is_straight)
            for one in ast.walk(statement)
            if isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Store)
        ]
    is_only = len(found) == 1
    return [line if is_straight or is_only else None for line, is_straight in found]
