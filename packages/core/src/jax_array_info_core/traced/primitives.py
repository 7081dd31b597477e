"""The primitives through which the compiler is asked: a value is their operand, a question their parameter.

``ask`` has no result, and an effect, which keeps it in the program though nothing uses it. ``tap`` returns
its operand and has no effect: JAX drops it where the result is not used.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable
from typing import Any

from .. import compat
from ..delivery import call_site
from ..reports.array import BatchAxes
from ..reports.unknown_reasons import IN_A_JET, NOT_AVAILABLE, SPARSE, TRANSPOSED
from ..text import plain_shape
from .logs import log_problem
from .questions import Inspection, LoweredModule, Question
from .sharding_sources import from_array, from_jax


def ask_compiler(value: Any, question: Question, *, taps: bool) -> Any:
    """Have the compiler asked about a traced value, and return the value.

    Args:
        value: The value.
        question: What is asked.
        taps: Whether it is asked only where what is returned is used. The content of a Ref is not returned.
    """
    primitive = _primitive(has_result=taps and not compat.is_ref(value))
    if primitive is not None:
        return [*primitive.bind(value, question=question, batch=None), value][0]
    import jax

    asked = call_site()
    jax.debug.inspect_array_sharding(
        value,
        callback=lambda sharding: question.answer(lambda: from_jax(question.facts, sharding), asked_in=asked),
    )
    return value


@functools.cache
def _primitive(*, has_result: bool) -> Any:
    """Return a primitive with its rules, None where this jax has no longer what it is made of."""
    try:
        return _Rules("tap_sharding" if has_result else "ask_sharding", has_result=has_result).primitive
    except (ImportError, AttributeError, TypeError):
        logging.getLogger("jax_array_info").info(
            "jax.debug.inspect_array_sharding is used instead", exc_info=True
        )
        return None


class _Rules:
    """A primitive of one operand, which is its only result or has none, with a rule for each transformation.

    Where a rule does not use the question, it hands it on among the parameters.
    """

    def __init__(self, name: str, *, has_result: bool) -> None:
        from jax.interpreters import ad, batching, mlir

        self._has_result = has_result
        self.primitive = primitive = compat.inspection_primitive(
            name,
            has_result=has_result,
            before_binding=functools.partial(
                compat.register_where_used,
                jet_rule=self.taylor,
                sparse_rule=self.sparse,
                has_result=has_result,
            ),
        )
        primitive.def_impl(self.evaluated)
        batching.primitive_batchers[primitive] = self.batched
        ad.primitive_jvps[primitive] = self.differentiated
        ad.primitive_transposes[primitive] = self.transposed
        mlir.register_lowering(primitive, self.lowered)
        if not has_result:
            compat.register_for_refs(primitive)

    def results(self, values: Iterable[Any]) -> list[Any]:
        """Return what stands for the results among what stands for the operand: all of it, or nothing."""
        return list(values) if self._has_result else []

    def evaluated(self, value: Any, *, question: Question, batch: BatchAxes | None) -> Any:
        question.answer(lambda: from_array(question.facts, value, batch))
        return self.results([compat.returned_key(value)])

    def batched(self, values: Any, axes: Any, *, question: Question, batch: BatchAxes | None) -> Any:
        (value,), (axis,) = values, axes
        whole = (batch or BatchAxes(axes=(), shape=())).inside(axis, plain_shape(value.shape))
        return self.primitive.bind(value, question=question, batch=whole), self.results(axes)

    def differentiated(self, values: Any, tangents: Any, **parameters: Any) -> Any:
        return self.primitive.bind(*values, **parameters), self.results(tangents)

    def transposed(self, cotangents: Any, value: Any, *, question: Question, batch: BatchAxes | None) -> Any:
        question.stay_unknown(TRANSPOSED)
        return self.results(cotangents) or [None]

    def taylor(self, values: Any, series: Any, *, question: Question, batch: BatchAxes | None) -> Any:
        question.stay_unknown(IN_A_JET)
        return self.results(values), self.results(series)

    def sparse(self, buffers: Any, value: Any, *, question: Question, batch: BatchAxes | None) -> Any:
        question.stay_unknown(SPARSE)
        return self.results([value])

    def lowered(self, context: Any, value: Any, *, question: Question, batch: BatchAxes | None) -> Any:
        try:
            _lower(context, value, question, batch)
        except Exception:
            # Whatever a version of jax does otherwise, the user's program is compiled.
            log_problem("the compiler could not be asked")
            question.stay_unknown(NOT_AVAILABLE)
        return self.results([value])


def _lower(context: Any, value: Any, question: Question, batch: BatchAxes | None) -> None:
    """Put a question into the program that is lowered; what is exported stays without."""
    compat.drop_inspection_effect()
    place = compat.lowering_place(context.module_context)
    if place is None:
        return
    module = compat.kept_with_module(context.module_context, LoweredModule)
    inspection = Inspection(module, question, batch, place, module.order(question), call_site())
    if compat.is_compiling():
        # A part that is lowered while the whole is compiled (custom_partitioning) has no end of its own.
        inspection.compiled()
        return
    if inspection.asks_partitioner:
        inspection.address = compat.emit_inspection(context, value, inspection.partitioned)
    module.inspections.append(inspection)
