"""Recipes for edits: few mechanisms, which compute the edit from the operands of this program."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .explanation import Edit
from .operands import Array
from .site import Site
from .types import Axes, fitted


def sharded(site: Site) -> list[Array]:
    """Return the operands that could be sharded: not those whose type says that they are not."""
    return [one for one in site.arrays if one.type is None or one.type.used or one.parts]


def as_another(site: Site) -> Iterator[Edit]:
    """Reshard all operands as one of them is."""
    arrays = [one for one in site.arrays if one.type is None or one.type.shape or one.parts]
    rank = max((len(one.type.shape) for one in arrays if one.type), default=0)
    specs = [one.type.axes for one in arrays if one.type and len(one.type.shape) == rank]
    for spec in dict.fromkeys([*specs, *site.specs] if site.specs else specs):
        targets = {one: _aligned(one, spec) for one in arrays}
        changed = {
            one: axes
            for one, axes in targets.items()
            if any(part is None or part.axes != axes for part in one.parts or (one.type,))
        }
        if changed and all(_fits(one, axes) for one, axes in changed.items()):
            yield site.resharded(changed)


def _aligned(one: Array, spec: Axes) -> Axes:
    """Return the entries of a spec for the last dimensions, without those of dimensions of length 1."""
    if one.type is None:
        return spec
    shape = one.type.shape
    last = spec[len(spec) - len(shape) :] if len(shape) <= len(spec) else fitted(spec, len(shape))
    return tuple(() if length == 1 else names for length, names in zip(shape, last, strict=True))


def _fits(one: Array, axes: Axes) -> bool:
    known = one.type
    return known is None or all(known.divides(dim, names) for dim, names in enumerate(axes))


def unsharded(site: Site) -> Iterator[Edit]:
    """Reshard the operand so that it is not sharded along some dimensions."""
    dims = [int(dim) for dim in re.findall(r"\d+", site.found["dims"])]
    for one in sharded(site)[:1]:
        if one.type is not None:
            for axes in one.type.without([dim % len(one.type.shape) for dim in dims]):
                yield site.resharded({one: axes})


def replicated(site: Site) -> Iterator[Edit]:
    """Replicate the operands that are sharded."""
    if arrays := sharded(site):
        yield site.resharded(dict.fromkeys(arrays, ()))


def out_sharding(site: Site) -> Iterator[Edit]:
    """Give a contraction the sharding of its result: with the sums scattered, then on each device."""
    if False:
        yield
