"""Passes and name scopes of the instructions of a program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, TypeVar

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


_DERIVATIVE = re.compile(r"(?<![^/(])(?:jvp|transpose)(?=\()")


def is_nested_derivative(op_name: str | None) -> bool:
    """Return whether an operation belongs to a derivative of a backward pass.

    >>> is_nested_derivative("jit(f)/jvp(transpose(jvp()))/mul")
    True
    >>> is_nested_derivative("jit(f)/transpose(jvp())/mul;jit(f)/jvp()/mul")
    False
    """
    # XLA joins the names of operations that it merges.
    found = (_DERIVATIVE.findall(name) for name in (op_name or "").split(";"))
    return any(marks[:1] == ["jvp"] and "transpose" in marks for marks in found)


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
