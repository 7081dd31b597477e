"""Checks of partition specs against a shape and a mesh, without JAX."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ..errors import SpecError
from ..layouts.layout import MAX_AXES, MAX_DEVICES
from ..layouts.partition_specs import SpecLike, as_spec
from ..layouts.spec import UnevenAxis
from ..quantities import MAX_DIGITS, counted, format_number
from ..text import plain_text


def mesh_sizes(mesh: Mapping[str, int]) -> dict[str, int]:
    """Return the size of each mesh axis as an int: the given sizes may be NumPy integers.

    Args:
        mesh: Size of each mesh axis by name.

    Raises:
        SpecError: (a ValueError) If a size is not an integer.

    >>> mesh_sizes({"data": 4})
    {'data': 4}
    """
    sizes, problems = {}, []
    for name, size in mesh.items():
        text = plain_text(name)
        try:
            sizes[text] = int(operator.index(size))
        except TypeError:
            problems.append(
                f"the size of mesh axis {text!r} must be an integer, got {plain_text(size, repr)}"
            )
    if problems:
        raise SpecError(problems)
    return sizes


def spec_problems(shape: Sequence[int], mesh: Mapping[str, int], spec: SpecLike) -> list[str]:
    """Return the problems of a spec for a given shape and mesh; empty if it is valid.

    Axes that are not divisible by their number of shards are not listed: see ``uneven_axes``. A shape or a
    mesh can have at most 63 axes (31 with NumPy 1), and the length of an axis at most 300 digits. If one of
    these limits is exceeded, no other problems are listed.

    Args:
        shape: Global shape of the array.
        mesh: Size of each mesh axis by name.
        spec: A PartitionSpec, or a sequence with None, a name or a tuple of names for each array axis.

    >>> spec_problems((16, 16), {"data": 4}, ("model",))
    ["'model' is not a mesh axis: the mesh has 'data'"]
    """
    if too_large := list(_exceeded_limits(shape, mesh)):
        return too_large
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


def _exceeded_limits(shape: Sequence[int], mesh: Mapping[str, int]) -> Iterator[str]:
    """Yield the limits on axes and digits that a shape or a mesh exceeds."""
    for noun, lengths in (("an array", tuple(shape)), ("a mesh", tuple(mesh.values()))):
        if len(lengths) > MAX_AXES:
            yield f"{noun} of {len(lengths)} axes exceeds the limit of {MAX_AXES}"
        else:
            large = next((length for length in lengths if abs(length) >= 10**MAX_DIGITS), None)
            if large is not None:
                length = format_number(large)
                yield f"{noun} with an axis of length {length} exceeds the limit of {MAX_DIGITS} digits"


def uneven_axes(shape: Sequence[int], mesh: Mapping[str, int], spec: SpecLike) -> tuple[UnevenAxis, ...]:
    """Return the array axes that are not divisible by their number of shards.

    Surplus entries of the spec and names that are not mesh axes are ignored, and the result is empty if the
    shape or the mesh exceeds the limits on axes and digits. ``spec_problems`` reports these errors.

    Args:
        shape: Global shape of the array.
        mesh: Size of each mesh axis by name.
        spec: A PartitionSpec, or a sequence with None, a name or a tuple of names for each array axis.

    >>> [(axis.axis, axis.count, axis.padded) for axis in uneven_axes((17, 16), {"x": 8}, ("x",))]
    [(0, 8, 24)]
    """
    spec = as_spec(spec)
    shape = tuple(shape)
    if any(_exceeded_limits(shape, mesh)):
        return ()
    uneven = []
    for axis, names in enumerate(spec.axes[: len(shape)]):
        count = math.prod([mesh.get(name, 1) for name in names]) if names else 1
        if count > 1 and shape[axis] % count:
            used = {name for other, entry in enumerate(spec.axes) if other != axis for name in entry}
            fitting = _fitting(shape[axis], {name: size for name, size in mesh.items() if name not in used})
            fitting_count = math.prod(mesh[name] for name in fitting)
            uneven.append(UnevenAxis(axis, shape, names, count, fitting, fitting_count))
    return tuple(uneven)


def uneven_counts(shape: Sequence[int], counts: Sequence[int]) -> tuple[UnevenAxis, ...]:
    """Return the array axes that are not divisible by the given numbers of shards, without a mesh."""
    return tuple(
        UnevenAxis(axis, tuple(shape), (), count, (), 1)
        for axis, (dim, count) in enumerate(zip(shape, counts, strict=False))
        if dim % count
    )


def _fitting(dim: int, mesh: Mapping[str, int]) -> tuple[str, ...]:
    """Return the fewest mesh axes with the largest product that divides a length."""
    # By product: there are at most as many as the length has divisors.
    found: dict[int, tuple[str, ...]] = {1: ()}
    for name, size in mesh.items():
        for product, names in list(found.items()) if size > 1 else ():
            larger, longer = product * size, (*names, name)
            if dim % larger == 0 and len(longer) < len(found.get(larger, (*longer, name))):
                found[larger] = longer
    return found[max(found)]
