"""Insertion and removal of XLA's sharding-inspection call in a program."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from . import private
from .jax_stack import lowered_effects

_JET = "jax.experimental.jet"
_KEY_REUSE = "jax.experimental.key_reuse._core"
_SPARSIFY = "jax.experimental.sparse.transform"


def register_replication(primitive: Any, *, has_result: bool) -> None:
    """Register that a primitive preserves replication, for the shard_map of JAX up to 0.5."""
    with contextlib.suppress(ImportError, AttributeError):
        shard_map = importlib.import_module("jax.experimental.shard_map")
        shard_map.register_check(primitive)(lambda mesh, replicated, **_: [replicated] if has_result else [])
        shard_map.register_norewrite(primitive)


def register_for_refs(primitive: Any) -> None:
    """Register that a primitive without a result does not change a Ref, if JAX has Refs."""
    with contextlib.suppress(ImportError, AttributeError):
        register_discharge_rule = private("state.discharge").register_discharge_rule

        def discharged(*arguments: Any, **parameters: Any) -> Any:
            # The value of the Ref comes last, after JAX's arguments about the types.
            primitive.bind(arguments[-1], **parameters)
            return [None], []

        register_discharge_rule(primitive)(discharged)


def register_where_used(
    primitive: Any, jet_rule: Callable[..., Any], sparse_rule: Callable[..., Any], *, has_result: bool
) -> None:
    """Register a primitive with the experimental parts of JAX that the program has imported.

    Importing them here would take longer than the rest of an inspection.

    Args:
        primitive: The primitive, which has one operand.
        jet_rule: Its rule for ``jax.experimental.jet``.
        sparse_rule: Its rule for a sparse operand under ``jax.experimental.sparse.sparsify``.
        has_result: Whether it returns its operand.
    """
    import jax

    with contextlib.suppress(ImportError, AttributeError):
        if _JET in sys.modules:
            sys.modules[_JET].jet_rules.setdefault(primitive, jet_rule)
        if _SPARSIFY in sys.modules:
            sparsify = sys.modules[_SPARSIFY]
            for rules in (sparsify.sparse_rules_bcoo, sparsify.sparse_rules_bcsr):
                rules.setdefault(primitive, sparse_rule)
        if jax.config.jax_debug_key_reuse:
            checker = importlib.import_module(_KEY_REUSE)
            # Without a signature, a primitive consumes its keys.
            forwards = [checker.Forward(0, 0)] if has_result else []
            checker.key_reuse_signatures.setdefault(primitive, checker.KeyReuseSignature(*forwards))


def returned_key(key: Any) -> Any:
    """Return a PRNG key for a primitive to return unchanged; any other value as it is.

    With ``jax_debug_key_reuse``, JAX marks the returned key as consumed before it applies the primitive's
    signature. The result must therefore be a new object, not the operand.
    """
    import jax

    if jax.config.jax_debug_key_reuse and hasattr(key, "_impl") and hasattr(key, "_base_array"):
        return type(key)(key._impl, key._base_array)
    return key


_TARGET = "InspectSharding"

_PARTITIONED = frozenset(
    {
        "func.func",
        "stablehlo.while",
        "stablehlo.case",
        "stablehlo.if",
        "sdy.manual_computation",
        "sdy.named_computation",
    }
)
"""The operations whose regions XLA partitions. Other regions, such as a reduction's, are not partitioned."""


def inspection_primitive(name: str, *, has_result: bool, before_binding: Callable[[Any], None]) -> Any:
    """Return a primitive of one operand that returns a list of that operand, or an empty list.

    A primitive without a result has a debug effect like ``jax.debug.print``: every transformation allows it.

    Args:
        name: Name in a printed jaxpr.
        has_result: Whether the primitive returns its operand.
        before_binding: Called with the primitive before each bind, in time to register more rules.

    Raises:
        ImportError, AttributeError: this version of JAX lacks a private part that inspection needs.
    """
    _ = private("lib").xla_client.encode_inspect_sharding_callback
    _ = private("lib.mlir.dialects").hlo.CustomCallOp

    # jax.extend.core has Primitive too, but in JAX 0.12 importing it inside a trace compiles all twice.
    class InspectionPrimitive(private("core").Primitive):  # type: ignore[misc]
        def bind(self, *arguments: Any, **parameters: Any) -> Any:
            before_binding(self)
            return super().bind(*arguments, **parameters)

    primitive = InspectionPrimitive(name)
    primitive.multiple_results = True
    if has_result:
        primitive.def_abstract_eval(lambda aval, **_: [aval])
    else:
        effect = _inspection_effect()
        primitive.def_effectful_abstract_eval(lambda aval, **_: ([], {effect}))
    register_replication(primitive, has_result=has_result)
    return primitive


