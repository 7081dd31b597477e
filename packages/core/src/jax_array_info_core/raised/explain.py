"""Explanations of errors that JAX raised, from the error or from the text of a log."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..compat.shardings import mesh_axes
from ..compat.values import is_mesh
from ..layouts.spec import MeshAxes
from .explanation import Edit, Explanation, Operand
from .kind import Kind
from .kinds import KINDS
from .operands import Array, arrays_of, described
from .site import Site
from .source import Place, place_of
from .types import ArrayType, Axes, axes_in, mesh_in, specs_in, types_in

MOST_CHARACTERS = 10_000
"""Characters of a message that are read."""

MOST_EDITS = 3
"""Edits of an explanation."""

_CLASS = re.compile(r"(?:[\w.]{1,200}: )?")


def explanation_of(error: BaseException) -> Explanation | None:
    """Return why JAX raised an error, and the edits that remove it; None for an error of no known kind.

    It reads the traceback, the source and the variables of the user's line, and runs none of the user's code.
    The edits are computed from the layouts: they are not compiled or run.
    """
    message = str(error)[:MOST_CHARACTERS]
    if (known := _kind_of(message)) is None:
        return None
    kind, found = known
    raised = place_of(error)
    if raised is None:
        return Explanation(kind=kind.name, rule=_rule(kind, found, ""))
    place = kind.place(raised, found) if kind.place else raised
    can_edit, place = place is not None, place or raised
    site = _site(place, found)
    edits = {edit.code: edit for edit in _edits(kind, site)} if can_edit else {}
    whole = _unique(place)
    parts = [
        replace(edit, code=place.source.replaced(whole, {place.node: edit.code})) for edit in edits.values()
    ]
    return Explanation(
        kind=kind.name,
        rule=_rule(kind, found, _call(raised)),
        file=place.file,
        line=whole.lineno,
        function=place.function,
        expression=place.text(whole),
        operands=tuple(operand for one in site.arrays for operand in described(place, one)),
        edits=tuple(sorted(parts, key=_cost)[:MOST_EDITS]),
    )


def _unique(place: Place) -> ast.expr:
    """Return the smallest expression around that of a place whose text stands first in its line."""
    return next(node for node in place.source.around(place.node) if place.source.is_first(node))


def _cost(edit: Edit) -> tuple[bool, int]:
    return edit.sent_nbytes is None, edit.sent_nbytes or 0


def _edits(kind: Kind, site: Site) -> Iterator[Edit]:
    for recipe in kind.recipes:
        try:
            yield from recipe(site)
        except (LookupError, ValueError):  # an operand or a name is not known, or the message differs
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
    arrays, message = arrays_of(place), found.string
    mesh = mesh_in(message) or next((one.type.mesh for one in arrays if one.type and one.type.mesh), None)
    mesh = mesh or _only_mesh(place)
    types = types_in(message, mesh)
    specs = axes_in(found.groupdict().get("specs") or "") or specs_in(message)
    return Site(
        place=place,
        arrays=_completed(place, arrays, types, specs, message),
        found=found,
        types=types,
        specs=specs,
        mesh=mesh,
    )


def _only_mesh(place: Place) -> MeshAxes | None:
    """Return the mesh of the program, if it has one."""
    meshes = {mesh_axes(value) for value in place.names.values() if is_mesh(value) and not value.empty}
    return meshes.pop() if len(meshes) == 1 else None


def _completed(
    place: Place, arrays: list[Array], types: list[ArrayType], specs: list[Axes], message: str
) -> list[Array]:
    """Return the operands with types and specs from a message that is about these, and has as many."""
    call = _call(place).rpartition(".")[2]
    if isinstance(place.node, ast.Call) and call not in message:
        return arrays
    if len(types) == len(arrays):
        return [
            one if one.axes else replace(one, type=type_, axes=type_.axes)
            for one, type_ in zip(arrays, types)
        ]
    if len(specs) == len(arrays):
        return [one if one.axes else replace(one, axes=spec) for one, spec in zip(arrays, specs)]
    return arrays


def _call(place: Place) -> str:
    """Return the name of the user's call, or the expression itself."""
    node = place.node
    return " ".join(place.text(node.func if isinstance(node, ast.Call) else node).split())


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
    types = [str(one) for one in types_in(message, None)]
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
