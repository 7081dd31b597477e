"""Reshardings in two steps that move one mesh axis each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from .spec import Spec, effective_axes

_Axes: TypeAlias = tuple[tuple[str, ...], ...]


class Between(NamedTuple):
    """A spec on the way from one spec to another."""

    spec: Spec
    elements: int
    """Elements that each device sends in both steps together."""


def spec_between(before: Spec, after: Spec, shape: Sequence[int], sizes: Mapping[str, int]) -> Between | None:
    """Return the spec between two others with which two steps send the least; None if there is none.

    A step drops the last mesh axis of an array axis, adds one as the last, or does both. XLA has a direct way
    for these: an all-gather, a slice or an all-to-all.

    Args:
        before: Partition spec before, over axes of the mesh.
        after: Partition spec after.
        shape: Global shape of the array.
        sizes: Size of each mesh axis by name.

    >>> before, after = Spec((("y",), (), ("x",))), Spec(((), ("x", "y")))
    >>> between = spec_between(before, after, (8, 16, 4), {"x": 4, "y": 2})
    >>> print(between.spec, between.elements)
    P('y', 'x') 80
    """
    first, last = (effective_axes(spec, sizes, len(shape)) for spec in (before, after))
    ways = [
        Between(Spec(effective_axes(Spec(axes), sizes, 0)), there + onward)
        for axes, there in _steps(first, shape, sizes)
        for end, onward in _steps(axes, shape, sizes)
        if end == last
    ]
    return min(ways, key=lambda way: way.elements, default=None)


def _steps(axes: _Axes, shape: Sequence[int], sizes: Mapping[str, int]) -> Iterator[tuple[_Axes, int]]:
    """Yield the specs that are one step away, without padding, with the elements that a device sends."""
    used = [name for names in axes for name in names]
    shard = math.prod(shape) // math.prod(sizes[name] for name in used)
    movable = {names[-1] for names in axes if names} | {
        name for name in sizes.keys() - used if sizes[name] > 1
    }
    for name in sorted(movable):
        base = tuple(names[:-1] if names[-1:] == (name,) else names for names in axes)
        if name in used:
            yield base, shard * (sizes[name] - 1)
        for place, names in enumerate(base):
            further = (*base[:place], (*names, name), *base[place + 1 :])
            if further != axes and shape[place] % math.prod(sizes[each] for each in further[place]) == 0:
                yield further, shard - shard // sizes[name] if name in used else 0
