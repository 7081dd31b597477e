"""PartitionSpecs as plain values: read from any form, checked against a shape and a mesh. No jax."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..compat.partition_specs import SpecLike, as_spec
from ..layouts.layout import MAX_AXES, MAX_DEVICES
from ..quantities import MAX_DIGITS, counted, format_number


def spec_problems(shape: Sequence[int], mesh: Mapping[str, int], spec: SpecLike) -> list[str]:
    """Return why a spec means nothing for a shape and a mesh; empty when it does.

    Of a shape or a mesh that is too large to be written out, that is the only problem.
    """
    if unwritable := list(_unwritable(shape, mesh)):
        return unwritable
    spec = as_spec(spec)
    devices = math.prod(mesh.values())
    problems = (
        [f"{format_number(devices)} devices exceed the limit of {MAX_DEVICES}"]
        if devices > MAX_DEVICES
        else []
    )
    problems += [
        f"axis {axis} of shape {tuple(shape)} has a negative length"
        for axis, dim in enumerate(shape)
        if dim < 0
    ]
    problems += [
        f"mesh axis {name!r} has no devices: its size is {size}" for name, size in mesh.items() if size < 1
    ]
    uses = Counter(name for entry in (*spec.axes, spec.unreduced) for name in entry)
    known = ", ".join(map(repr, mesh)) or "no axes"
    problems += [f"{name!r} is not a mesh axis: the mesh has {known}" for name in uses if name not in mesh]
    problems += [
        f"{name!r} is used twice: a mesh axis can shard only one axis of an array"
        for name, count in uses.items()
        if count > 1
    ]
    if len(spec.axes) > len(shape):
        problems.append(
            f"the spec has {counted(len(spec.axes), 'entry', 'entries')}, "
            f"but the array has {counted(len(shape), 'axis', 'axes')}: shape {tuple(shape)}"
        )
    return problems


def _unwritable(shape: Sequence[int], mesh: Mapping[str, int]) -> Iterator[str]:
    """Yield what has too many axes or digits to be written out in an error."""
    for what, lengths in (("an array", tuple(shape)), ("a mesh", tuple(mesh.values()))):
        if len(lengths) > MAX_AXES:
            yield f"{what} of {len(lengths)} axes exceeds the limit of {MAX_AXES}"
        else:
            large = next((length for length in lengths if abs(length) >= 10**MAX_DIGITS), None)
            if large is not None:
                length = format_number(large)
                yield f"{what} with an axis of length {length} exceeds the limit of {MAX_DIGITS} digits"


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
        dim, count = self.shape[self.axis], format_number(self.count)
        divisor = f"{count} shards"
        if self.names:
            axes = "axis" if len(self.names) == 1 else "axes"
            divisor = f"mesh {axes} {_names_text(self.names)} of size {count}"
        remedy = "leave it unsharded"
        if self.fitting:
            size = format_number(self.fitting_count)
            remedy = f"shard it over {_names_text(self.fitting)} of size {size}"
        return (
            f"axis {self.axis} of shape {self.shape} is not divisible by {divisor}: "
            f"{dim} % {count} = {dim % self.count}. Pad it to {format_number(self.padded)}, or {remedy}."
        )


def _names_text(names: tuple[str, ...]) -> str:
    """Return names of mesh axes as in a PartitionSpec: one by itself, several as a tuple."""
    return repr(names[0] if len(names) == 1 else names)


def uneven_axes(shape: Sequence[int], mesh: Mapping[str, int], spec: SpecLike) -> tuple[UnevenAxis, ...]:
    """Return every axis of an array that the mesh axes of its entry do not divide.

    What the spec names beyond the shape and the mesh counts for nothing, as does a shape or a mesh that is
    too large: see ``spec_problems``.
    """
    spec = as_spec(spec)
    shape = tuple(shape)
    if any(_unwritable(shape, mesh)):
        return ()
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
    """Return the mesh axes whose product divides a length and is the largest such; of these the fewest."""
    # By product, so that there are no more than the length has divisors.
    found: dict[int, tuple[str, ...]] = {1: ()}
    for name, size in mesh.items():
        for product, names in list(found.items()) if size > 1 else ():
            larger, longer = product * size, (*names, name)
            if dim % larger == 0 and len(longer) < len(found.get(larger, (*longer, name))):
                found[larger] = longer
    return found[max(found)]
