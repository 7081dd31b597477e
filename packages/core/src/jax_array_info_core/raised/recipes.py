"""Recipes for edits: few mechanisms, which compute an edit from the operands of this program."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator

from ..hlo.collectives import sent_nbytes
from .explanation import Edit
from .operands import Array
from .site import Site
from .types import ArrayType, Axes


def sharded(site: Site) -> list[Array]:
    """Return the operands that are sharded, or could be."""
    return [one for one in site.arrays if one.type is None or one.type.used or one.type.unreduced]


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

    These are ``dims``, or those that a result of shape ``result`` cannot be sharded along.
    """
    groups, candidates = site.found.groupdict(), sharded(site)
    for one in [one for one in candidates if one.type in site.types][:1] or candidates[-1:]:
        if one.type is None or (rank := len(one.type.shape)) < 1:
            yield site.resharded({one: ()})
            continue
        dims = [int(dim) % rank for dim in re.findall(r"-?\d+", groups.get("dims") or "")]
        result = re.findall(r"(?<![\w.])\d+", groups.get("result") or "")
        dims += [
            dim
            for dim, length in enumerate(result[:rank])
            if not one.type.divides(dim, one.type.axes[dim], int(length))
        ]
        for axes in one.type.without(dims) if dims else ():
            yield site.resharded({one: axes})


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


def _terms(site: Site) -> tuple[list[tuple[ArrayType, str]], str]:
    """Return the types of the operands of a contraction with a letter for each dimension, and the result's."""
    types = [one.type for one in site.arrays if one.type is not None]
    subscripts, name = site.subscripts, site.last_name
    if subscripts is None and (name in ("matmul", "") or (name == "dot" and len(types[-1].shape) < 3)):
        left, right = (len(one.shape) for one in types)
        batch = "abcdefgh"[: max(left, right, 2) - 2]
        terms = [batch[len(batch) - left + 2 :] + "ij" if left > 1 else "j"]
        terms += [batch[len(batch) - right + 2 :] + "jk" if right > 1 else "j"]
        subscripts = ",".join(terms) + "->" + batch + "i" * (left > 1) + "k" * (right > 1)
    if subscripts is None or "." in subscripts or len(types) != len(site.arrays):
        raise LookupError(site.function)
    inputs, _, result = subscripts.replace(" ", "").partition("->")
    if not _:
        letters = sorted(inputs.replace(",", ""))
        result = "".join(letter for letter in letters if letters.count(letter) == 1)
    return list(zip(types, inputs.split(","), strict=True)), result


def contracted(site: Site) -> Iterator[Edit]:
    """Give a contraction the sharding of its result: with the sums scattered, or on each device."""
    terms, result = _terms(site)
    lengths, axes = {}, {}
    used: set[str] = set()
    pairs = [(one, dim, letter) for one, term in terms for dim, letter in enumerate(term)]
    for one, dim, letter in sorted(pairs, key=lambda pair: pair[2] not in result):
        lengths[letter] = one.shape[dim]
        names = tuple(name for name in one.axes[dim] if name not in used or letter not in result)
        axes.setdefault(letter, names)
        axes[letter] = axes[letter] or names
        used |= set(axes[letter])
    sums = tuple(dict.fromkeys(name for letter in axes if letter not in result for name in axes[letter]))
    spec = tuple(axes[letter] for letter in result)
    taken = {name for names in spec for name in names}
    group = math.prod(site.sizes[name] for name in sums if name not in taken)
    partial = ArrayType(
        dtype=terms[0][0].dtype, shape=tuple(lengths[letter] for letter in result), axes=spec, mesh=site.mesh
    )
    whole = partial.nbytes_of(spec) if sums and taken.isdisjoint(sums) else None
    for dim in [dim for dim, names in enumerate(spec) if not names and whole and partial.divides(dim, sums)][
        :1
    ]:
        scattered = (*spec[:dim], sums, *spec[dim + 1 :])
        yield site.given(scattered, sent_nbytes("reduce-scatter", whole or 0, 0, group))
    yield site.given(spec, whole and sent_nbytes("all-reduce", whole, whole, group))


def agreed(site: Site) -> Iterator[Edit]:
    """Reshard the operands of a contraction so that their shared dimensions are sharded alike."""
    try:
        terms, result = _terms(site)
    except (LookupError, ValueError):
        yield from as_another(site)
        return
    for one, other in itertools.permutations(range(len(terms)), 2):
        (type_, term), (reference, letters) = terms[other], terms[one]
        batch = {letter: reference.axes[letters.index(letter)] for letter in letters if letter in result}
        wanted = {letter: batch[letter] for letter in term if letter in batch}
        used = {name for names in wanted.values() for name in names}
        axes = tuple(
            wanted.get(letter, tuple(name for name in names if name not in used))
            for letter, names in zip(term, type_.axes, strict=True)
        )
        if axes != type_.axes and type_.fits(axes):
            yield site.resharded({site.arrays[other]: axes})
