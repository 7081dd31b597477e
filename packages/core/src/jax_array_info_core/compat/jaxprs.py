"""Sharding constraints in a jaxpr, at any depth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ..text import plain_shape
from .meshes import mesh_axis_types
from .values import is_sharding

_CONSTRAINT = "sharding_constraint"
_RESHARD = "reshard"
"""The primitive of ``jax.sharding.reshard``, for Explicit mesh axes (JAX 0.5.3 and later)."""


class JaxprConstraint(NamedTuple):
    """A sharding constraint."""

    shape: tuple[Any, ...]
    dtype: Any
    sharding: Any
    unconstrained: frozenset[int]
    """Array axes that are left to the compiler."""
    traceback: Any
    """Traceback of the call; None if JAX recorded none."""


def jaxpr_constraints(jaxpr: Any) -> Iterator[JaxprConstraint]:
    """Yield the sharding constraints in a jaxpr and the jaxprs inside it, each jaxpr once."""
    seen: set[int] = set()
    waiting = [getattr(jaxpr, "jaxpr", jaxpr)]
    while waiting:
        program = waiting.pop()
        if id(program) in seen:
            continue
        seen.add(id(program))
        inner: list[Any] = []
        for equation in program.eqns:
            found = _constraint(equation)
            if found is not None:
                yield found
            for value in equation.params.values():
                inner += _jaxprs(value)
        waiting += reversed(inner)


def _constraint(equation: Any) -> JaxprConstraint | None:
    """Return the constraint in an equation; None for any other operation."""
    name, parameters = equation.primitive.name, equation.params
    sharding = parameters.get("sharding" if name == _CONSTRAINT else "dst_sharding")
    if name not in (_CONSTRAINT, _RESHARD) or not is_sharding(sharding):
        return None
    aval = equation.invars[0].aval
    if name == _RESHARD and not (aval.shape and "Explicit" in mesh_axis_types(sharding.mesh)):
        return None  # JAX inserts these itself
    return JaxprConstraint(
        plain_shape(aval.shape),
        aval.dtype,
        sharding,
        frozenset(parameters.get("unconstrained_dims") or ()),
        getattr(equation.source_info, "traceback", None),
    )


def _jaxprs(value: Any) -> Iterator[Any]:
    """Yield the jaxprs in a parameter of an equation."""
    if isinstance(value, list | tuple):
        for entry in value:
            yield from _jaxprs(entry)
    elif isinstance(value, dict):
        yield from _jaxprs(list(value.values()))
    elif hasattr(value, "eqns"):
        yield value
    elif hasattr(getattr(value, "jaxpr", None), "eqns"):
        yield value.jaxpr
