"""Questions that go into the user's program, and come out of it again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from .frames import frames
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
        effect = _asking_effect()
        primitive.def_effectful_abstract_eval(lambda aval, **_: ([], {effect}))
    register_replication(primitive, has_result=has_result)
    return primitive


@functools.cache
def _asking_effect() -> Any:
    """Return the effect that keeps a question in the program, though it has no result."""

    class AskingEffect(private("debugging").DebugEffect):  # type: ignore[misc]
        __str__ = lambda self: "AskSharding"  # noqa: E731

    return AskingEffect()


def forget_asking() -> None:
    """Take the effect of questions from the program that is being lowered: none of it is executed.

    With it, each call of the compiled function would go the slow way, and an exported one could not be
    serialized. Where this jax keeps its program elsewhere, that is how it stays; also where JAX checks
    that its programs have the effects of their parts.
    """
    import jax

    if jax.config.jax_enable_checks:
        return
    for frame in frames():
        # Up to Python 3.12, who asks for a frame's variables has it hold copies of all: not of a tracer.
        lowers = "closed_jaxpr" in frame.f_code.co_varnames and frame.f_code.co_filename.endswith("pxla.py")
        effects = getattr(frame.f_locals.get("closed_jaxpr"), "effects", None) if lowers else None
        if isinstance(effects, set):
            effects.discard(_asking_effect())


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
    calls: list[tuple[str, bool, Any]] = []
    # The functions that each function calls, and those that are called where nothing is partitioned.
    callees: dict[str, set[str]] = {}
    unpartitioned: list[str] = []
    for function in module.body.operations:
        name = function.attributes["sym_name"].value if "sym_name" in function.attributes else ""
        called = callees[name] = set()
        for operation, is_partitioned in _operations(function.operation, True):
            attributes = operation.attributes
            if operation.name == "func.call":
                callee = attributes["callee"].value
                called.add(callee)
                if not is_partitioned:
                    unpartitioned.append(callee)
            elif operation.name == "stablehlo.custom_call":
                if attributes["call_target_name"].value == _TARGET:
                    calls.append((name, is_partitioned, operation))
                elif "called_computations" in attributes:
                    unpartitioned += [callee.value for callee in attributes["called_computations"]]
    reached: set[str] = set()
    while unpartitioned:
        name = unpartitioned.pop()
        if name not in reached:
            reached.add(name)
            unpartitioned += callees.get(name, ())
    withdrawn = set()
    for name, is_partitioned, operation in calls:
        if name in reached or not is_partitioned:
            withdrawn.add(operation.attributes["backend_config"].value_bytes)
            operation.erase()
    return withdrawn


def _operations(operation: Any, is_partitioned: bool) -> Iterator[tuple[Any, bool]]:
    """Yield the operations inside an operation, and whether XLA partitions the region of each."""
    inside = [(operation, is_partitioned)]
    while inside:
        outer, is_partitioned = inside.pop()
        is_partitioned = is_partitioned and outer.name in _PARTITIONED
        for region in outer.regions:
            for block in region:
                for view in block:
                    inner = view.operation
                    yield inner, is_partitioned
                    inside.append((inner, is_partitioned))


def ask_as_jax_does(value: Any, callback: Callable[[Any], None]) -> None:
    """Have ``jax.debug.inspect_array_sharding`` call back with a value's Sharding."""
    import jax

    jax.debug.inspect_array_sharding(value, callback=callback)
