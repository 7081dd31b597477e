"""Questions that go into the user's program, and come out of it again."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable
from typing import Any

from ..callers import frames
from .private import private


def inspection_primitive(name: str, *, has_result: bool) -> Any:
    """Return a primitive of one operand, which is its result where it has one.

    One without a result has an effect of the kind of ``jax.debug.print``, which all transformations admit.

    Raises:
        ImportError, AttributeError: this jax lacks what ``emit_inspection`` and the others here need.
    """
    _ = private("lib").xla_client.encode_inspect_sharding_callback
    _ = private("lib.mlir.dialects").hlo.CustomCallOp
    # jax.extend.core has it too; on jax 0.12, importing that inside a trace has all be compiled twice.
    primitive = private("core").Primitive(name)
    primitive.multiple_results = not has_result
    if has_result:
        primitive.def_abstract_eval(lambda aval, **_: aval)
    else:
        effect = _asking_effect()
        primitive.def_effectful_abstract_eval(lambda aval, **_: ([], {effect}))
    _register_replication(primitive, has_result=has_result)
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


def _register_replication(primitive: Any, *, has_result: bool) -> None:
    """Tell shard_map up to jax 0.5 that a primitive leaves replication as it is."""
    with contextlib.suppress(ImportError, AttributeError):
        shard_map = importlib.import_module("jax.experimental.shard_map")
        shard_map.register_check(primitive)(lambda mesh, replicated, **_: replicated if has_result else [])
        shard_map.register_norewrite(primitive)


def register_for_refs(primitive: Any) -> None:
    """Tell JAX, where it has Refs, that a primitive without result leaves one as it is."""
    with contextlib.suppress(ImportError, AttributeError):
        register_discharge_rule = private("state.discharge").register_discharge_rule

        def discharged(*arguments: Any, **parameters: Any) -> Any:
            # The content is last, after what JAX says of the types.
            primitive.bind(arguments[-1], **parameters)
            return [None], []

        register_discharge_rule(primitive)(discharged)


def emit_inspection(context: Any, value: Any, callback: Callable[[object], None]) -> None:
    """Put XLA's inspection call into a program: it is called back with the ``HloSharding`` of a value.

    That is the call of ``jax.debug.inspect_array_sharding``. XLA finds the callback by its address, which
    is part of the program's text, and takes the call out when it partitions the program.
    """
    from jax.interpreters import mlir

    xla_client, ir = private("lib").xla_client, private("lib.mlir").ir
    hlo = private("lib.mlir.dialects").hlo
    context.module_context.add_keepalive(callback)
    key = xla_client.encode_inspect_sharding_callback(callback)
    hlo.CustomCallOp(
        [value.type],
        [value],
        call_target_name=ir.StringAttr.get("InspectSharding"),
        has_side_effect=ir.BoolAttr.get(True),
        api_version=mlir.i32_attr(1),
        called_computations=ir.ArrayAttr.get([]),
        backend_config=ir.StringAttr.get(key),
        operand_layouts=None,
        result_layouts=None,
    )


def ask_as_jax_does(value: Any, callback: Callable[[Any], None]) -> None:
    """Have ``jax.debug.inspect_array_sharding`` call back with a value's Sharding."""
    import jax

    jax.debug.inspect_array_sharding(value, callback=callback)
