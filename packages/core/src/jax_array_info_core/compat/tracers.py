"""Tracers: what a traced value, its type and the transformations around it say, on each version of jax."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from ..layouts.dtypes import bits_per_element
from ..layouts.spec import MeshAxes, some_axes
from ..reports.array import BatchAxes, Transformation
from ..reports.unknown_reasons import COMPILER_DECIDES, IN_A_KERNEL, IN_A_REDUCER
from ..text import plain_shape
from .array_facts import ArrayFacts, Knowledge
from .jax_stack import blind_spot
from .meshes import mesh_axes
from .shardings import sharding_facts
from .values import is_array_type, is_tracer, type_name

_NOT_PARTITIONED = {"reducer": IN_A_REDUCER, "kernel": IN_A_KERNEL}


def traced_facts(value: Any) -> ArrayFacts:
    """Return what is known of a traced value while JAX traces."""
    blind = blind_spot()
    return ArrayFacts(
        kind="tracer",
        type_name=type_name(value),
        shape=plain_shape(value.shape),
        dtype=str(value.dtype),
        bits=bits_per_element(value.dtype),
        weak_type=bool(getattr(value, "weak_type", False)),
        called_under=_called_under(value),
        # In a blind spot, the sharding of the type means nothing.
        varying_axes=() if blind else _varying_axes(value),
        known=Knowledge(unknown_because=_NOT_PARTITIONED[blind]) if blind else _known_while_tracing(value),
    )


def _known_while_tracing(value: Any) -> Knowledge:
    axes = _type_axes(value.aval)
    manual = {name for name, kind in zip(axes.names, axes.types, strict=False) if kind == "Manual"}
    batch = _batch_of(value)
    # The type of a batched value is that of what the function sees.
    known = Knowledge() if batch else known_by_type(value.aval)
    if not manual and known.source == "unknown":
        return Knowledge(unknown_because=COMPILER_DECIDES, batch=batch, is_open=True)
    return Knowledge(
        source="manual" if manual else "type",
        sharding=known.sharding,
        batch=batch,
        manual_axes=some_axes(axes, manual) if manual else None,
        is_open=bool(manual) and "Auto" in axes.types,
    )


def known_by_type(aval: Any) -> Knowledge:
    """Return the sharding that is part of an abstract value's type.

    Only Explicit mesh axes are part of a type; over Auto ones alone it says ``P(None)``, which means
    nothing. Beside other axes there is no layout: the type does not say all.
    """
    types = set(_type_axes(aval).types)
    if "Explicit" not in types:
        return Knowledge()
    return Knowledge(
        source="type",
        sharding=sharding_facts(aval.sharding, plain_shape(aval.shape), is_decided=types == {"Explicit"}),
    )


def _type_axes(aval: Any) -> MeshAxes:
    """Return the mesh axes in an abstract value's type, none where it has no mesh; jax 0.4.38 never has."""
    mesh = getattr(getattr(aval, "sharding", None), "mesh", None)
    return MeshAxes((), ()) if mesh is None else mesh_axes(mesh)


def _varying_axes(value: Any) -> tuple[str, ...]:
    """Return the manual mesh axes over which a value varies inside shard_map, sorted.

    They are ``aval.vma`` on jax 0.6–0.9 and ``mat.varying`` of the type from 0.10 on.
    """
    aval = value.aval
    varying = getattr(getattr(aval, "mat", None), "varying", None) or getattr(aval, "vma", ())
    return tuple(sorted(map(str, varying or ())))


def _batch_of(value: Any) -> BatchAxes | None:
    """Return the axes that vmap hides from the function, where the tracers tell."""
    batch: BatchAxes | None = None
    for kind, tracer, inner in _layers(value):
        if kind == "shard_map":
            break  # outside, the value has another shape
        axis = getattr(tracer, "batch_dim", None)
        if isinstance(axis, int) and hasattr(inner, "shape"):
            batch = (batch or BatchAxes(axes=(), shape=())).inside(axis, plain_shape(inner.shape))
    return batch


def _called_under(value: Any) -> Transformation:
    """Return the transformation that calls the function, the innermost one where no jit is around them.

    A concrete value is inside where nothing is compiled.
    """
    kinds, _, inner = zip(*_layers(value), strict=True)
    is_concrete = is_array_type(inner[-1]) or isinstance(inner[-1], (bool, int, float, complex))
    return kinds[0] if is_concrete else "jit"


def _layers(value: Any) -> Iterator[tuple[Transformation, Any, Any]]:
    """Yield the transformation of each tracer, the tracer, and the value for which it stands.

    Tracers of vmap, autodiff and shard_map stand for a value that they have inside, which may be another;
    those of jit, last, for None.
    """
    while is_tracer(value):
        tracer = value
        if hasattr(tracer, "batch_dim"):
            kind, value = "vmap", tracer.val
        elif hasattr(tracer, "primal"):
            kind, value = "autodiff", tracer.primal
        else:
            kind, value = "shard_map", getattr(tracer, "val", None)
        yield cast(Transformation, kind), tracer, value


def is_ref(value: Any) -> bool:
    """Return whether a traced value is a Ref."""
    return type(value.aval).__name__ == "AbstractRef"
