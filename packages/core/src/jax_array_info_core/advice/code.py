"""Source code of shardings, as it is written in the scope of an expression."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..compat.values import is_mesh
from ..layouts.spec import Spec

Axes = Sequence[Sequence[str]]


def partition_spec(axes: Axes) -> Any:
    """Return a PartitionSpec of the mesh axes of each dimension."""
    import jax

    return jax.sharding.PartitionSpec(*(own[0] if len(own) == 1 else tuple(own) or None for own in axes))


def spec_code(spec: Spec, name: str = "P") -> str:
    """Return a spec as source code, without trailing dimensions that are not sharded.

    >>> spec_code(Spec((("data", "fsdp"), ()))), spec_code(Spec(((), ("model",))))
    ('P(("data", "fsdp"))', 'P(None, "model")')
    """
    entries = []
    for names in spec.axes:
        texts = [*map(json.dumps, names)]
        entries.append(texts[0] if len(texts) == 1 else f"({', '.join(texts)})" if texts else "None")
    while entries and entries[-1] == "None":
        entries.pop()
    return f"{name}({', '.join(entries)})"


def constraint_code(
    expression: str, spec: Spec, names: Mapping[str, Any], operand: str | None, *, is_explicit: bool, mesh: Any
) -> str:
    """Return an expression with a constraint on its sharding, as it is written in its place.

    Args:
        expression: Source text of the expression.
        spec: The sharding.
        names: Values by their names in the scope of the expression.
        operand: Text of a part of the expression that is an array and can be evaluated twice; None without one.
        is_explicit: Whether the mesh has axes of type Explicit.
        mesh: The mesh of the program; a name in the scope that has an equal one is used.
    """
    import jax

    def named(value: Any, otherwise: str) -> str:
        return next((name for name, one in names.items() if one is value and name.isidentifier()), otherwise)

    root = named(jax, "jax")
    own = named(jax.sharding.PartitionSpec, f"{root}.sharding.PartitionSpec")
    sharding = named(jax.sharding.NamedSharding, f"{root}.sharding.NamedSharding")
    visible = next(
        (name for name, one in names.items() if is_mesh(one) and dict(one.shape) == dict(mesh.shape)), None
    )
    place = visible or (f"{root}.typeof({operand}).sharding.mesh" if operand else None)
    what = f"{sharding}({place}, {spec_code(spec, own)})" if place else spec_code(spec, own)
    function = jax.sharding.reshard if is_explicit else jax.lax.with_sharding_constraint
    name = "sharding.reshard" if is_explicit else "lax.with_sharding_constraint"
    return f"{named(function, f'{root}.{name}')}({expression}, {what})"
