"""Recipes that rewrite the expression: another function, another keyword, another spec, a sharding of the result."""

from __future__ import annotations

import ast
import contextlib
import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..compat.values import is_abstract_mesh, is_mesh
from .explanation import Edit
from .places import component, written
from .site import RESHARD, Recipe, Site, entry, parameters
from .types import Axes, fitted

# The sharding of a result


def reshaped(site: Site) -> Iterator[Edit]:
    """Give a reshape the sharding of its result: over the same mesh axes where one divides, or none."""
    (one,) = site.types
    shape = [int(length) for length in re.findall(r"\d+", site.found["result"])]
    names = tuple(name for entry in one.axes for name in entry)
    result = replace(one, shape=tuple(shape), axes=fitted((), len(shape)))
    for dim in [dim for dim in range(len(shape)) if names and site.sizes and result.divides(dim, names)][:1]:
        yield site.given(tuple(names if place == dim else () for place in range(len(shape))))
    yield site.given(result.axes, one.resharded_nbytes(fitted((), len(one.shape))))


def gathered(site: Site) -> Iterator[Edit]:
    """Give an indexing the sharding of its result, that of the indices and of the dimensions that stay."""
    operand, indices = site.types[:2]
    batch, count = indices.axes[:-1], indices.shape[-1]
    if not isinstance(site.place.node, ast.Subscript):
        raise LookupError(site.function)
    used = {name for names in batch for name in names}
    rest = tuple(tuple(name for name in names if name not in used) for names in operand.axes[count:])
    yield site.given((*batch, *rest))


def updated(site: Site) -> Iterator[Edit]:
    """Give an update the sharding of the array that it updates."""
    yield site.given(site.types[0].axes)


def kept(site: Site) -> Iterator[Edit]:
    """Give a result the sharding of the operand, where it has the same dimensions, or none."""
    (one,) = [one.type for one in site.arrays if one.type is not None][:1]
    has_axis = any(keyword.arg == "axis" for keyword in getattr(site.place.node, "keywords", ()))
    yield site.given(one.axes if has_axis else ((),))


def left_to_the_compiler(site: Site) -> Iterator[Edit]:
    """Call a function under ``auto_axes``, with rows sharded as those of the first operand."""
    match site.place.node:
        case ast.Call(func=func) if site.arrays[0].type is not None:
            spec = site.spec((site.arrays[0].type.axes[0], ()), is_full=True)
            auto = site.name("jax.sharding.auto_axes")
            yield site.edited({func: f"{auto}({site.function}, out_sharding={spec})"})


# Names


def renamed(*paths: str) -> Recipe:
    """Return a recipe that calls another function with the same arguments."""

    def recipe(site: Site) -> Iterator[Edit]:
        if isinstance(site.place.node, ast.Call):
            yield site.edited({site.place.node.func: site.name(*paths)})

    return recipe


def as_its_argument(site: Site) -> Iterator[Edit]:
    """Use the first argument in place of the call."""
    if isinstance(site.place.node, ast.Call):
        yield Edit(code=site.place.text(site.place.node.args[0]))


def keyword_renamed(site: Site) -> Iterator[Edit]:
    """Give a keyword the nearest name of a parameter."""
    node = site.place.node
    for keyword in node.keywords if isinstance(node, ast.Call) else ():
        names = difflib.get_close_matches(keyword.arg or "", parameters(site.place.value(node.func)), 1)
        if keyword.arg == site.found["wrong"] and names:
            yield site.edited({keyword: f"{names[0]}={site.place.text(keyword.value)}"})


def entered_as_abstract(site: Site) -> Iterator[Edit]:
    """Use the abstract mesh, which a traced function can enter."""
    match site.place.node:
        case ast.Call(args=[mesh]):
            use = site.name("jax.sharding.use_abstract_mesh")
            yield Edit(code=f"{use}({site.place.text(mesh)}.abstract_mesh)")


def placed_on_a_mesh(site: Site) -> Iterator[Edit]:
    """Put an array on the mesh of the program, by its name."""
    meshes = [
        name for name, value in site.place.names.items() if is_mesh(value) and not is_abstract_mesh(value)
    ]
    match site.place.node:
        case ast.Call(args=[one, spec]) if len(meshes) == 1:
            put, named, text = (
                site.name("jax.device_put"),
                site.name("jax.sharding.NamedSharding"),
                site.place.text,
            )
            yield Edit(code=f"{put}({text(one)}, {named}({meshes[0]}, {text(spec)}))")


def on_the_context_mesh(site: Site) -> Iterator[Edit]:
    """Put the operands of another mesh on the mesh in context, sharded as the others if they can be."""
    put, text = site.name("jax.device_put"), site.place.text
    here = [one.axes for one in site.arrays if one.type and one.type.mesh == site.mesh]
    parts = {}
    for one in site.arrays:
        if one.type and one.type.mesh not in (None, site.mesh):
            there = replace(one.type, mesh=site.mesh)
            axes = next(
                (axes for axes in here if len(axes or ()) == len(there.shape) and there.fits(axes)), ()
            )
            parts[one.node] = f"{put}({text(one.node)}, {site.spec(axes)})"
    if parts:
        yield site.edited(parts)


def as_varying(site: Site) -> Iterator[Edit]:
    """Mark the initial value of a loop as varying over mesh axes."""
    position = {"scan": 1, "while_loop": 2, "fori_loop": 3}[site.last_name]
    path = [int(part) for part in re.findall(r"\[(\d+)\]", site.found["path"] or "")]
    initial = component(site.place.node.args[position], path)  # type: ignore[attr-defined]
    names = ", ".join(f'"{name}"' for name in re.findall(r"\w+", site.found["axes"]))
    text = initial and site.place.text(initial)
    with contextlib.suppress(LookupError):
        yield site.edited({initial: f'{site.name("jax.lax.pcast")}({text}, ({names},), to="varying")'})
        return
    yield site.edited({initial: f"{site.name('jax.lax.pvary')}({text}, ({names},))"})


