"""Sharding constraints of a program."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..arrays.origins.origins import Owner, UserLines
from ..arrays.plans import uneven_axes
from ..arrays.stage_leaves import shard_shape
from ..compat.arrays import traceback_lines
from ..compat.jaxprs import JaxprConstraint, jaxpr_constraints
from ..compat.shardings import describe_sharding
from ..facts.reports.array import ShardingDescription
from ..facts.reports.program_values import (
    Constraint,
    ProgramValue,
)
from ..geometry.layouts.dtypes import dtype_name
from ..xla.hlo.module import Module

_Place = tuple[str, int] | str | None
"""File and line; the name of an operation; None for the arguments and outputs of the program."""

_Shape = tuple[int, ...]

_MOST_AXES = 8
"""Number of axes of a shard that is searched for in other forms."""


def constraints_of(jaxpr: Any, module: Module | None, lines: UserLines) -> tuple[Constraint, ...]:
    """Return the sharding constraints in a jaxpr at any depth, equal ones of one line merged.

    A constraint got what was asked if the compiled program has an array of the shape of the requested shard
    in the lines of the constraint, and of the operations that compute and use its value. JAX 0.7 and 0.8 lack
    some lines: then, in operations of the same names. Otherwise, what it got is unknown.

    Args:
        jaxpr: The jaxpr of a traced function.
        module: The compiled program; None if it is unknown.
        lines: The search for the user's line.
    """
    constraints = list(jaxpr_constraints(jaxpr))
    places = [_places(constraint, lines) for constraint in constraints]
    names = [{name for name, _ in constraint.operations} for constraint in constraints]
    shapes = _shapes(module, set().union(*places, *names))
    counts = Counter(
        _constraint(constraint, _near(shapes, near) or _near(shapes, name), lines)
        for constraint, near, name in zip(constraints, places, names, strict=True)
    )
    return tuple(replace(constraint, count=count) for constraint, count in counts.items())


def with_padding(
    outputs: Sequence[ProgramValue], constraints: Iterable[Constraint]
) -> tuple[ProgramValue, ...]:
    """Return the outputs, with a mark on those of the shape and dtype of a padded constraint."""
    padded = {
        (constraint.shape, constraint.dtype)
        for constraint in constraints
        if constraint.got is not None and constraint.reason is not None
    }
    return tuple(
        replace(output, is_padded_inside=(output.shape, output.dtype) in padded) for output in outputs
    )


def _near(shapes: Mapping[_Place, set[_Shape]], places: Iterable[_Place]) -> set[_Shape]:
    return {shape for place in places for shape in shapes.get(place, ())}


def _places(constraint: JaxprConstraint, lines: UserLines) -> set[_Place]:
    """Return the lines in which the compiled program can have the value of a constraint."""
    places: set[_Place] = {None} if constraint.is_boundary else set()
    for _, traceback in constraint.operations:
        stack = () if traceback is None else traceback_lines(traceback)
        # JAX records the innermost frame outside JAX, and skips some of the standard library.
        for least in (Owner.MACHINERY, Owner.LIBRARY):
            outside = ((file, line) for file, line, _ in stack if lines.owner(file) < least)
            places.update(itertools.islice(outside, 1))
    return places


def _shapes(module: Module | None, places: set[_Place]) -> dict[_Place, set[_Shape]]:
    """Return the shapes of the results and operands of the instructions of each place, on one device."""
    shapes: dict[_Place, set[_Shape]] = {}
    for computation in () if module is None else module.computations.values():
        is_entry = module is not None and computation.name == module.entry
        for instruction in computation.instructions:
            own_places: list[_Place] = [(instruction.op_name or "").rpartition("/")[2]]
            own_places += [(frame.file, frame.line) for frame in instruction.frames[:1]]
            if is_entry and (instruction.opcode == "parameter" or instruction is computation.root):
                own_places.append(None)
            for place in places.intersection(own_places):
                values = (instruction, *(computation.by_name[operand] for operand in instruction.operands))
                shapes.setdefault(place, set()).update(
                    shape.dims for value in values for shape in value.shapes
                )
    return shapes


def _shows(shapes: set[_Shape], shard: _Shape, shape: _Shape) -> bool:
    """Return whether shapes contain that of a shard, or one that XLA transposed and whose axes it merged.

    A shard of one row can look like an array without this axis, such as a mask. Then there must be no shape
    of the whole array.
    """
    if shard in shapes:
        return True
    if any(part == 1 < dim for part, dim in zip(shard, shape, strict=True)) and _has_form(shapes, shape):
        return False
    return _has_form(shapes, shard)


def _has_form(shapes: set[_Shape], wanted: _Shape) -> bool:
    """Return whether a shape has the axes of another, in any order and merged, without those of length 1."""
    axes = [dim for dim in wanted if dim != 1]
    if not 0 < len(axes) <= _MOST_AXES:
        return False
    alike = (dims for dims in shapes if math.prod(dims) == math.prod(axes))
    return any(_can_merge(axes, [dim for dim in dims if dim != 1]) for dims in alike)


def _can_merge(axes: Sequence[int], merged: Sequence[int]) -> bool:
    """Return whether each of the merged lengths is the product of some of the axes, and all are used."""
    if not merged:
        return not axes
    for size in range(1, len(axes) + 1):
        for chosen in itertools.combinations(range(len(axes)), size):
            remaining = [axis for number, axis in enumerate(axes) if number not in chosen]
            if math.prod(axes[number] for number in chosen) == merged[0] and _can_merge(
                remaining, merged[1:]
            ):
                return True
    return False


def _constraint(constraint: JaxprConstraint, shapes: set[_Shape], lines: UserLines) -> Constraint:
    """Return a constraint, with the sharding that it got if the compiled program shows it."""
    asked = describe_sharding(constraint.sharding, len(constraint.shape))
    if asked.spec is not None and constraint.unconstrained:
        open_axes = tuple(sorted({*asked.spec.unconstrained, *constraint.unconstrained}))
        asked = replace(asked, spec=replace(asked.spec, unconstrained=open_axes))
    is_open = asked.spec is not None and bool(asked.spec.unconstrained)
    shard = None if is_open else shard_shape(constraint.shape, constraint.sharding)
    is_found = shard is not None and _shows(shapes, shard, constraint.shape)
    stack = () if constraint.traceback is None else traceback_lines(constraint.traceback)
    return Constraint(
        shape=constraint.shape,
        dtype=dtype_name(constraint.dtype),
        asked=asked,
        got=asked if is_found else None,
        reason=_reason(asked, constraint.shape, shard, is_open=is_open, is_found=is_found),
        origin=lines.origin(stack),
        is_gradient=constraint.is_gradient,
    )


def _reason(
    asked: ShardingDescription, shape: _Shape, shard: _Shape | None, *, is_open: bool, is_found: bool
) -> str | None:
    """Return why it is not known what a constraint got, and how the value is padded."""
    parts = []
    if not (is_open or is_found):
        wanted = "its shard shape" if shard is None else f"the shape of its shard, {shard}"
        parts.append(f"the compiled program has no array of {wanted}, in this line or next to it")
    uneven = (
        () if asked.spec is None or asked.mesh is None else uneven_axes(shape, asked.mesh.shape, asked.spec)
    )
    if uneven:
        pads = " and ".join(f"axis {axis.axis} to {axis.padded}" for axis in uneven)
        verb = "pads" if is_found else "would pad"
        parts.append(f"inside the program, XLA {verb} {pads}: {' '.join(map(str, uneven))}")
    return "; ".join(parts) or None
