"""Traced values: facts from the tracer, its type and the transformations around it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from ..layouts.dtypes import bits_per_element, dtype_name
from ..layouts.spec import MeshAxes, some_axes
from ..reports.array import COMPILER_DECIDES, IN_A_KERNEL, IN_A_REDUCER, BatchAxes, Transformation
from ..text import plain_shape
from .devices import mesh_axes
from .jax_stack import unpartitioned_context
from .shardings import sharding_facts
from .values import ArrayFacts, KnownSharding, is_array_type, is_tracer, private, type_name

_NOT_PARTITIONED = {"reducer": IN_A_REDUCER, "kernel": IN_A_KERNEL}


def traced_facts(value: Any) -> ArrayFacts:
    """Return the facts about a traced value that are known while JAX traces."""
    unpartitioned = unpartitioned_context()
    if unpartitioned:
        known = KnownSharding(unknown_because=_NOT_PARTITIONED[unpartitioned])
    else:
        known = _known_while_tracing(value)
    return ArrayFacts(
        kind="tracer",
        type_name=type_name(value),
        shape=plain_shape(value.shape),
        dtype=dtype_name(value.dtype),
        bits=bits_per_element(value.dtype),
        weak_type=bool(getattr(value, "weak_type", False)),
        called_under=_called_under(value),
        # Where XLA does not partition, the sharding in the type is meaningless.
        varying_axes=() if unpartitioned else _varying_axes(value),
        is_varying_known=not unpartitioned and _is_varying_known(),
        unreduced_axes=() if unpartitioned else _unreduced_axes(value),
        known=known,
    )


def _known_while_tracing(value: Any) -> KnownSharding:
    axes = _type_axes(value.aval)
    manual = {name for name, axis_type in zip(axes.names, axes.types, strict=False) if axis_type == "Manual"}
    batch = _batch_of(value)
    # The type of a batched value lacks the batched axes.
    known = KnownSharding() if batch else known_by_type(value.aval)
    if not manual and known.source == "unknown":
        return KnownSharding(unknown_because=COMPILER_DECIDES, batch=batch, is_pending=True)
    return KnownSharding(
        source="manual" if manual else "type",
        sharding=known.sharding,
        batch=batch,
        manual_axes=some_axes(axes, manual) if manual else None,
        is_pending=bool(manual) and "Auto" in axes.types,
    )


def known_by_type(aval: Any) -> KnownSharding:
    """Return the sharding in an abstract value's type.

    A type has a sharding only over Explicit mesh axes. On a mesh with Auto axes alone its spec is
    ``P(None)``, which is meaningless. With axes of both types, the sharding is incomplete and has no layout.
    """
    types = set(_type_axes(aval).types)
    if "Explicit" not in types:
        return KnownSharding()
    return KnownSharding(
        source="type",
        sharding=sharding_facts(aval.sharding, plain_shape(aval.shape), is_decided=types == {"Explicit"}),
    )


def _type_axes(aval: Any) -> MeshAxes:
    """Return the mesh axes in an abstract value's type; none without a mesh, as always in JAX 0.4.38."""
    mesh = getattr(getattr(aval, "sharding", None), "mesh", None)
    return MeshAxes((), ()) if mesh is None else mesh_axes(mesh)


def _varying_axes(value: Any) -> tuple[str, ...]:
    """Return the manual mesh axes over which a value varies inside shard_map, sorted.

    They are ``aval.vma`` in JAX 0.6–0.9 and ``aval.mat.varying`` since 0.10.
    """
    aval = value.aval
    varying = getattr(getattr(aval, "mat", None), "varying", None) or getattr(aval, "vma", ())
    return tuple(sorted(map(str, varying or ())))


def _is_varying_known() -> bool:
    """Return whether JAX tracks varying axes here: inside shard_map since 0.6, unless check_vma is False."""
    state = getattr(private("config"), "_check_vma", None)
    return getattr(state, "value", False) is True


def _unreduced_axes(value: Any) -> tuple[str, ...]:
    """Return the manual mesh axes over which a value is a partial sum inside shard_map, since JAX 0.10."""
    return tuple(sorted(map(str, getattr(getattr(value.aval, "mat", None), "unreduced", ()))))


def _batch_of(value: Any) -> BatchAxes | None:
    """Return the batched axes of a value under vmap; None if there are none."""
    batch: BatchAxes | None = None
    for transformation, tracer, inner in _layers(value):
        if transformation == "shard_map":
            break  # outside shard_map, the value has another shape
        axis = getattr(tracer, "batch_dim", None)
        if isinstance(axis, int) and hasattr(inner, "shape"):
            batch = (batch or BatchAxes(axes=(), shape=())).inside(axis, plain_shape(inner.shape))
    return batch


def _called_under(value: Any) -> Transformation:
    """Return ``jit`` for a value that is staged, else the innermost transformation around it.

    If nothing is staged, the last tracer wraps a concrete value.
    """
    transformations, _, inner = zip(*_layers(value), strict=True)
    is_concrete = is_array_type(inner[-1]) or isinstance(inner[-1], (bool, int, float, complex))
    return transformations[0] if is_concrete else "jit"


def _layers(value: Any) -> Iterator[tuple[Transformation, Any, Any]]:
    """Yield the transformation of each nested tracer, the tracer, and the value that it wraps.

    Tracers of vmap, autodiff and shard_map wrap a value, which may be a tracer too. A tracer of jit comes
    last and wraps None.
    """
    while is_tracer(value):
        tracer = value
        if hasattr(tracer, "batch_dim"):
            transformation, value = "vmap", tracer.val
        elif hasattr(tracer, "primal"):
            transformation, value = "autodiff", tracer.primal
        else:
            transformation, value = "shard_map", getattr(tracer, "val", None)
        yield cast(Transformation, transformation), tracer, value


def is_ref(value: Any) -> bool:
    """Return whether a traced value is a Ref."""
    return type(value.aval).__name__ == "AbstractRef"
