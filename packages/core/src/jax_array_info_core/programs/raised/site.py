"""An error at its place in the user's program, and the edits of its expression."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...arrays.origins.origins import code_of, wrapped_functions
from ...base.quantities import known_sum
from ...geometry.layouts.spec import MeshAxes, entry_code
from .explanation import Edit
from .operands import Array, receiver_of
from .source import MISSING, Place, at_path
from .types import ArrayType, Axes

SPECS = ("jax.sharding.PartitionSpec", "jax.P")
RESHARD = ("jax.sharding.reshard", "jax.reshard")
_ATOMS = (ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Call)
"""Expressions that need no parentheses as operands."""
_SPELLINGS = ("dynamic_slice", "padding", "select", "dot_general")
"""Primitives whose functions have other names."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Site:
    """An error, with the place in the user's program and the operands there."""

    place: Place
    """The user's line."""

    arrays: list[Array]
    """The operands that are arrays, in their order."""

    found: re.Match[str]
    """The message, as its kind has read it."""

    types: list[ArrayType]
    """The types in the message."""

    specs: list[Axes]
    """The specs in the message."""

    mesh: MeshAxes | None
    """The mesh; None if it is not known."""

    deadline: float = 0.0
    """When to stop compiling edits, by ``time.monotonic``."""

    @property
    def sharded(self) -> list[Array]:
        """Return the operands that are sharded, or could be."""
        return [
            array for array in self.arrays if array.type is None or array.type.used or array.type.unreduced
        ]

    @property
    def sizes(self) -> Mapping[str, int]:
        """Size of each mesh axis; empty if the mesh is not known."""
        return self.mesh.shape if self.mesh else {}

    @property
    def function(self) -> str:
        """Name of the function that is called, as the program writes it; empty for an operator."""
        node = self.place.node
        return self.place.text(node.func) if isinstance(node, ast.Call) else ""

    @property
    def last_name(self) -> str:
        """Last part of the name of the function; empty for an operator."""
        return self.function.rpartition(".")[2]

    @property
    def calls_primitive(self) -> bool:
        """Return whether the user has written the operation in the message, not a function that uses it."""
        name = self.found.groupdict().get("primitive") or ""
        return not isinstance(self.place.node, ast.Call) or name in self.last_name or name in _SPELLINGS

    def names(self, group: str) -> list[str]:
        """Return the words and numbers in a part of the message; none if it lacks that part."""
        return re.findall(r"\w+", self.found.groupdict().get(group) or "")

    def spec(self, axes: Axes, *, is_full: bool = False) -> str:
        """Return the code of a PartitionSpec; ``P()`` without mesh axes, unless it has all entries."""
        entries = map(entry_code, axes if is_full or any(axes) else ())
        return f"{self.place.path_to(*SPECS)}({', '.join(entries)})"

    def edited(self, parts: Mapping[Any, str], nbytes: int | None = None) -> Edit:
        """Return the expression with other texts in place of some nodes in it.

        Raises:
            LookupError: If a call in the target of an assignment would run twice.
        """
        match self.place.node:
            case ast.AugAssign(target=target, value=value, op=op) if target in parts:
                # A call cannot be assigned to: ``z += y`` is ``z = z + y``.
                if any(isinstance(part, ast.Call) for part in ast.walk(target)):
                    raise LookupError(self.place.text(target))
                symbol = ast.unparse(ast.BinOp(ast.Constant(0), op, ast.Constant(0))).strip("0")
                text = parts.get(value, self.place.text(value))
                text = text if value in parts or isinstance(value, _ATOMS) else f"({text})"
                code = f"{self.place.text(target)} = {parts[target]}{symbol}{text}"
            case node:
                code = self.place.source.replaced(node, parts)
        return Edit(code=code, sent_nbytes=nbytes)

    def resharded(self, targets: Mapping[Array, Axes]) -> Edit:
        """Return the expression with some operands resharded, and the bytes that this sends."""
        reshard, text = self.place.path_to(*RESHARD), self.place.text
        parts = {
            array.node: f"{reshard}({text(array.node)}, {self.spec(axes)})" for array, axes in targets.items()
        }
        return self.edited(parts, known_sum(array.resharded_nbytes(axes) for array, axes in targets.items()))

    def given(self, axes: Axes, nbytes: int | None = None, parts: Mapping[Any, str] | None = None) -> Edit:
        """Return the expression with the sharding of its result as an argument.

        Args:
            axes: The sharding.
            nbytes: Bytes that a device sends for it.
            parts: Other texts of some arguments.

        Raises:
            LookupError: If its function does not take one.
        """
        text, result = self.place.text, f"out_sharding={self.spec(axes, is_full=True)}"
        match self.place.node:
            case (
                ast.BinOp(left=left, right=right, op=ast.MatMult())
                | ast.AugAssign(target=left, value=right, op=ast.MatMult())
            ) as node:
                assigned = f"{text(left)} = " if isinstance(node, ast.AugAssign) else ""
                code = f"{self.place.path_to('jax.numpy')}.matmul({text(left)}, {text(right)}, {result})"
                return Edit(code=assigned + code, sent_nbytes=nbytes)
            case ast.Subscript(value=value, slice=index):
                return Edit(code=f"{text(value)}.at[{text(index)}].get({result})", sent_nbytes=nbytes)
            case ast.Call(func=func, args=args, keywords=keywords):
                receiver, name = receiver_of(self.place, func), text(func)
                arguments = [(parts or {}).get(argument) or text(argument) for argument in args]
                target = self.place.value(func)
                if receiver is not None and not isinstance(receiver, ast.Subscript):
                    name = f"{self.place.path_to('jax.numpy')}.{self.last_name}"
                    target = at_path(f"jax.numpy.{self.last_name}")
                    is_shape = self.last_name == "reshape" and len(args) > 1
                    arguments = [text(receiver), *([f"({', '.join(arguments)})"] if is_shape else arguments)]
                if target is not MISSING and "out_sharding" not in parameters(target):
                    raise LookupError(name)
                kept = [text(keyword) for keyword in keywords if keyword.arg != "out_sharding"]
                return Edit(code=f"{name}({', '.join([*arguments, *kept, result])})", sent_nbytes=nbytes)
        raise LookupError(text())


def parameters(function: Any) -> tuple[str, ...]:
    """Return the names of the parameters of a function; none if it is not written in Python."""
    code = None if function is MISSING else code_of(wrapped_functions(function)[-1])
    return () if code is None else code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


Recipe = Callable[[Site], Iterator[Edit]]
"""A function from an error to the edits that remove it.

It raises LookupError or ValueError where it finds none.
"""
