"""Explanations of errors that JAX raised, from the error or from the text of a log."""

from __future__ import annotations

import ast
import contextlib
import functools
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...base.errors import LayoutError
from ...base.text import plain_text
from ...compat.shardings import mesh_axes
from ...compat.values import is_mesh
from .explanation import Edit, Explanation, Operand
from .kind import Facts, Kind
from .kinds import KINDS
from .loops import is_in_a_loop
from .operands import arrays_of, calls_jax, described, is_batched
from .sent import cheapest, measured
from .site import Site
from .source import Place, place_of
from .types import mesh_in, specs_in, types_in

_MOST_CHARACTERS = 10_000
"""Characters of a message that are read."""

_MOST_EDITS = 3
"""Edits of an explanation."""

SECONDS = 5.0
"""Time in which the edits of an explanation are compiled."""

_CLASS = re.compile(r"(?:[\w.]{1,200}: )?")


def explanation_of(error: BaseException) -> Explanation | None:
    """Return why JAX raised an error, and the edits that remove it; None for an error of no known kind.

    It reads the traceback, the source and the variables of the user's line, and runs none of the user's code.
    The edits are computed from the layouts: they are not compiled or run.
    """
    if (known := _kind_of(message := plain_text(error)[:_MOST_CHARACTERS])) is None:
        return None
    kind, match = known
    if (raised := place_of(error)) is None:
        return explanation_of_text(message)
    place = kind.place(raised, match) if kind.place else raised
    site = _site(place or raised, match)
    # What a package does with an operand is not known.
    edits = _edits(kind, site) if place and raised.is_direct and (kind.facts or calls_jax(raised)) else ()
    source, node = site.place.source, site.place.node
    whole, is_in_loop = source.unique(node), is_in_a_loop(site.place)
    words, operands = kind.facts(match, raised) if kind.facts else Facts({})
    if operands is None:
        operands = [operand for array in site.arrays for operand in described(site.place, array)]
        operands = [operand for operand in operands if operand.type or site.place is raised]
    return Explanation(
        kind=kind.name,
        rule=_rule(kind, match, words, replace(site, place=raised)),
        file=site.place.file,
        line=whole.lineno,
        function=site.place.function,
        expression=site.place.text(whole),
        operands=tuple(operands),
        edits=tuple(
            replace(
                edit,
                code=edit.code if edit.is_around else source.replaced(whole, {node: edit.code}),
                sent_nbytes=None if is_batched(site.place) else edit.sent_nbytes,
                is_per_iteration=is_in_loop,
            )
            for edit in edits[:_MOST_EDITS]
        ),
    )


def _edits(kind: Kind, site: Site) -> Sequence[Edit]:
    """Return the edits of the first recipe that finds some, the cheapest first."""
    for recipe in kind.recipes:
        # An operand or a name is not known, or the message has another form.
        with contextlib.suppress(LookupError, ValueError):
            found = {edit.code: edit for edit in recipe(site)}
            if edits := cheapest(measured(site, found.values())):
                return edits
    return ()


def _kind_of(message: str) -> tuple[Kind, re.Match[str]] | None:
    """Return the kind of a message, and its match."""
    start = _CLASS.match(message)
    for place in dict.fromkeys((0, start.end() if start else 0)):
        for kind in KINDS:
            if match := _compiled(kind.pattern).match(message, place):
                return kind, match
    return None


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)


def _site(place: Place, match: re.Match[str]) -> Site:
    """Return an error with what is known of its operands."""
    arrays, message = arrays_of(place), _told(match)
    meshes = set()
    for value in filter(is_mesh, place.names.values()):
        with contextlib.suppress(LayoutError):  # an empty mesh, or one that JAX accepts but no array can have
            meshes.add(mesh_axes(value))
    mesh = mesh_in(message) or next(
        (array.type.mesh for array in arrays if array.type and array.type.mesh), None
    )
    mesh = mesh or (meshes.pop() if len(meshes) == 1 else None)
    types, specs = types_in(message, mesh), specs_in(message)
    deadline = time.monotonic() + SECONDS
    site = Site(
        place=place, arrays=arrays, found=match, types=types, specs=specs, mesh=mesh, deadline=deadline
    )
    # A message that has as many types or specs as the call has operands is about these.
    array_types = dict(zip(arrays, types, strict=True)) if len(types) == len(arrays) else {}
    shown = dict(zip(arrays, specs, strict=True)) if len(specs) == len(arrays) else {}
    if not isinstance(place.node, ast.Call) or site.last_name in message:
        for number, array in enumerate(arrays):
            if array.axes is None and not array.parts:
                type_ = array_types.get(array)
                arrays[number] = replace(array, type=type_, axes=type_.axes if type_ else shown.get(array))
    return site


def _told(match: re.Match[str]) -> str:
    """Return the part of a message that is about the operands: what comes before the type of a result."""
    return match.string[: match.start("shown")] if "shown" in match.groupdict() else match.string


def _rule(kind: Kind, match: re.Match[str], words: Mapping[str, str], site: Site | None = None) -> str:
    """Return the rule of a kind for the user's call, and the operation in it that the user did not write."""
    groups = {name: value or "" for name, value in match.groupdict().items()}
    call = primitive = groups.get("primitive") or "The operation"
    if site is not None:
        call = " ".join((site.function or site.place.text()).split())
        call = call if site.calls_primitive else f"{primitive} in {call}"
    return kind.rule.format(call=call, **{**groups, **words})


def explanation_of_text(message: str) -> Explanation | None:
    """Return why JAX raised an error, as far as a log tells; None if no kind or only the user's line does.

    There are no edits: these need the operands. JAX is not imported.

    Args:
        message: The error's message, with or without its class. The first 10,000 characters are read.
    """
    message = message[:_MOST_CHARACTERS]
    if (known := _kind_of(message)) is None or known[0].facts:
        return None
    kind, match = known
    operands = tuple(Operand(expression="", type=str(type_)) for type_ in types_in(_told(match), None))
    return Explanation(kind=kind.name, rule=_rule(kind, match, {}), operands=operands)