# The expression as a whole


def resharded_result(site: Site) -> Iterator[Edit]:
    """Reshard the value of the expression to the type that it should have."""
    wanted, got = site.types[:2]
    code = f"{site.name(*RESHARD)}({site.place.text()}, {site.spec(wanted.axes)})"
    yield Edit(code=code, sent_nbytes=got.resharded_nbytes(wanted.axes))


_REDUCTIONS = {"sum": "psum", "max": "pmax", "min": "pmin", "mean": "pmean", "": "psum"}
"""Collective that completes a reduction of each shard; a contraction is a sum."""


def reduced_over_shards(site: Site) -> Iterator[Edit]:
    """Reduce the value of the expression over the mesh axes along which it varies."""
    collective = site.name(f"jax.lax.{_REDUCTIONS[site.last_name]}")
    names = ", ".join(f'"{name}"' for name in re.findall(r"\w+", site.found["axes"]))
    names = f"({names})" if "," in names else names
    yield Edit(code=f"{collective}({site.place.text()}, {names})")


# Specs that the program has written


def _respecified(site: Site, specs: Iterable[Axes]) -> Iterator[Edit]:
    """Write other specs in place of the one in the message."""
    call, start = written(site.place.node, site.specs[0]) or (None, 0)
    for spec in specs if call else ():
        text = site.place.text
        args = ", ".join([*map(text, call.args[:start]), *map(entry, spec), *map(text, call.keywords)])
        yield site.edited({call: f"{text(call.func)}({args})"})


def _can_have(site: Site, spec: Axes) -> bool:
    """Return whether all known operands can have a spec."""
    known = [replace(one.type, mesh=site.mesh) for one in site.arrays if one.type]
    return bool(known and site.mesh) and all(one.fits(fitted(spec, len(one.shape))) for one in known)


def without_duplicates(site: Site) -> Iterator[Edit]:
    """Use a mesh axis once, and another or none in its other places."""
    used = [name for names in site.specs[0] for name in names]
    for free in [*[name for name in site.sizes if name not in used][:1], ""]:
        seen: set[str] = set()
        spec = tuple(
            tuple(filter(None, (free if name in seen else seen.add(name) or name for name in names)))
            for names in site.specs[0]
        )
        if not free or _can_have(site, spec):
            yield from _respecified(site, [spec])


def shortened(site: Site) -> Iterator[Edit]:
    """Merge the entries beyond the rank into the last one, or leave them out."""
    rank, (spec, *_) = int(site.found["rank"]), site.specs
    merged = (*spec[: rank - 1], tuple(name for names in spec[rank - 1 :] for name in names))
    yield from _respecified(
        site, [one for one in (merged, spec[:rank]) if one is not merged or _can_have(site, one)]
    )


def with_other_axes(site: Site) -> Iterator[Edit]:
    """Use the axis of the mesh with the nearest name, else any that divides the operands, or none."""
    wrong = site.found["wrong"]
    near = difflib.get_close_matches(wrong, site.sizes, 1) or [
        name for name in site.sizes if name not in str(site.specs[0])
    ]
    for name in [*near[:1], ""]:
        spec = tuple(
            tuple(filter(None, (name if one == wrong else one for one in names))) for names in site.specs[0]
        )
        if not name or _can_have(site, spec):
            yield from _respecified(site, [spec])


def replicated_result(site: Site) -> Iterator[Edit]:
    """Give a result the sharding ``P()``."""
    yield site.given(())


def reduced_result(site: Site) -> Iterator[Edit]:
    """Leave out the unreduced axes of a spec: the sums are completed at once."""
    for call in ast.walk(site.place.node):
        if isinstance(call, ast.Call) and [one.arg for one in call.keywords] == ["unreduced"]:
            args = ", ".join(map(site.place.text, call.args))
            yield site.edited({call: f"{site.place.text(call.func)}({args})"})


def as_wanted(site: Site) -> Iterator[Edit]:
    """Reshard an operand to the first spec of the message."""
    known = [one for one in site.arrays if one.type in site.types]
    for one in (known or [one for one in site.arrays if one.type is None])[:1]:
        yield site.resharded({one: site.specs[0]})


def mapped_alike(site: Site) -> Iterator[Edit]:
    """Shard the mapped dimensions of all operands of a vmap alike."""
    call = site.place.node
    inner = call.func if isinstance(call, ast.Call) else None
    if not isinstance(call, ast.Call) or not isinstance(inner, ast.Call) or len(inner.args) > 1:
        return
    given = next((one.value for one in inner.keywords if one.arg == "in_axes"), ast.Constant(0))
    in_axes = ast.literal_eval(given)
    mapped = {}
    for number, one in enumerate(site.arrays):
        dim = in_axes if isinstance(in_axes, int) else in_axes[call.args.index(one.node)]
        if dim is not None:
            shown = re.findall(r"\w+", site.found[("one", "other")[number % 2]].replace("None", ""))
            mapped[one] = dim, one.axes or (*[()] * dim, tuple(shown))
    for wanted in dict.fromkeys(axes[dim] for dim, axes in mapped.values()):
        targets = {
            one: tuple(
                wanted if place == dim else tuple(name for name in names if name not in wanted)
                for place, names in enumerate(axes)
            )
            for one, (dim, axes) in mapped.items()
            if axes[dim] != wanted
        }
        if all(one.type is None or one.type.fits(axes) for one, axes in targets.items()):
            yield site.resharded(targets)
