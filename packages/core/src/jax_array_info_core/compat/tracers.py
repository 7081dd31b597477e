"""What meshes, specs and the types of values say, on each version of jax."""

from __future__ import annotations

from typing import Any, cast

from ..reports.array import BatchAxes, Transformation
from .meshes import mesh_axis_types
from .values import is_array_type, is_tracer


def type_mesh(aval: Any) -> Any:
    """Return the mesh in an abstract value's type, None where it has none; jax 0.4.38 never has."""
    return getattr(getattr(aval, "sharding", None), "mesh", None)


def typed_sharding(aval: Any) -> Any:
    """Return the sharding that is part of an abstract value's type, None where the type does not say it.

    Only Explicit mesh axes are part of a type; over Auto ones alone it says ``P(None)``, which means
    nothing.
    """
    return aval.sharding if "Explicit" in mesh_axis_types(type_mesh(aval)) else None


def is_decided(sharding: Any) -> bool:
    """Return whether a type's sharding says all: of a mesh with Auto axes too, it knows the Explicit ones."""
    return sharding is None or set(mesh_axis_types(sharding.mesh)) == {"Explicit"}


def varying_axes(value: Any) -> tuple[str, ...]:
    """Return the manual mesh axes over which a value varies inside shard_map, sorted.

    They are ``aval.vma`` on jax 0.6–0.9 and ``mat.varying`` of the type from 0.10 on.
    """
    aval = value.aval
    varying = getattr(getattr(aval, "mat", None), "varying", None) or getattr(aval, "vma", ())
    return tuple(sorted(map(str, varying or ())))


def batch_of(value: Any) -> BatchAxes | None:
    """Return the axes that vmap hides from the function, where the tracers tell."""
    batch: BatchAxes | None = None
    while is_tracer(value):
        axis = getattr(value, "batch_dim", None)
        # What grad traces has a value of the same shape inside.
        value = getattr(value, "primal", None) if axis is None else value.val
        if isinstance(axis, int) and hasattr(value, "shape"):
            batch = (batch or BatchAxes(axes=(), shape=())).inside(axis, tuple(value.shape))
    return batch


def called_under(value: Any) -> Transformation:
    """Return the transformation that calls the function, the innermost one where no jit is around them.

    Tracers of vmap, autodiff and shard_map stand for a value that they have inside; a concrete one is
    there where nothing is compiled.
    """
    innermost: Transformation | None = None
    while is_tracer(value):
        if hasattr(value, "batch_dim"):
            kind, value = "vmap", value.val
        elif hasattr(value, "primal"):
            kind, value = "autodiff", value.primal
        else:
            kind, value = "shard_map", getattr(value, "val", None)
        innermost = innermost or cast(Transformation, kind)
    is_concrete = is_array_type(value) or isinstance(value, (bool, int, float, complex))
    return innermost if innermost and is_concrete else "jit"


def is_ref(value: Any) -> bool:
    """Return whether a traced value is a Ref."""
    return type(value.aval).__name__ == "AbstractRef"
