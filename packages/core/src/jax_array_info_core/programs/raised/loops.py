"""Loops around the user's expression, and where their carries start."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from .explanation import Edit
from .kind import callers, component, in_the_function
from .site import RESHARD, Site, parameters
from .source import FUNCTIONS, Place
from .types import types_in

_STARTS = {"scan": (1, "init"), "while_loop": (2, "init_val"), "fori_loop": (3, "init_val")}
"""Position and name of the initial carry."""
_LOOPS = (*_STARTS, "map")


def _loop(place: Place) -> str:
    """Return the name of the loop that an expression calls; empty for another expression."""
    name = place.text(place.node.func).rpartition(".")[2] if isinstance(place.node, ast.Call) else ""
    return name if name in _LOOPS else ""


def is_in_a_loop(place: Place) -> bool:
    """Return whether an expression is in the body of a loop of JAX."""
    return any(_loop(caller) for caller in callers(place.caller))


def at_the_start(place: Place, match: re.Match[str]) -> Place | None:
    """Return the start of a carry that has less sharding than the result of the body, else this result."""
    types = types_in(match.string, None)[:2]
    found = (start_of(place, node, match["path"]) for node in ast.walk(place.node))
    starts = [start for start in found if start is not None]
    if starts and len(types) > 1 and types[0].used < types[1].used:
        return replace(place, node=_made(place, starts[0]), passed=())
    return in_the_function(place, match)


def start_of(place: Place, call: Any, path: str) -> ast.expr | None:
    """Return the initial value of a carry, or its component, if it is written in the call of the loop."""
    position, keyword = _STARTS.get(_loop(replace(place, node=call)), (0, ""))
    if not keyword:
        return None
    given = [
        *call.args[position : position + 1],
        *(part.value for part in call.keywords if part.arg == keyword),
    ]
    # That of fori_loop is a part of the carry of a scan.
    return component(given[0], path.removeprefix("loop_carry[1]")) if given else None


def _made(place: Place, start: ast.expr) -> ast.expr:
    """Return the call that made a variable which only the loop uses, else the expression itself."""
    outside = place.source.around(start, *FUNCTIONS)
    nodes = [*ast.walk(outside[0] if outside else place.source.tree)]
    uses = [node for node in nodes if isinstance(node, ast.Name) and node.id == place.text(start)]
    made = [node.value for node in nodes if isinstance(node, ast.Assign) and node.targets == uses[:1]]
    return made[0] if made and len(uses) == 2 and isinstance(made[0], ast.Call) else start


def started(site: Site) -> Iterator[Edit]:
    """Shard the initial value of a loop as the result of its body."""
    place, axes = site.place, site.types[1].axes
    if place.caller is not None and place.caller.names is place.names:
        raise LookupError(place.text())  # the result of the body
    if isinstance(place.node, ast.Call) and "out_sharding" in parameters(place.value(place.node.func)):
        yield site.given(axes)
    else:
        yield Edit(code=f"{place.path_to(*RESHARD)}({place.text()}, {site.spec(axes)})")
