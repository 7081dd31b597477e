"""Insert the sharding-inspection call into a program, and strip it."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from .jax_stack import lowered_effects
from .private import private
from .transformation_rules import register_replication

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
"""The operations whose regions XLA partitions. It does not partition those of others, such as reductions."""


def inspection_primitive(name: str, *, has_result: bool, before_binding: Callable[[Any], None]) -> Any:
    """Return a primitive of one operand, whose results are a list of that operand, or an empty one.

    One without a result has an effect of the kind of ``jax.debug.print``, which all transformations admit.

    Args:
        name: Its name in a printed jaxpr.
        has_result: Whether it returns its operand.
        before_binding: Called with the primitive each time before JAX looks for its rules.

    Raises:
        ImportError, AttributeError: this jax lacks what ``emit_inspection`` and the others here need.
    """
    _ = private("lib").xla_client.encode_inspect_sharding_callback
    _ = private("lib.mlir.dialects").hlo.CustomCallOp

    # jax.extend.core has it too; on jax 0.12, importing that inside a trace has all be compiled twice.
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
    """Return the effect that keeps an inspection in the program, though it has no result."""

    class InspectionEffect(private("debugging").DebugEffect):  # type: ignore[misc]
        __str__ = lambda self: "AskSharding"  # noqa: E731

    return InspectionEffect()


def drop_inspection_effect() -> None:
    """Take the effect of inspections from the programs that are being lowered: none of it is executed.

    With it, each call of the compiled function would go the slow way, and an exported one could not be
    serialized. Where this jax keeps its program elsewhere, that is how it stays; also where JAX checks
    that its programs have the effects of their parts.
    """
    import jax

    if not jax.config.jax_enable_checks:
        for effects in lowered_effects():
            effects.discard(_inspection_effect())


def emit_inspection(context: Any, value: Any, callback: Callable[[object], None]) -> bytes:
    """Put XLA's inspection call into a program: it is called back with the ``HloSharding`` of a value.

    That is the call of ``jax.debug.inspect_array_sharding``. XLA finds the callback by its address, which
    is part of the program's text, and takes the call out when it partitions the program. Return the
    address, by which ``withdraw_inspections`` names the call.
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


def withdraw_inspections(module: Any) -> set[bytes]:
    """Take the inspection calls that XLA cannot answer out of a lowered module; return their addresses.

    XLA partitions functions and control flow. The function of a reduction or a scatter is computed
    element by element; an inspection call in it kills the process.
    """
    inspections: list[tuple[str | None, Any]] = []
    # The functions that each function calls; under None, those that are called where nothing is partitioned.
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
    withdrawn = set()
    for caller, operation in inspections:
        if caller in unpartitioned:
            withdrawn.add(operation.attributes["backend_config"].value_bytes)
            operation.erase()
    return withdrawn


def _operations(operation: Any, is_partitioned: bool) -> Iterator[tuple[Any, bool]]:
    """Yield the operations inside an operation, and whether XLA partitions the region of each."""
    inside = [(operation, is_partitioned)]
    while inside:
        outer, is_partitioned = inside.pop()
        is_partitioned = is_partitioned and outer.name in _PARTITIONED
        views = [view for region in outer.regions for block in region for view in block]
        inner = [(view.operation, is_partitioned) for view in views]
        yield from inner
        inside += inner
