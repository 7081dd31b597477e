"""The arrays in an expression that raised, with their types and where these were made."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ...base.quantities import known_sum
from ...compat.values import is_tracer
from .explanation import Operand
from .source import FUNCTIONS, MISSING, Place, at_path
from .types import ArrayType, Axes, type_of

_SPECS = ("jax.sharding.PartitionSpec", "jax.sharding.NamedSharding")
_NEVER_ARRAYS = (
    ast.Constant,
    ast.Lambda,
    ast.Starred,
    ast.JoinedStr,
    ast.Slice,
    ast.Dict,
    ast.Tuple,
    ast.List,
)
_ELEMENTWISE = {
    "abs",
    "exp",
    "log",
    "sqrt",
    "sin",
    "cos",
    "tanh",
    "sigmoid",
    "relu",
    "gelu",
    "silu",
    "softmax",
}


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

    @property
    def known_axes(self) -> list[Axes]:
        """Known shardings: of each part, or of the array."""
        return [part.axes for part in self.parts] or [axes for axes in [self.axes] if axes is not None]

    def can_have(self, axes: Axes) -> bool:
        """Return whether nothing is known that speaks against a sharding."""
        return all(part is None or part.fits(axes) for part in self.parts or (self.type,))

    def resharded_nbytes(self, axes: Axes) -> int | None:
        """Return the bytes that a device sends to reshard it; None if they are not known."""
        types = self.parts or (self.type,)
        return known_sum(None if type_ is None else type_.resharded_nbytes(axes) for type_ in types)


def arrays_of(place: Place) -> list[Array]:
    """Return the arrays among the operands of an expression, in its order."""
    received = _received(place) if calls_jax(place) else {}
    arrays = []
    for node in operand_nodes(place):
        value = place.value(node)
        value = received.get(node, MISSING) if value is MISSING else value
        type_ = _inferred(place, node) if value is MISSING else type_of(value)
        items = value if type(value) in (list, tuple) else ()
        parts = tuple(part for item in items if (part := type_of(item)))
        is_open = value is MISSING and not isinstance(node, _NEVER_ARRAYS) and not _is_spec(place, node)
        if type_ or parts or is_open:
            arrays.append(Array(node=node, type=type_, axes=type_.axes if type_ else None, parts=parts))
    return arrays


def is_batched(place: Place) -> bool:
    """Return whether an operand is traced by ``jax.vmap``: its type lacks the dimension that is mapped."""
    for node in operand_nodes(place):
        value = place.value(node)
        while is_tracer(value):
            if type(value).__name__ == "BatchTracer":
                return True
            value = getattr(value, "primal", None)  # that of jax.grad
    return False


def calls_jax(place: Place) -> bool:
    """Return whether an expression can be one of JAX: not the call of a builtin or of Python's library."""
    if not isinstance(place.node, ast.Call):
        return True
    value = place.value(place.node.func)
    module = str(getattr(value, "__module__", None)).partition(".")[0]
    is_builtin = value is MISSING and isinstance(place.node.func, ast.Name)
    return not is_builtin and (value is MISSING or module not in sys.stdlib_module_names)


