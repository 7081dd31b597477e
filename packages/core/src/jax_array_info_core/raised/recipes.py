"""Recipes for edits: few mechanisms, which compute an edit from the operands of this program."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator

from ..hlo.collectives import sent_nbytes
from .explanation import Edit
from .operands import Array
from .site import Site
from .types import ArrayType, Axes


def sharded(site: Site) -> list[Array]:
    """Return the operands that are sharded, or could be."""
    return [one for one in site.arrays if one.type is None or one.type.used or one.type.unreduced]


def distinct(entries: Iterable[tuple[str, ...]]) -> Axes:
    """Return the entries of a spec without mesh axes that an earlier entry has."""
    seen: set[str] = set()
    return tuple(tuple(name for name in names if not (name in seen or seen.add(name))) for names in entries)


def as_another(site: Site, *, broadcast: bool = False) -> Iterator[Edit]:
    """Reshard all operands as one of them is."""
    arrays = [one for one in site.arrays if one.type is None or one.type.shape]
    rank = max((len(one.axes) for one in arrays if one.axes is not None), default=0)
    for spec in dict.fromkeys(one.axes for one in arrays if one.axes is not None and len(one.axes) == rank):
        targets = {one: _aligned(one, spec, broadcast) for one in arrays}
        changed = {one: axes for one, axes in targets.items() if one.axes != axes}
        if changed and all(one.type is None or one.type.fits(axes) for one, axes in changed.items()):
            yield site.resharded(changed)


def _aligned(one: Array, spec: Axes, broadcast: bool) -> Axes:
    """Return the entries of a spec for the last dimensions; broadcast ones are not sharded."""
    shape = one.type.shape if one.type else [0] * len(spec)
    last = spec[max(0, len(spec) - len(shape)) :]
    return tuple(
        () if broadcast and length == 1 else names for length, names in zip(shape, last, strict=False)
    )


def broadcast_as_another(site: Site) -> Iterator[Edit]:
    """Reshard all operands as one of them is, but for dimensions of length 1."""
    return as_another(site, broadcast=True)


def unsharded(site: Site) -> Iterator[Edit]:
    """Reshard an operand so that it is not sharded along some dimensions, which the message names.

    These are ``dims``, or those that a result of shape ``result`` cannot be sharded along. They are those of
    the user's operand if it has the type or the spec in the message. Else it is replicated.
    """
    groups, candidates = site.found.groupdict(), sharded(site)
    known = [one for one in candidates if one.type and (one.type in site.types or one.axes in site.specs)]
    for one in known[:1] if site.calls_primitive else ():
        dims = [int(dim) for dim in re.findall(r"\d+", groups.get("dims") or "")]
        result = re.findall(r"(?<![\w.])\d+", groups.get("result") or "")
        dims += [
            dim for dim, length in enumerate(result) if not one.type.divides(dim, one.axes[dim], int(length))
        ]
        yield from (site.resharded({one: axes}) for axes in one.type.without(dims) if axes != one.axes)
        return
    yield from (site.resharded({one: ()}) for one in (known or candidates)[-1:])


def replicated(site: Site) -> Iterator[Edit]:
    """Replicate the operands that are sharded."""
    if arrays := sharded(site):
        yield site.resharded(dict.fromkeys(arrays, ()))


def apart(site: Site) -> Iterator[Edit]:
    """Shard one of the operands over a mesh axis that no other operand uses, or not at all."""
    arrays = [one for one in site.arrays if one.type is not None and one.type.used]
    for one in arrays:
        assert one.type is not None
        shared = one.type.used & {name for other in arrays if other is not one for name in other.type.used}  # type: ignore[union-attr]
        used = {name for other in arrays for name in other.type.used}  # type: ignore[union-attr]
        for free in (
            [name] if (name := next(iter({*site.sizes} - used), "")) and len(shared) == 1 else []
        ) + [""]:
            axes = tuple(
                tuple(free if name in shared else name for name in names if free or name not in shared)
                for names in one.type.axes
            )
            if shared and one.type.fits(axes):
                yield site.resharded({one: axes})
    if len(arrays) == 1 or not all(one.type for one in site.arrays):
        yield from replicated(site)


# Contractions


def _terms(site: Site) -> tuple[list[tuple[Array, str]], str]:
    """Return the operands of a contraction with a letter for each dimension, and the letters of the result."""
    subscripts, name = site.subscripts, site.last_name
    if subscripts is None and name in ("matmul", "dot", ""):
        left, right = (len(one.axes) for one in site.arrays if one.axes is not None)
        batch = "abcdefgh"[: max(left, right, 2) - 2]
        one, other = (batch[len(batch) + 2 - rank :] if rank > 1 else "" for rank in (left, right))
        rows, columns = "i" * (left > 1), "k" * (right > 1)
        subscripts = f"{one}{rows}j,{other}j{columns}->{batch}{rows}{columns}"
    if subscripts is None or "." in subscripts or (name == "dot" and "a" in subscripts):
        raise LookupError(site.function)
    inputs, arrow, result = subscripts.replace(" ", "").partition("->")
    letters = sorted(inputs.replace(",", ""))
    result = result if arrow else "".join(one for one in letters if letters.count(one) == 1)
    return list(zip(site.arrays, inputs.split(","), strict=True)), result


def contracted(site: Site) -> Iterator[Edit]:
    """Give a contraction the sharding of its result: with the sums scattered, or on each device."""
    terms, result = _terms(site)
    if not all(one.type for one in site.arrays):
        yield site.given(((),) * len(result))
        return
    lengths, axes = {}, {}
    for one, term in terms:
        for letter, length, names in zip(term, one.type.shape, one.axes, strict=True):
            lengths[letter], axes[letter] = length, axes.get(letter) or names
    spec = distinct(axes[letter] for letter in result)
    sums = distinct([*spec, tuple(name for letter in axes if letter not in result for name in axes[letter])])[
        -1
    ]
    shape, dtype = tuple(lengths[letter] for letter in result), terms[0][0].type.dtype
    whole = ArrayType(dtype=dtype, shape=shape, axes=spec, mesh=site.mesh)
    nbytes, group = whole.nbytes_of(spec) if sums else None, math.prod(site.sizes[name] for name in sums)
    for dim in [dim for dim, names in enumerate(spec) if sums and not names and whole.divides(dim, sums)][:1]:
        scattered = (*spec[:dim], sums, *spec[dim + 1 :])
        yield site.given(scattered, nbytes and sent_nbytes("reduce-scatter", nbytes, 0, group))
    yield site.given(spec, nbytes and sent_nbytes("all-reduce", nbytes, nbytes, group))


def agreed(site: Site) -> Iterator[Edit]:
    """Reshard the operands of a contraction so that their shared dimensions are sharded alike."""
    try:
        terms, result = _terms(site)
    except (LookupError, ValueError):
        yield from as_another(site)
        return
    found = [
        [letter for letter in term if letter in result and all(letter in other for _, other in terms)]
        for _, term in terms
    ]
    printed = [dict(zip(shared, spec, strict=False)) for shared, spec in zip(found, site.specs, strict=False)]
    for number, (one, term) in enumerate(terms):
        for wanted in printed[:number] + printed[number + 1 :]:
            own = one.axes or [()] * len(term)
            used = {name for names in wanted.values() for name in names}
            kept = (tuple(name for name in names if name not in used) for names in own)
            axes = tuple(wanted.get(letter, names) for letter, names in zip(term, kept, strict=True))
            if one.type is None or one.type.fits(axes):
                yield site.resharded({one: axes})
