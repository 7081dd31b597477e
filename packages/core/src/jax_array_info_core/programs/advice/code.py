"""The code of changes, with the names of the program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...compat.shardings import mesh_axes
from ...compat.values import is_abstract_mesh, is_mesh
from ...geometry.layouts.spec import MeshAxes, Spec, require_names, spec_code
from ..raised.source import at_path, shortest_name

_SPEC, _SHARDING = "jax.sharding.PartitionSpec", "jax.sharding.NamedSharding"
_CONSTRAINT, _RESHARD = "jax.lax.with_sharding_constraint", "jax.sharding.reshard"


def constraint_code(
    expression: str,
    spec: Spec,
    names: Mapping[str, Any],
    operand: str | None,
    *,
    mesh: MeshAxes,
    is_explicit: bool,
) -> tuple[str, str]:
    """Return the code of an expression with its sharding, and the import that it needs, or an empty text.

    Args:
        expression: The text of the expression.
        spec: The sharding.
        names: The variables of its scope; ``jax`` is among them if it is one, whatever its value.
        operand: A name or an expression there whose value is an array, for its mesh; None if there is none.
        mesh: The axes of the program's mesh.
        is_explicit: Whether these are Explicit, for ``jax.sharding.reshard``.

    Raises:
        LookupError: If no name is that of the mesh, and there is no operand to take it from; or if it needs
            JAX, and ``jax`` is another name.
    """
    require_names(expression, spec, mesh)
    function = _written(names, _RESHARD if is_explicit else _CONSTRAINT)
    sharding, on = _written(names, _SHARDING), _mesh(names, operand, mesh)
    code = f"{sharding}({on}, {spec_code(spec, _written(names, _SPEC))})"
    needs_jax = any(part.startswith("jax.") for part in (function, sharding, on, _written(names, _SPEC)))
    if needs_jax and names.get("jax", at_path("jax")) is not at_path("jax"):
        raise LookupError("jax is another name there")
    return f"{function}({expression}, {code})", "import jax" if needs_jax and "jax" not in names else ""


def _written(names: Mapping[str, Any], path: str) -> str:
    """Return the program's name for a part of JAX, or its whole path."""
    return shortest_name(names, (path,)) or path


def _mesh(names: Mapping[str, Any], operand: str | None, mesh: MeshAxes) -> str:
    """Return the program's name for its mesh, or the code that takes it from an array."""
    meshes = {name: value for name, value in names.items() if name.isidentifier() and _has_axes(value, mesh)}
    known = [name for name, value in meshes.items() if not is_abstract_mesh(value)] or [*meshes]
    if known and all(meshes[name] == meshes[known[0]] for name in known):
        return min(known, key=lambda name: (len(name), name))
    if operand is None or at_path("jax.typeof") is None:
        raise LookupError("no name is that of the mesh")
    return f"{_written(names, 'jax.typeof')}({operand}).sharding.mesh"


def _has_axes(value: Any, mesh: MeshAxes) -> bool:
    if not is_mesh(value):
        return False
    axes = mesh_axes(value)
    return (axes.names, axes.sizes) == (mesh.names, mesh.sizes)
