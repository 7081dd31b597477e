"""Recipes that shard operands or results in another way, computed from the operands of this program."""

from __future__ import annotations

import ast
import contextlib
import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from ...base.quantities import known_sum
from ...xla.hlo.collectives import sent_nbytes
from .explanation import Edit
from .operands import Array
from .site import RESHARD, Recipe, Site
from .types import ArrayType, Axes, fitted

_MOST_OTHERS = 6
"""Maximum number of shardings that no operand has."""

_MOST_PLACEMENTS = 128
"""Maximum number of shardings of a result that are considered."""


def distinct(entries: Iterable[tuple[str, ...]], used: Iterable[str] = ()) -> Axes:
    """Return the entries of a spec without mesh axes that are used, or that an earlier entry has."""
    seen, kept = set(used), []
    for names in entries:
        kept.append(tuple(name for name in names if name not in seen))
        seen.update(names)
    return tuple(kept)


# Operands


def as_another(site: Site, *, broadcast: bool = False) -> Iterator[Edit]:
    """Reshard all operands as one of them is."""
    arrays = [array for array in site.arrays if array.type is None or array.type.shape]
    known = [axes for array in arrays for axes in array.known_axes]
    for spec in dict.fromkeys(axes for axes in known if len(axes) == max(map(len, known))):
        targets = {array: _aligned(array, spec, broadcast) for array in arrays}
        changed = {array: axes for array, axes in targets.items() if {*array.known_axes} != {axes}}
        # A message prints specs of operands of the same rank, which those that are broadcast do not have.
        is_known = not broadcast or all(array.type for array in changed)
        if changed and is_known and all(array.can_have(axes) for array, axes in changed.items()):
            yield site.resharded(changed)
    if site.mesh and arrays and all(array.type for array in arrays):
        widest = max((array.type for array in arrays if array.type), key=lambda type_: type_.shape[::-1])
        others = [
            site.resharded({array: _aligned(array, spec, broadcast) for array in arrays})
            for spec in placements(replace(widest, mesh=site.mesh))
        ]
        for edit in sorted(others, key=lambda edit: edit.sent_nbytes or 0)[:_MOST_OTHERS]:
            yield replace(edit, is_reserve=True)


def _aligned(array: Array, spec: Axes, broadcast: bool) -> Axes:
    """Return the entries of a spec for the last dimensions; broadcast ones are not sharded."""
    shape = array.type.shape if array.type else (0,) * len(spec)
    last = zip(shape, spec[len(spec) - len(shape) :], strict=True)
    return tuple(() if broadcast and length == 1 else names for length, names in last)


def broadcast_as_another(site: Site) -> Iterator[Edit]:
    """Reshard all operands as one of them is, but for dimensions of length 1."""
    yield from as_another(site, broadcast=True) if site.calls_primitive else ()


def unsharded(site: Site) -> Iterator[Edit]:
    """Reshard an operand so that it is not sharded along some dimensions, which the message names.

    These are ``dims``, or those that are sharded ``over`` some mesh axes. They are dimensions of the user's
    operand if it has the type or the spec in the message. Else it is replicated.
    """
    known = [
        operand
        for operand in site.sharded
        if operand.type and (operand.type in site.types or operand.axes in site.specs)
    ]
    for array in (known or site.sharded[-1:])[:1]:
        over = tuple(site.names("over"))
        dims = [int(dim) for dim in site.names("dims")]
        dims += [dim for dim, names in enumerate(array.axes or ()) if over and names == over]
        is_named = array.type and dims and known and site.calls_primitive
        for axes in array.type.without(dims) if array.type and is_named else [()]:
            # The shape of the result says whether it can be sharded along another dimension instead.
            result = re.findall(r"(?<![\w.])\d+", site.found["result"] or "") if over else []
            pairs = [(dim, names) for dim, names in enumerate(axes) if names and over]
            is_whole = all(
                array.type and array.type.divides(dim, names, int(result[dim])) for dim, names in pairs
            )
            if is_whole and axes != array.axes:
                yield site.resharded({array: axes})
        if not is_named:  # another operation of the function is known to work with a replicated operand alone
            yield from loosened(site)


def replicated(site: Site) -> Iterator[Edit]:
    """Replicate the operands that are sharded, if the sharding of each is known."""
    if not all(array.known_axes for array in site.arrays):
        raise LookupError(site.function)
    yield from [site.resharded(dict.fromkeys(site.sharded, ()))] if site.sharded else []


def loosened(site: Site) -> Iterator[Edit]:
    """Reshard one operand in any way, or leave out parts of the shardings of all, if it compiles."""
    known = {array: replace(array.type, mesh=site.mesh) for array in site.arrays if array.type}
    targets: list[dict[Array, Axes]] = []
    choices = []
    for array, whole in known.items():
        targets += [{array: axes} for axes in placements(whole) if axes != whole.axes]
        dims = [dim for dim, names in enumerate(whole.axes) if names]
        choices.append([whole.axes, *(axes for dim in dims for axes in whole.without([dim]))])
    for chosen in itertools.islice(itertools.product(*choices), _MOST_PLACEMENTS):
        changed = {array: axes for array, axes in zip(known, chosen, strict=True) if axes != array.axes}
        targets += [changed] if len(changed) > 1 else []
    found = [site.resharded(changed) for changed in targets]
    for edit in sorted(found, key=lambda edit: edit.sent_nbytes or 0):
        yield replace(edit, is_reserve=True)


