"""The primitives through which the compiler is asked: a value is their operand, a question their parameter.

``ask`` has no result, and an effect, which keeps it in the program though nothing uses it. ``tap`` returns
its operand and has no effect: JAX drops it where the result is not used.
"""

from __future__ import annotations

import functools
import logging
from typing import Any, NamedTuple

from .. import compat
from ..arrays.report import plain_shape
from ..delivery import call_site
from ..reports.array import ArrayReport, BatchAxes
from . import complete
from .logs import log_problem
from .requests import NO_ANSWER, Inspection, LoweredModule, Question

TRANSPOSED = "never computed, only transposed"
IN_A_JET = "jax.experimental.jet computes Taylor coefficients"
SPARSE = "jax.experimental.sparse keeps it as several arrays"

_logger = logging.getLogger("jax_array_info")


def ask(value: Any, question: Question) -> None:
    """Have the compiler asked about a traced value."""
    primitives = _primitives()
    if primitives is not None:
        primitives.ask.bind(value, question=question, batch=None)
        return

    import jax

    asked = call_site()

    def answer(sharding: Any) -> None:
        def make() -> ArrayReport:
            report = complete.from_jax(question.report, question.dtype, sharding)
            return report or question.unknown(NO_ANSWER)

        question.answer(make, asked_in=asked)

    jax.debug.inspect_array_sharding(value, callback=answer)


def tap(value: Any, question: Question) -> Any:
    """Have the compiler asked about a traced value, and return the value."""
    primitives = _primitives()
    if primitives is None or compat.is_ref(value):
        ask(value, question)
        return value
    return primitives.tap.bind(value, question=question, batch=None)


class _Primitives(NamedTuple):
    ask: Any
    tap: Any


@functools.cache
def _primitives() -> _Primitives | None:
    """Return the primitives, None where this jax has no longer what they are made of."""
    try:
        return _Primitives(_make("ask_sharding", has_result=False), _make("tap_sharding", has_result=True))
    except (ImportError, AttributeError, TypeError):
        _logger.info("jax.debug.inspect_array_sharding is used instead", exc_info=True)
        return None


def _make(name: str, *, has_result: bool) -> Any:
    """Return a primitive with its rules for every transformation."""
    from jax.interpreters import ad, batching, mlir

    def taylor(values: Any, series: Any, *, question: Question, batch: BatchAxes | None) -> Any:
        question.answer(lambda: question.unknown(IN_A_JET))
        return (values[0], series[0]) if has_result else ([], [])

    def sparse(buffers: Any, value: Any, *, question: Question, batch: BatchAxes | None) -> Any:
        question.answer(lambda: question.unknown(SPARSE))
        return [value] if has_result else []

    primitive = compat.inspection_primitive(
        name,
        has_result=has_result,
        before_binding=functools.partial(
            compat.register_where_used, jet_rule=taylor, sparse_rule=sparse, has_result=has_result
        ),
    )

    def results(values: list[Any]) -> Any:
        """Return what a rule returns of values that there are only with a result."""
        return values if has_result else []

    def evaluate(value: Any, *, question: Question, batch: BatchAxes | None) -> Any:
        question.answer(lambda: complete.from_array(question.report, value, batch))
        return compat.returned_key(value) if has_result else []

    def batched(values: Any, axes: Any, *, question: Question, batch: BatchAxes | None) -> Any:
        (value,), (axis,) = values, axes
        whole = (batch or BatchAxes(axes=(), shape=())).inside(axis, plain_shape(value.shape))
        bound = primitive.bind(value, question=question, batch=whole)
        return (bound, axis) if has_result else ([], [])

    def differentiated(values: Any, tangents: Any, **parameters: Any) -> Any:
        bound = primitive.bind(*values, **parameters)
        return (bound, tangents[0]) if has_result else ([], [])

    def transposed(cotangents: Any, value: Any, *, question: Question, batch: BatchAxes | None) -> Any:
        question.answer(lambda: question.unknown(TRANSPOSED))
        return [cotangents if has_result else None]

    def lowered(context: Any, value: Any, *, question: Question, batch: BatchAxes | None) -> Any:
        try:
            _lower(context, value, question, batch)
        except Exception:
            # Whatever a version of jax does otherwise, the user's program is compiled.
            log_problem("the compiler could not be asked")
            question.answer(lambda: question.unknown(NO_ANSWER))
        return results([value])

    primitive.def_impl(evaluate)
    batching.primitive_batchers[primitive] = batched
    ad.primitive_jvps[primitive] = differentiated
    ad.primitive_transposes[primitive] = transposed
    mlir.register_lowering(primitive, lowered)
    if not has_result:
        compat.register_for_refs(primitive)
    return primitive


def _lower(context: Any, value: Any, question: Question, batch: BatchAxes | None) -> None:
    """Put a question into the program that is lowered; what is exported stays without."""
    compat.drop_inspection_effect()
    place = compat.lowering_place(context.module_context)
    if place is None:
        return
    module = compat.kept_with_module(context.module_context, LoweredModule)
    inspection = Inspection(module, question, batch, place)
    if compat.is_compiling():
        # A part that is lowered while the whole is compiled (custom_partitioning) has no end of its own.
        inspection.compiled()
        return
    if inspection.asks_partitioner:
        inspection.address = compat.emit_inspection(context, value, inspection.partitioned)
    module.inspections.append(inspection)
