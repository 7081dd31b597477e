"""PartitionSpecs as plain values: read from any form, checked against a shape and a mesh. No jax."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from . import compat
from .errors import SpecError
from .model import Spec

SpecLike = Sequence[str | Sequence[str] | None] | Spec
"""A PartitionSpec, or any sequence of None, a name or a tuple of names."""


def as_spec(spec: Any) -> Spec:
    """Return a PartitionSpec, or a sequence of None, names and tuples of names, as a ``Spec``."""
    if isinstance(spec, Spec):
        return spec
    if isinstance(spec, str):
        raise SpecError([f"{spec!r} is one name, not a spec: write ({spec!r},)"])
    axes: list[tuple[str, ...]] = []
    unconstrained: list[int] = []
    for entry in compat.spec_entries(spec):
        if entry is None:
            axes.append(())
        elif isinstance(entry, str):
            axes.append((entry,))
        elif isinstance(entry, (tuple, list)):
            axes.append(tuple(map(str, entry)))
        elif compat.is_unconstrained(entry):
            unconstrained.append(len(axes))
            axes.append(())
        else:
            axes.append((str(entry),))
    unreduced = getattr(spec, "unreduced", ())
    return Spec(tuple(axes), tuple(unconstrained), tuple(sorted(map(str, unreduced))) if unreduced else ())


def spec_problems(shape: Sequence[int], mesh: Mapping[str, int], spec: SpecLike) -> list[str]:
    """Return why a spec means nothing for a shape and a mesh; empty when it does."""
    spec = as_spec(spec)
    problems = [
        f"axis {axis} of {tuple(shape)} has a negative length" for axis, dim in enumerate(shape) if dim < 0
    ]
    problems += [
        f"mesh axis {name!r} has no devices: its size is {size}" for name, size in mesh.items() if size < 1
    ]
    names = [name for entry in (*spec.axes, spec.unreduced) for name in entry]
    once = dict.fromkeys(names)
    problems += [f"{name!r} is not a mesh axis ({', '.join(mesh)})" for name in once if name not in mesh]
    if len(once) < len(names):
        twice = [name for name in once if names.count(name) > 1]
        problems += [f"{name!r} is used twice: a mesh axis can cut one axis once" for name in twice]
    if len(spec.axes) > len(shape):
        problems.append(f"the spec has {len(spec.axes)} entries, the array {len(shape)} axes: {tuple(shape)}")
    return problems


@dataclass(frozen=True, slots=True)
class UnevenAxis:
    """An axis of an array that its mesh axes do not divide; as text, with the remedy."""

    axis: int
    """Which axis of the array."""

    shape: tuple[int, ...]
    """Shape of the array."""

    names: tuple[str, ...]
    """The mesh axes that cut it; empty where they are not known."""

    count: int
    """Into how many shards they cut it."""

    fitting: tuple[str, ...]
    """Mesh axes that would divide it, none used elsewhere, into the most shards; empty: there are none."""

    fitting_count: int
    """Into how many shards those cut it."""

    @property
    def padded(self) -> int:
        """The next length that divides."""
        return -(-self.shape[self.axis] // self.count) * self.count

    def __str__(self) -> str:
        names = f" by {' and '.join(map(repr, self.names))}" if self.names else ""
        dim = self.shape[self.axis]
        remedy = "leave it whole"
        if self.fitting:
            remedy = f"cut it {self.fitting_count} ways by {' and '.join(map(repr, self.fitting))}"
        return (
            f"axis {self.axis} of {self.shape} cannot be cut {self.count} ways{names} "
            f"({dim} % {self.count} = {dim % self.count}): pad it to {self.padded}, or {remedy}"
        )


def uneven_axes(shape: Sequence[int], mesh: Mapping[str, int], spec: SpecLike) -> tuple[UnevenAxis, ...]:
    """Return every axis of an array that the mesh axes of its entry do not divide.

    What the spec names beyond the shape and the mesh counts for nothing: see ``spec_problems``.
    """
    spec = as_spec(spec)
    shape = tuple(shape)
    found = []
    for axis, names in enumerate(spec.axes[: len(shape)]):
        count = math.prod([mesh.get(name, 1) for name in names]) if names else 1
        if count > 1 and shape[axis] % count:
            elsewhere = {name for other, entry in enumerate(spec.axes) if other != axis for name in entry}
            fitting = _fitting(
                shape[axis], {name: size for name, size in mesh.items() if name not in elsewhere}
            )
            fitting_count = math.prod(mesh[name] for name in fitting)
            found.append(UnevenAxis(axis, shape, names, count, fitting, fitting_count))
    return tuple(found)


def uneven_counts(shape: Sequence[int], counts: Sequence[int]) -> tuple[UnevenAxis, ...]:
    """Return every axis of an array that a number of shards does not divide, without any mesh."""
    return tuple(
        UnevenAxis(axis, tuple(shape), (), count, (), 1)
        for axis, (dim, count) in enumerate(zip(shape, counts, strict=False))
        if dim % count
    )


def _fitting(dim: int, mesh: Mapping[str, int]) -> tuple[str, ...]:
    """Return the mesh axes whose product divides a length and is the largest such."""
    useful = [name for name, size in mesh.items() if size > 1 and dim % size == 0]
    choices = (choice for length in range(1, len(useful) + 1) for choice in combinations(useful, length))
    best: tuple[int, tuple[str, ...]] = (1, ())
    for choice in choices:
        product = math.prod(mesh[name] for name in choice)
        if dim % product == 0 and product > best[0]:
            best = (product, choice)
    return best[1]