def as_wanted(site: Site) -> Iterator[Edit]:
    """Reshard an operand of the first type in the message to its first spec, or to its second type."""
    known = [array for array in site.arrays if array.type == site.types[0]]
    *_, array = known or [array for array in site.arrays if array.type is None]
    yield site.resharded({array: site.specs[0] if site.specs else site.types[1].axes})


def updated(site: Site) -> Iterator[Edit]:
    """Reshard an update as the part that it replaces, and give the result the sharding of the array."""
    *_, array = [array for array in site.arrays[1:] if array.type == site.types[0]] or [
        array for array in site.arrays[1:] if array.type is None
    ]
    code = f"{site.place.path_to(*RESHARD)}({site.place.text(array.node)}, {site.spec(site.types[1].axes)})"
    yield site.given(site.arrays[0].axes or (), parts={array.node: code})


def mapped_alike(site: Site) -> Iterator[Edit]:
    """Shard the mapped dimensions of all operands of a vmap alike."""
    match site.place.node:
        case ast.Call(func=ast.Call(args=[_], keywords=keywords), args=args):
            in_axes = ast.literal_eval(
                next((keyword.value for keyword in keywords if keyword.arg == "in_axes"), ast.Constant(0))
            )
            dims = {
                array: in_axes if isinstance(in_axes, int) else in_axes[args.index(array.node)]
                for array in site.arrays
            }
            shown = [*filter("None".__ne__, site.names("one"))], [*filter("None".__ne__, site.names("other"))]
            mapped = {operand: dim for operand, dim in dims.items() if dim is not None}
            axes = {
                operand: operand.axes or (*[()] * dim, tuple(shown[number > 0]))
                for number, (operand, dim) in enumerate(mapped.items())
            }
            for wanted in dict.fromkeys(axes[operand][dim] for operand, dim in mapped.items()):
                targets = {}
                for array, dim in mapped.items():
                    others = distinct(axes[array], wanted)
                    if axes[array][dim] != wanted:
                        targets[array] = (*others[:dim], wanted, *others[dim + 1 :])
                if all(operand.can_have(target) for operand, target in targets.items()):
                    yield site.resharded(targets)


# Results


def given(spec: Callable[[Site], Axes]) -> Recipe:
    """Return a recipe that gives a result a sharding."""

    def recipe(site: Site) -> Iterator[Edit]:
        yield site.given(spec(site))

    return recipe


def indexed(site: Site) -> Axes:
    """Return the spec of an indexing: that of the indices, then that of the dimensions that stay."""
    operand, indices = site.types[:2]
    node = site.place.node
    if not isinstance(node, ast.Subscript) or any(
        isinstance(part, ast.Slice) for part in ast.walk(node.slice)
    ):
        raise LookupError(site.function)
    return distinct([*indices.axes[:-1], *operand.axes[indices.shape[-1] :]])


def repeated(site: Site) -> Axes:
    """Return the spec of an operand, if the result has the same dimensions."""
    node = site.place.node
    has_axis = isinstance(node, ast.Call) and (
        len(node.args) > 2 or any(keyword.arg == "axis" for keyword in node.keywords)
    )
    return (site.arrays[0].axes or ((),)) if has_axis else ((),)


def reshaped(site: Site) -> Iterator[Edit]:
    """Give a reshape the sharding of its result: over the same mesh axes where they divide one, or none."""
    (source,), shape = site.types, tuple(map(int, site.names("result")))
    result = replace(source, shape=shape, axes=fitted((), len(shape)))
    specs = [spec for spec in placements(result, source.used) if source.used <= _names(spec)]
    yield from map(site.given, specs) if specs else [site.given(result.axes, source.resharded_nbytes(()))]


def _terms(site: Site) -> tuple[list[tuple[Array, str]], str]:
    """Return the operands of a contraction with letters for their dimensions, and those of the result."""
    match site.place.node:
        case ast.Call(args=[ast.Constant(value=str() as subscripts), *_]) if "." not in subscripts:
            inputs, arrow, result = subscripts.replace(" ", "").partition("->")
            letters = sorted(inputs.replace(",", ""))
            result = result if arrow else "".join(letter for letter in letters if letters.count(letter) == 1)
            return list(zip(site.arrays, inputs.split(","), strict=True)), result
    left, right = (len(array.axes) for array in site.arrays if array.axes is not None)
    if site.last_name not in ("matmul", "dot", ""):
        raise LookupError(site.function)
    batch = "abcdefgh"[: max(left, right, 2) - 2]
    # The dimensions before the last two are those of a batch for matmul, and of the result each for dot.
    others = "ABCDEFGH" if site.last_name == "dot" else batch
    first, other = batch[len(batch) + 2 - max(left, 2) :], others[len(batch) + 2 - max(right, 2) : len(batch)]
    rows, columns = "i" * (left > 1), "k" * (right > 1)
    result = f"{first}{rows}{other}" if others != batch else f"{batch}{rows}"
    return [*zip(site.arrays, (f"{first}{rows}j", f"{other}j{columns}"), strict=True)], f"{result}{columns}"


