"""An entry of the table of kinds of errors, and the places of its edits."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...compat.values import is_array
from ...geometry.layouts.spec import as_spec
from .explanation import Operand
from .operands import operand_nodes
from .site import Recipe
from .source import Place
from .types import Axes, specs_in, types_in

_BODIES = {"scan": 0, "while_loop": 1, "cond": 2, "fori_loop": 2, "shard_map": 0}
"""Position of the function whose result has another type than it should."""

Finder = Callable[[Place, re.Match[str]], Place | None]
"""A function from the place of an error to the place of its edit; None if there is none."""


def callers(place: Place | None) -> Iterator[Place]:
    """Yield a place and the user's lines that lead to it, innermost first."""
    while place is not None:
        yield place
        place = place.caller


def with_the_spec(place: Place, match: re.Match[str]) -> Place | None:
    """Return the innermost line that has the spec of the message as text, else the place itself."""
    for caller in callers(place):
        with contextlib.suppress(LookupError, ValueError):
            written(caller.node, specs_in(match.string)[0])
            return caller
    return place


def written(node: ast.AST, spec: Axes) -> tuple[ast.Call, int]:
    """Return the call in an expression whose last arguments are a spec, and the place of the first of them.

    Raises:
        ValueError: If there is none.
    """
    calls = []
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and len(call.args) >= len(spec) > 0:
            start = len(call.args) - len(spec)
            with contextlib.suppress(ValueError, TypeError):  # not all of them are literals
                literals = ast.literal_eval(ast.Tuple(call.args[start:], ast.Load()))
                calls += [(call, start)] if as_spec(literals).axes == spec else []
    return min(calls, key=lambda pair: pair[1])


def with_arrays(place: Place, match: re.Match[str]) -> Place | None:
    """Return the innermost line whose operands include an array that is not traced."""
    operands = (
        (caller, [*caller.passed, *map(caller.value, operand_nodes(caller))]) for caller in callers(place)
    )
    return next((caller for caller, values in operands if any(map(is_array, values))), None)


def in_the_function(place: Place, match: re.Match[str]) -> Place | None:
    """Return the result of the function that a transformation was given, or its component in the message."""
    types = types_in(match.string, None)[:2]
    for call in ast.walk(place.node):
        name = place.text(call.func).rpartition(".")[2] if isinstance(call, ast.Call) else ""
        if isinstance(call, ast.Call) and len(call.args) > _BODIES.get(name, len(call.args)):
            # Of two branches, that with less sharding.
            is_first = name == "cond" and len(types) > 1 and types[0].used < types[1].used
            result = _result(place, call.args[_BODIES[name] - is_first])
            path = match["path"].removeprefix("loop_carry[1]")  # of fori_loop, which is a scan
            node = component(result, "[0]" * (name == "scan") + path)
            return node and replace(place, node=node, passed=(), caller=place)
    return None


def _result(place: Place, function: ast.expr) -> ast.expr | None:
    """Return the result of a function that is written in the same file with one return."""
    if isinstance(function, ast.Lambda):
        return function.body
    name = function.id if isinstance(function, ast.Name) else None
    named = [
        node
        for node in ast.walk(place.source.tree)
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    returns = [
        part.value for definition in named for part in ast.walk(definition) if isinstance(part, ast.Return)
    ]
    return returns[0] if len(returns) == 1 else None


def component(node: Any, path: str) -> Any:
    """Return an item of nested tuples, such as that at ``c[1][0]``; None if they are not written as such."""
    for index in map(int, re.findall(r"\[(\d+)\]", path)):
        node = node.elts[index] if isinstance(node, ast.Tuple | ast.List) and index < len(node.elts) else None
    return node


class Facts(NamedTuple):
    """What is told of an error apart from the parts of its message."""

    words: Mapping[str, str]
    """Words of the rule that are not groups of the pattern."""

    operands: Sequence[Operand] | None = None
    """Operands; None for those of the expression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of error: the message, the rule that was broken, and recipes for edits."""

    name: str
    """Name, such as ``ambiguous contraction``."""

    pattern: str
    """Regular expression of the beginning of the message; a dot also matches the end of a line."""

    rule: str
    """One sentence. ``{call}`` is the user's call, other names are groups of the pattern or facts."""

    recipes: tuple[Recipe, ...] = ()
    """Functions that yield edits; none if no edit of one expression can work."""

    place: Finder | None = None
    """A function to the place of the edits, where it is not the expression that raised."""

    facts: Callable[[re.Match[str], Place], Facts] | None = None
    """A function to facts of the user's line that the rule needs; None if the message alone has them."""
