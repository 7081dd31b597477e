"""Named scopes in the names of operations."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .repeats import without_repeats

_CALL = re.compile(r"(\w+)\((.*)\)", re.DOTALL)
_MARK = re.compile("[/()]")
_LONGEST = 4000
"""Characters of a name that are read."""
_DEEPEST = 20
"""Transformations inside each other. What is deeper is a name."""
_FUNCTIONS = ("jit", "pjit", "pmap", "xla_call")
"""Calls of functions. What is in their parentheses is the name of the function."""
_CONTROL = re.compile(
    r"while|body|cond|branch_\d+_fun|scan|(?:closed|core|remat)_call|eval_jaxpr|checkpoint|remat2?|"
    r"rematted_computation|custom_[jv][vj]p_call(?:_jaxpr)?|custom_lin|shard_map|pjit"
)
"""Parts that JAX adds for its own operations."""


def scope_of(op_name: str | None) -> str:
    """Return the named scopes around an operation, outermost first; empty without any.

    >>> scope_of("jit(step)/transpose(jvp(Model))/while/body/closed_call/layers/attn/dot_general")
    'Model/layers/attn'
    """
    *parts, _ = _parts((op_name or "")[:_LONGEST])
    # The backward pass of a scope is inside its forward pass.
    return "/".join(without_repeats(name for part in parts for name in _names(part)))


def _names(part: str, depth: int = 0) -> Iterator[str]:
    """Yield the scopes in a part of a name, also those inside transformations."""
    call = _CALL.fullmatch(part) if depth < _DEEPEST else None
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
