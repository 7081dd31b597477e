"""Sharding constraints inside a program, as requested and as XLA applies them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .. import compat
from ..compat.jaxprs import JaxprConstraint, jaxpr_constraints
from ..compat.shardings import describe_sharding
from ..layouts.dtypes import dtype_name
from ..layouts.spec import Spec
from ..origins.origins import innermost
from ..plans.spec_checks import uneven_axes
from ..reports.array import ShardingDescription
from ..reports.program import Constraint


def constraints_of(jaxpr: Any, is_hidden: Callable[[str], bool]) -> tuple[Constraint, ...]:
    """Return the sharding constraints in a jaxpr at any depth, equal ones of one line merged.

    Args:
        jaxpr: The jaxpr of a traced function.
        is_hidden: A function that returns whether to skip the frames of a file.
    """
    found = Counter(_constraint(one, is_hidden) for one in jaxpr_constraints(jaxpr))
    return tuple(replace(constraint, count=count) for constraint, count in found.items())


def _constraint(found: JaxprConstraint, is_hidden: Callable[[str], bool]) -> Constraint:
    asked = describe_sharding(found.sharding, len(found.shape))
    if asked.spec is not None and found.unconstrained:
        open_axes = tuple(sorted({*asked.spec.unconstrained, *found.unconstrained}))
        asked = replace(asked, spec=replace(asked.spec, unconstrained=open_axes))
    got, reason = _applied(asked, found.shape)
    lines = () if found.traceback is None else compat.traceback_lines(found.traceback)
    return Constraint(
        shape=found.shape,
        dtype=dtype_name(found.dtype),
        asked=asked,
        got=got,
        reason=reason,
        origin=innermost(lines, is_hidden),
    )


def _applied(
    asked: ShardingDescription, shape: tuple[int, ...]
) -> tuple[ShardingDescription | None, str | None]:
    """Return the sharding that a constraint leads to, and why it is not the requested one.

    XLA applies every constraint whose axes divide evenly. It pads others. An output of the program cannot be
    padded, so XLA gathers the padded axes before the value becomes one.
    """
    if asked.spec is None or asked.mesh is None:
        return asked, None
    sizes = asked.mesh.shape
    uneven = uneven_axes(shape, sizes, asked.spec.axes)
    if not uneven:
        return (None if asked.spec.unconstrained else asked), None
    dropped = {one.axis for one in uneven}
    axes = [() if axis in dropped else names for axis, names in enumerate(asked.spec.axes)]
    while axes and not axes[-1]:
        axes.pop()
    pads = " and ".join(f"axis {one.axis} to {one.padded}" for one in uneven)
    reason = f"XLA pads {pads}, and gathers the value to use it as a whole: {' '.join(map(str, uneven))}"
    if asked.spec.unconstrained:
        return None, reason
    return replace(asked, spec=Spec(tuple(axes), unreduced=asked.spec.unreduced)), reason
