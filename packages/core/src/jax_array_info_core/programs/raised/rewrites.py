"""Recipes that write something else: another function, keyword or spec, or the expression within a call."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ...compat.values import is_abstract_mesh, is_mesh
from ...geometry.layouts.spec import entry_code
from .explanation import Edit
from .kind import written
from .loops import start_of
from .recipes import distinct
from .site import RESHARD, Recipe, Site, parameters
from .types import Axes, type_of

_PART = re.compile(r"\{([\w.]+)\}")
_REDUCTIONS = {"sum": "psum", "max": "pmax", "min": "pmin", "mean": "pmean", "": "psum"}
"""Collective that completes a reduction of each shard; a contraction is a sum."""


def rewritten(template: str) -> Recipe:
    """Return a recipe that writes an expression from its parts.

    Args:
        template: Code, with ``{0}`` for the first argument, ``{args}`` for all, ``{function}`` for the
            function, ``{rows}`` for a spec with the first entry of the first operand, ``{mesh}`` for the mesh
            of the program, and ``{jax.lax.psum}`` for the program's name for this.
    """

    def recipe(site: Site) -> Iterator[Edit]:
        yield Edit(code=_PART.sub(lambda part: _part(site, part[1]), template))

    return recipe


def _part(site: Site, part: str) -> str:
    """Return the code for a part of a template.

    Raises:
        LookupError: If the expression or the program does not have it.
    """
    node = site.place.node
    args = [*map(site.place.text, (*node.args, *node.keywords))] if isinstance(node, ast.Call) else []
    match part:
        case "args":
            return ", ".join(args)
        case "function":
            return site.function
        case "rows":
            return site.spec(((site.arrays[0].axes or ((),))[0], ()), is_full=True)
        case "mesh":
            names = site.place.names
            (mesh,) = [name for name in names if is_mesh(names[name]) and not is_abstract_mesh(names[name])]
            return mesh
    return args[int(part)] if part.isdecimal() else site.place.path_to(part)


def keyword_renamed(site: Site) -> Iterator[Edit]:
    """Give a keyword the nearest name of a parameter."""
    match site.place.node:
        case ast.Call(func=func, keywords=keywords):
            (keyword,) = [argument for argument in keywords if argument.arg == site.found["wrong"]]
            (name,) = difflib.get_close_matches(site.found["wrong"], parameters(site.place.value(func)), 1)
            yield site.edited({keyword: f"{name}={site.place.text(keyword.value)}"})


def on_the_context_mesh(site: Site) -> Iterator[Edit]:
    """Put the operands of another mesh on the mesh in context, sharded as the others if they can be."""
    put, text = site.place.path_to("jax.device_put"), site.place.text
    here = [array.axes for array in site.arrays if array.type and array.axes and array.type.mesh == site.mesh]
    parts = {}
    for array in site.arrays:
        if array.type and array.type.mesh not in (None, site.mesh):
            there = replace(array.type, mesh=site.mesh)
            fit = [axes for axes in here if len(axes) == len(there.shape) and there.fits(axes)]
            parts[array.node] = f"{put}({text(array.node)}, {site.spec(fit[0] if fit else ())})"
    yield from [site.edited(parts)] if parts else []


def as_varying(site: Site) -> Iterator[Edit]:
    """Mark the initial value of a loop as varying over mesh axes."""
    initial = start_of(site.place, site.place.node, site.found["path"])
    if initial is None:
        raise LookupError(site.function)
    text, axes = site.place.text(initial), site.spec((tuple(site.names("axes")),)).partition("(")[2]
    try:
        code = f'{site.place.path_to("jax.lax.pcast")}({text}, {axes[:-1]}, to="varying")'
    except LookupError:
        code = f"{site.place.path_to('jax.lax.pvary')}({text}, {axes[:-1]})"
    yield site.edited({initial: code})


# The expression within a call


def resharded_result(site: Site) -> Iterator[Edit]:
    """Reshard the value of the expression to the type that it should have."""
    wanted, got = site.types[:2]
    if site.found["primitive"] == "cond" and wanted.used < got.used:
        wanted, got = got, wanted
    code = f"{site.place.path_to(*RESHARD)}({site.place.text()}, {site.spec(wanted.axes)})"
    yield Edit(code=code, sent_nbytes=got.resharded_nbytes(wanted.axes))


def reduced_over_shards(site: Site) -> Iterator[Edit]:
    """Reduce the value of the expression over the mesh axes along which it varies."""
    collective = site.place.path_to(f"jax.lax.{_REDUCTIONS[site.last_name]}")
    yield Edit(code=f"{collective}({site.place.text()}, {entry_code(tuple(site.names('axes')))})")


# Specs that the program has written


def reduced_result(site: Site) -> Iterator[Edit]:
    """Leave out the unreduced axes of a spec: the sums are completed at once."""
    for call in ast.walk(site.place.node):
        if isinstance(call, ast.Call) and [keyword.arg for keyword in call.keywords] == ["unreduced"]:
            args = ", ".join(map(site.place.text, call.args))
            yield site.edited({call: f"{site.place.text(call.func)}({args})"})


def respecified(change: Callable[[Site, Axes], Sequence[Axes]]) -> Recipe:
    """Return a recipe that writes another spec in place of the one in the message.

    Args:
        change: A function to some specs. All but the last need arrays that they divide in the expression.
    """

    def recipe(site: Site) -> Iterator[Edit]:
        text, spec = site.place.text, site.specs[0]
        call, start = written(site.place.node, spec)
        *others, last = change(site, spec)
        for candidate in [*(axes for axes in others if _divides_all(site, axes)), last]:
            args = [*map(text, call.args[:start]), *map(entry_code, candidate), *map(text, call.keywords)]
            yield site.edited({call: f"{text(call.func)}({', '.join(args)})"})

    return recipe


def _divides_all(site: Site, spec: Axes) -> bool:
    """Return whether there are arrays in the user's statement, and a spec divides all of that rank."""
    nodes = ast.walk(site.place.source.around(site.place.node, ast.expr, ast.AugAssign)[-1])
    known = [
        array
        for node in nodes
        if (array := type_of(site.place.value(node))) and len(array.shape) >= len(spec)
    ]
    return bool(known) and all(replace(known_type, mesh=site.mesh).fits(spec) for known_type in known)


def each_once(site: Site, spec: Axes) -> Sequence[Axes]:
    """Return specs with each mesh axis once: another in its other places, or none."""
    once = distinct(spec)
    free = [name for name in site.sizes if (name,) not in spec and name not in str(spec)][:1]
    pairs = list(zip(once, spec, strict=True))
    return [*(tuple(new if new == old else (*new, name) for new, old in pairs) for name in free), once]


def of_the_rank(site: Site, spec: Axes) -> Sequence[Axes]:
    """Return specs as long as the array has dimensions: with the last entries merged, or left out."""
    rank = int(site.found["rank"])
    merged = tuple(name for names in spec[max(0, rank - 1) :] for name in names)
    return [*([(*spec[: rank - 1], merged)] if rank else []), spec[:rank]]


def of_the_mesh(site: Site, spec: Axes) -> Sequence[Axes]:
    """Return specs with the mesh axis of the nearest name, else an unused one, or none."""
    wrong = site.found["wrong"]
    near = (
        difflib.get_close_matches(wrong, site.sizes, 1)
        or [size for size in site.sizes if size not in str(spec)][:1]
    )
    return [
        tuple(
            tuple(axis if axis != wrong else name for axis in names if axis != wrong or name)
            for names in spec
        )
        for name in (*near, "")
    ]