def _is_spec(place: Place, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and place.value(node.func) in [*map(at_path, _SPECS)]


def operand_nodes(place: Place) -> Iterator[ast.expr]:
    """Yield the operands of an expression: those of an operator, or the receiver and arguments of a call."""
    match place.node:
        case ast.Call(func=func, args=args, keywords=keywords):
            if (receiver := receiver_of(place, func)) is not None:
                yield from _indexed(receiver)
            for arg in args:
                yield from arg.elts if isinstance(arg, ast.List | ast.Tuple) else [arg]
            yield from (keyword.value for keyword in keywords if keyword.arg is not None)
        case ast.BinOp(left=left, right=right) | ast.AugAssign(target=left, value=right):
            yield from (left, right)
        case ast.UnaryOp(operand=operand) | ast.Attribute(value=operand):
            yield operand
        case ast.Compare(left=left, comparators=others):
            yield from (left, *others)
        case ast.Subscript() as node:
            yield from _indexed(node)


def receiver_of(place: Place, func: ast.expr) -> ast.expr | None:
    """Return the array whose method is called; None if a function is called."""
    if not isinstance(func, ast.Attribute):
        return None
    value = place.value(func.value)
    is_array = type_of(value) is not None or (value is MISSING and not isinstance(func.value, ast.Name))
    return func.value if is_array else None


def _indexed(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the parts of ``x[i, j]`` and of ``x.at[i, j]``, else the expression itself."""
    if isinstance(node, ast.Subscript):
        yield (
            node.value.value
            if isinstance(node.value, ast.Attribute) and node.value.attr == "at"
            else node.value
        )
        node = node.slice
    yield from node.elts if isinstance(node, ast.Tuple) else [node]


def _received(place: Place) -> dict[ast.expr, Any]:
    """Return the values of operands as JAX has received them, if these agree with those that are known."""
    match place.node:
        case ast.Call(func=func, args=args):
            receiver = receiver_of(place, func)
            nodes = args if receiver is None else [receiver, *args]
        case (
            ast.BinOp(left=one, right=other)
            | ast.AugAssign(target=one, value=other)
            | ast.Subscript(value=one, slice=other)
        ):
            nodes = [one, other]
        case _:
            nodes = []
    passed = dict(zip(nodes, place.passed, strict=False))
    for node, value in list(passed.items()):
        if isinstance(node, ast.List | ast.Tuple) and isinstance(value, list | tuple):
            passed.update(zip(node.elts, value, strict=False))
    known = [(place.value(node), value) for node, value in passed.items()]
    agree = all(
        written is MISSING or written is value or type_of(written) == type_of(value)
        for written, value in known
    )
    return passed if agree else {}


def _inferred(place: Place, node: ast.expr) -> ArrayType | None:
    """Return the type of a transposed or elementwise expression of known arrays."""
    match node:
        case ast.Attribute(value=value, attr="T" | "mT" as attr) if array_type := _typed(place, value):
            rank = len(array_type.shape)
            order = [*range(rank - 2), rank - 1, rank - 2] if attr == "mT" else range(rank)[::-1]
            shape, axes = (
                tuple(array_type.shape[dim] for dim in order),
                tuple(array_type.axes[dim] for dim in order),
            )
            return replace(array_type, shape=shape, axes=axes)
        case ast.Subscript(value=value, slice=ast.Constant(value=int())) if array_type := _typed(
            place, value
        ):
            return replace(array_type, shape=array_type.shape[1:], axes=array_type.axes[1:])
        case ast.UnaryOp(operand=operand):
            return _typed(place, operand)
        case ast.Call(func=ast.Attribute(attr=attr), args=[operand]) if attr in _ELEMENTWISE:
            return _typed(place, operand)
        case ast.BinOp(left=left, right=right, op=ast.Add() | ast.Sub() | ast.Mult()):
            types = [_typed(place, left), _typed(place, right)]
            if isinstance(left, ast.Constant) or isinstance(right, ast.Constant) or types[0] == types[1]:
                return types[0] or types[1]
        case ast.BinOp(left=left, right=right, op=ast.MatMult()):
            first, other = _typed(place, left), _typed(place, right)
            if first and other and len(other.shape) == 2 and not (first.axes[-1:] or other.axes[:1])[0]:
                shape, axes = first.shape[:-1] + other.shape[1:], first.axes[:-1] + other.axes[1:]
                return replace(first, shape=shape, axes=axes)
    return None


def _typed(place: Place, node: ast.expr) -> ArrayType | None:
    value = place.value(node)
    return _inferred(place, node) if value is MISSING else type_of(value)


def described(place: Place, array: Array) -> Iterator[Operand]:
    """Yield an operand with its type and where that was made; the items of a list one by one."""
    text = place.text(array.node)
    for number, part in enumerate(array.parts):
        yield Operand(expression=f"{text}[{number}]", type=str(part))
    if not array.parts:
        yield Operand(expression=text, type=str(array.type or ""), made=_made(place, array.node))


def _made(place: Place, node: ast.AST) -> str:
    """Return the line that assigned the variable of an expression, if the source leaves no doubt."""
    is_part = False
    while isinstance(node, ast.Attribute | ast.Subscript):
        is_part |= isinstance(node, ast.Subscript) or node.attr not in ("T", "mT")
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    for scope in (*place.source.around(node, *FUNCTIONS), place.source.tree):
        args: Any = getattr(scope, "args", None)
        stores = _stores(scope, node)
        before = [line for line in stores if 0 < line <= node.lineno]
        is_open = 0 in stores and len(stores) > 2
        if args and any(arg.arg == node.id for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)):
            return "" if before or is_open else f"argument of {getattr(scope, 'name', 'a lambda')}"
        if stores:
            is_sure = before and not is_open and not is_part
            return f"made at {os.path.basename(place.file)}:{before[-1]}" if is_sure else ""
    return ""


def _stores(scope: Any, node: ast.Name) -> list[int]:
    """Return the lines that assign a variable; 0 too for each in a loop or a branch.

    The statement that uses it assigns it later: its line is -1.
    """
    lines = []
    for statement in scope.body if isinstance(scope.body, list) else ():
        is_straight = isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign)
        is_own = is_straight and node in ast.walk(statement)
        for part in ast.walk(statement) if not isinstance(statement, (*FUNCTIONS, ast.ClassDef)) else ():
            if isinstance(part, ast.Name) and part.id == node.id and isinstance(part.ctx, ast.Store):
                lines += [-1] if is_own else [part.lineno] if is_straight else [0, part.lineno]
    return lines