def placements(whole: ArrayType, over: Collection[str] | None = None) -> Iterator[Axes]:
    """Yield the shardings of an array over some mesh axes, or all: each along one dimension or none."""
    names = [name for name, size in whole.sizes.items() if size > 1 and (over is None or name in over)]
    rank = len(whole.shape)
    for dims in itertools.islice(itertools.product(range(rank + 1), repeat=len(names)), _MOST_PLACEMENTS):
        along = [*zip(names, dims, strict=True)]
        axes = tuple(tuple(name for name, at in along if at == dim) for dim in range(rank))
        yield from [axes] if whole.fits(axes) else []


def contracted(site: Site) -> Iterator[Edit]:
    """Give a contraction the sharding of its result: each that keeps the mesh axes of its dimensions."""
    terms, result = _terms(site)
    types = [(term, array.type) for array, term in terms if array.type]
    if len(types) < len(terms) or site.mesh is None:
        raise LookupError(site.function)
    letters = [entry for term, type_ in types for entry in zip(term, type_.shape, type_.axes, strict=True)]
    lengths = {letter: length for letter, length, _ in sorted(letters, key=lambda entry: entry[1])}
    # An operand that is sharded along a dimension comes before one that is not.
    axes = {letter: names for letter, _, names in sorted(letters, key=lambda letter: bool(letter[2]))}
    own = tuple(axes[letter] for letter in result)
    used = {name for names in axes.values() for name in names}
    whole = replace(types[0][1], shape=tuple(lengths[letter] for letter in result), axes=own, mesh=site.mesh)
    found = [
        (nbytes, sum(names != had for names, had in zip(spec, own, strict=True)), least, spec)
        for spec in placements(whole)
        for nbytes, least in [_contraction_nbytes(types, result, spec, whole)]
    ]
    keeping = [row for row in found if whole.used <= _names(row[-1])]
    for _, _, least, spec in sorted(keeping or found, key=lambda row: row[:2]):
        yield replace(site.given(spec, least), is_reserve=not _names(spec) <= used)


def _names(axes: Axes) -> set[str]:
    return {name for names in axes for name in names}


def _contraction_nbytes(
    types: Sequence[tuple[str, ArrayType]], result: str, spec: Axes, whole: ArrayType
) -> tuple[int, int]:
    """Return about what a contraction sends for its operands and sums, and the least for the sums."""
    summed = {letter for term, _ in types for letter in term} - {*result}
    had = {
        letter: [type_.axes[term.index(letter)] for term, type_ in types if letter in term]
        for letter in summed
    }
    wanted = {
        letter: tuple(name for name in each[0] if all(name in names for names in each))
        for letter, each in had.items()
    }
    over = _names(tuple(wanted.values()))
    wanted |= {
        letter: tuple(name for name in names if name not in over)
        for letter, names in zip(result, spec, strict=True)
    }
    gathered = known_sum(
        type_.resharded_nbytes(tuple(wanted[letter] for letter in term)) for term, type_ in types
    )
    nbytes = whole.nbytes_of(tuple(wanted[letter] for letter in result)) or 0
    group = math.prod(whole.sizes[name] for name in over)
    least = min(nbytes, whole.nbytes_of(distinct(whole.axes, over)) or 0)
    return (
        (gathered or 0) + sent_nbytes("all-reduce", nbytes, nbytes, group),
        sent_nbytes("reduce-scatter", least, 0, group),
    )


def agreed(site: Site) -> Iterator[Edit]:
    """Reshard operands of a contraction so that their batch dimensions, the first ones, are sharded alike."""
    batches = site.specs[:2] or [type_.axes[:-2] for type_ in site.types[:2]]
    count = len(batches[0])
    leads = {array: (array.axes or batches[number])[:count] for number, array in enumerate(site.arrays)}
    for wanted in batches if [*leads.values()][:2] == batches else ():
        changed = {}
        for array in [array for array in leads if leads[array] != wanted]:
            others = [names for other in leads if other is not array for names in other.axes or ()]
            remaining = distinct(
                (array.axes or ())[count:], [name for names in (*wanted, *others) for name in names]
            )
            changed[array] = wanted + remaining
        if all(operand.can_have(axes) for operand, axes in changed.items()):
            yield site.resharded(changed)
    with contextlib.suppress(LookupError, ValueError):  # not every function takes the sharding of its result
        yield from (replace(edit, is_reserve=True) for edit in contracted(site))