@functools.cache
def _inspection_effect() -> Any:
    """Return the effect that keeps an inspection without a result in the program."""

    class InspectionEffect(private("debugging").DebugEffect):  # type: ignore[misc]
        __str__ = lambda self: "InspectSharding"  # noqa: E731

    return InspectionEffect()


def drop_inspection_effect() -> None:
    """Remove the inspection effect from the programs that are being lowered: nothing of it runs.

    The effect would slow down each call of the compiled function, and an exported function could not be
    serialized. It stays if JAX has moved the program, or with ``jax_enable_checks``, which compares the
    effects of a program with those of its equations.
    """
    import jax

    if not jax.config.jax_enable_checks:
        for effects in lowered_effects():
            effects.discard(_inspection_effect())


def emit_inspection(context: Any, value: Any, callback: Callable[[object], None]) -> bytes:
    """Insert XLA's inspection call into a program, and return the call's address.

    ``jax.debug.inspect_array_sharding`` uses the same call. XLA calls back with the ``HloSharding`` of the
    value and removes the call when it partitions the program. XLA finds the callback by its address, which
    is part of the program's text and identifies the call for ``strip_unpartitioned_inspections``.
    """
    from jax.interpreters import mlir

    xla_client, ir = private("lib").xla_client, private("lib.mlir").ir
    hlo = private("lib.mlir.dialects").hlo
    context.module_context.add_keepalive(callback)
    address: bytes = xla_client.encode_inspect_sharding_callback(callback)
    hlo.CustomCallOp(
        [value.type],
        [value],
        call_target_name=ir.StringAttr.get(_TARGET),
        has_side_effect=ir.BoolAttr.get(True),
        api_version=mlir.i32_attr(1),
        called_computations=ir.ArrayAttr.get([]),
        backend_config=ir.StringAttr.get(address),
        operand_layouts=None,
        result_layouts=None,
    )
    return address


def strip_unpartitioned_inspections(module: Any) -> set[bytes]:
    """Remove the inspection calls that XLA would not partition from a module; return their addresses.

    XLA partitions functions and control flow. The function of a reduction or a scatter runs on single
    elements; an inspection call in it crashes the process.
    """
    inspections: list[tuple[str | None, Any]] = []
    # The callees of each function; under None, the callees of unpartitioned regions.
    callees: defaultdict[str | None, set[str]] = defaultdict(set)
    for function in module.body.operations:
        name = function.attributes["sym_name"].value if "sym_name" in function.attributes else ""
        for operation, is_partitioned in _operations(function.operation, True):
            caller = name if is_partitioned else None
            attributes = operation.attributes
            if operation.name == "func.call":
                callees[caller].add(attributes["callee"].value)
            elif operation.name == "stablehlo.custom_call":
                if attributes["call_target_name"].value == _TARGET:
                    inspections.append((caller, operation))
                elif "called_computations" in attributes:
                    callees[None].update(callee.value for callee in attributes["called_computations"])
    unpartitioned: set[str | None] = set()
    waiting: list[str | None] = [None]
    while waiting:
        name = waiting.pop()
        if name not in unpartitioned:
            unpartitioned.add(name)
            waiting += callees[name]
    stripped = set()
    for caller, operation in inspections:
        if caller in unpartitioned:
            stripped.add(operation.attributes["backend_config"].value_bytes)
            operation.erase()
    return stripped


def _operations(operation: Any, is_partitioned: bool) -> Iterator[tuple[Any, bool]]:
    """Yield each operation inside an operation, with whether XLA partitions its region."""
    inside = [(operation, is_partitioned)]
    while inside:
        outer, is_partitioned = inside.pop()
        is_partitioned = is_partitioned and outer.name in _PARTITIONED
        views = [view for region in outer.regions for block in region for view in block]
        inner = [(view.operation, is_partitioned) for view in views]
        yield from inner
        inside += inner
