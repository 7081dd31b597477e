"""Explanations of errors that JAX raised, from the error or from the text of a log."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..compat.shardings import mesh_axes
from ..compat.values import is_mesh
from .explanation import Edit, Explanation, Operand
from .kind import Kind
from .kinds import KINDS
from .operands import arrays_of, described
from .site import Site
from .source import Place, place_of
from .types import specs_in, types_in, with_sizes

MOST_CHARACTERS = 10_000
"""Characters of a message that are read."""

_CLASS = re.compile(r"(?:[\w.]{1,200}: )?")
_MESH = re.compile(r"Mesh\(((?:'\w+': \d+(?:, )?){1,16})")


def explanation_of(error: BaseException) -> Explanation | None:
    """Return why JAX raised an error, and the edits that remove it; None for an error of no known kind.

    It reads the traceback, the source and the variables of the user's line, and runs none of the user's code.
    The edits are computed from the layouts: they are not compiled or run.
    """
    message = str(error)[:MOST_CHARACTERS]
    if (known := _kind_of(message)) is None:
        return None
    kind, found = known
    place = place_of(error)
    if place is None:
        return Explanation(kind=kind.name, rule=_rule(kind, found, ""))
    site = _site(place, found)
    edits = {edit.code: edit for edit in _edits(kind, site)}
    return Explanation(
        kind=kind.name,
        rule=_rule(kind, found, _call(place.node, place.text)),
        file=place.file,
        line=place.line,
        function=place.function,
        expression=place.text(),
        operands=tuple(operand for one in site.arrays for operand in described(place, one)),
        edits=tuple(sorted(edits.values(), key=_cost)),
    )


def _cost(edit: Edit) -> tuple[bool, int]:
    return edit.sent_nbytes is None, edit.sent_nbytes or 0


def _edits(kind: Kind, site: Site) -> Iterator[Edit]:
    for recipe in kind.recipes:
        try:
            yield from recipe(site)
        except LookupError:  # the program has no name for what the edit needs, or an operand is not known
            continue


def _kind_of(message: str) -> tuple[Kind, re.Match[str]] | None:
    """Return the kind of a message, and its match."""
    start = _CLASS.match(message)
    for place in dict.fromkeys((0, start.end() if start else 0)):
        for kind in KINDS:
            if found := _compiled(kind.pattern).match(message, place):
                return kind, found
    return None


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)


def _site(place: Place, found: re.Match[str]) -> Site:
    """Return an error with what is known of its operands."""
    arrays = arrays_of(place)
    sizes = _sizes(place, found.string, [one.type.sizes for one in arrays if one.type is not None])
    types = [with_sizes(one, sizes) for one in types_in(found.string)]
    return Site(
        place=place, arrays=arrays, found=found, types=types, specs=specs_in(found.string), sizes=sizes
    )


def _sizes(place: Place, message: str, known: Sequence[Mapping[str, int]]) -> Mapping[str, int]:
    """Return the sizes of the mesh axes: of the operands, of the message, or of the mesh in the program."""
    if sizes := next(filter(None, known), None):
        return sizes
    if found := _MESH.search(message):
        return {name: int(size) for name, size in re.findall(r"'(\w+)': (\d+)", found[1])}
    meshes = [mesh_axes(value).shape for value in place.names.values() if is_mesh(value) and not value.empty]
    return meshes[0] if meshes and all(one == meshes[0] for one in meshes) else {}


def _call(node: ast.expr, text: Any) -> str:
    """Return the name of the user's call, or the expression itself."""
    shown = text(node.func) if isinstance(node, ast.Call) else text(node)
    return " ".join(shown.split())


def _rule(kind: Kind, found: re.Match[str], call: str) -> str:
    """Return the rule of a kind, in which the user's call stands for a primitive that the user did not write."""
    groups = {name: value or "" for name, value in found.groupdict().items()}
    return kind.rule.format(call=call or groups.get("primitive") or "the operation", **groups)


def explanation_of_text(message: str, frames: Sequence[tuple[str, int, str, str]] = ()) -> Explanation | None:
    """Return why JAX raised an error, as far as a log tells; None for an error of no known kind.

    There are no edits: these need the operands. Neither JAX nor the files of the traceback are read.

    Args:
        message: The error's message, with or without its class. The first 10,000 characters are read.
        frames: File, line, function and source text of each frame, innermost last.
    """
    message = message[:MOST_CHARACTERS]
    if (known := _kind_of(message)) is None:
        return None
    kind, found = known
    file, line, function, text = _last_of_user(frames)
    types = [str(one) for one in types_in(message)]
    return Explanation(
        kind=kind.name,
        rule=_rule(kind, found, ""),
        file=file,
        line=line or None,
        function=function,
        expression=text.strip(),
        operands=tuple(Operand(expression="", type=one) for one in types),
    )


def _last_of_user(frames: Sequence[tuple[str, int, str, str]]) -> tuple[str, int, str, str]:
    """Return the innermost frame outside JAX and libraries."""
    from ..origins.origins import Owner, UserLines

    owner = UserLines().owner
    inner = [frame for frame in frames if owner(frame[0]) < Owner.LIBRARY]
    best = min(map(owner, [frame[0] for frame in inner]), default=None)
    return next((frame for frame in reversed(inner) if owner(frame[0]) is best), ("", 0, "", ""))
