"""What meshes, specs and the types of values say, on each version of jax."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, cast

from ..meshes import mesh_placement
from ..model import BatchAxes, MeshAxes, Transformation
from ..values import is_array_type, is_tracer


def mesh_axis_types(mesh: Any) -> tuple[str, ...]:
    """Return ``Auto``, ``Explicit`` or ``Manual`` for each axis; nothing where a mesh has no types.

    On jax 0.4.38 and 0.5.3 they are a mapping from the type to names.
    """
    types = getattr(mesh, "axis_types", None)
    if types is None:
        return ()
    if isinstance(types, dict):
        by_name = {
            name: kind
            for kind, names in types.items()
            for name in (names if isinstance(names, tuple) else (names,))
        }
        types = tuple(by_name.get(name) for name in mesh.axis_names)
    return tuple(getattr(kind, "name", str(kind)) for kind in types)


def mesh_axes(mesh: Any) -> MeshAxes:
    """Return names, sizes and types of a mesh's axes."""
    sizes = mesh_placement(mesh).sizes
    return MeshAxes(tuple(sizes), tuple(sizes.values()), mesh_axis_types(mesh))


def spec_entries(spec: Any) -> tuple[Any, ...]:
    """Return the entries of a PartitionSpec; from jax 0.10 on, some are not iterable."""
    return tuple(getattr(spec, "_partitions", spec))


def is_unconstrained(entry: object) -> bool:
    """Return whether an entry of a PartitionSpec is ``UNCONSTRAINED``; where jax is not loaded, none is."""
    jax = sys.modules.get("jax")
    return jax is not None and entry is jax.sharding.PartitionSpec.UNCONSTRAINED


def device_assignment(sharding: Any, shape: Sequence[int]) -> list[Any]:
    """Return a sharding's devices in the order in which XLA numbers them."""
    devices = getattr(sharding, "_device_assignment", None)
    if devices is None:
        devices = sharding.devices_indices_map(tuple(shape))
    return list(devices)


def xla_text(sharding: Any, ndim: int) -> str | None:
    """Return a sharding as XLA writes it, such as ``{devices=[8,1]<=[8]}``, where it has that form."""
    try:
        return str(sharding._to_xla_hlo_sharding(ndim))
    except (AttributeError, NotImplementedError):
        return None


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
            batch = (batch or BatchAxes((), ())).inside(axis, tuple(value.shape))
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
