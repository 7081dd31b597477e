"""The primitives that inspect a traced value: the value is their operand, its pending report a parameter.

``inspect_sharding`` has no result; an effect keeps it in the program. ``tap_sharding`` returns its operand
and has no effect, so JAX removes it if the result is unused.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from ...base.text import plain_shape, plain_text
from ...compat.arrays import is_ref, traced_facts
from ...compat.compiled_calls import module_listener
from ...compat.inspection import (
    drop_inspection_effect,
    emit_inspection,
    inspection_primitive,
    register_for_refs,
    register_where_used,
    returned_key,
)
from ...compat.jax_stack import (
    caller_outside,
    is_compiling,
    is_only_analyzed,
    lowering_place,
    will_not_compile,
)
from ...facts.reports import Report
from ...facts.reports.array import (
    IN_A_JET,
    NOT_AVAILABLE,
    NOT_COMPILED,
    SPARSE,
    TRANSPOSED,
    ArrayReport,
    BatchAxes,
)
from ..delivery import CallSite, Order, call_site
from .inspections import (
    LoweredModule,
    PendingGroup,
    PendingMember,
    PendingReport,
    PendingValue,
    Position,
    deliver_or_log,
)
from .sources import Call, Show, from_array, from_jax, log_problem


def inspect_when_compiled(value: Any, pending: PendingValue, *, taps: bool) -> Any:
    """Insert an inspection of a traced value into its program, and return the value.

    Args:
        value: The traced value.
        pending: Its pending report.
        taps: Whether JAX may remove the inspection if the returned value is unused. It never removes the
            inspection of a Ref.
    """
    # Where effects may be rejected, an inspection whose result is unused leaves no trace.
    primitive = _primitive(has_result=(taps or is_only_analyzed()) and not is_ref(value))
    if primitive is not None:
        return [*primitive.bind(value, pending=pending, batch=None), value][0]
    import jax

    site = call_site()
    jax.debug.inspect_array_sharding(
        value,
        callback=lambda sharding: pending.resolve(lambda: from_jax(pending.facts, sharding), site=site),
    )
    return value


@functools.cache
def _primitive(*, has_result: bool) -> Any:
    """Return a primitive with its rules; None where JAX lacks a private part that it needs."""
    try:
        return _Rules("tap_sharding" if has_result else "inspect_sharding", has_result=has_result).primitive
    except (ImportError, AttributeError, TypeError):
        logging.getLogger("jax_array_info").info(
            "this version of JAX lacks a private part that sharding inspection needs; "
            "jax.debug.inspect_array_sharding is used instead",
            exc_info=True,
        )
        return None


class _Rules:
    """A primitive of one operand that returns the operand or nothing, with its transformation rules.

    A rule that does not use the pending report passes it on with the parameters.
    """

    def __init__(self, name: str, *, has_result: bool) -> None:
        from jax.interpreters import ad, batching, mlir

        self._has_result = has_result
        self.primitive = primitive = inspection_primitive(
            name,
            has_result=has_result,
            before_binding=functools.partial(
                register_where_used,
                jet_rule=self.jet,
                sparse_rule=self.sparsify,
                has_result=has_result,
            ),
        )
        primitive.def_impl(self.evaluate)
        batching.primitive_batchers[primitive] = self.batch
        ad.primitive_jvps[primitive] = self.jvp
        ad.primitive_transposes[primitive] = self.transpose
        mlir.register_lowering(primitive, self.lower)
        if not has_result:
            register_for_refs(primitive)

    def results(self, values: Iterable[Any]) -> list[Any]:
        """Return the rule's output for the primitive's results: ``values``, or an empty list."""
        return list(values) if self._has_result else []

    def evaluate(self, value: Any, *, pending: PendingValue, batch: BatchAxes | None) -> Any:
        pending.resolve(lambda: from_array(pending.facts, value, batch))
        return self.results([returned_key(value)])

    def batch(self, values: Any, axes: Any, *, pending: PendingValue, batch: BatchAxes | None) -> Any:
        (value,), (axis,) = values, axes
        outer = (batch or BatchAxes(axes=(), shape=())).inside(axis, plain_shape(value.shape))
        return self.primitive.bind(value, pending=pending, batch=outer), self.results(axes)

    def jvp(self, values: Any, tangents: Any, **parameters: Any) -> Any:
        return self.primitive.bind(*values, **parameters), self.results(tangents)

    def transpose(
        self, cotangents: Any, value: Any, *, pending: PendingValue, batch: BatchAxes | None
    ) -> Any:
        pending.resolve_unknown(TRANSPOSED)
        return self.results(cotangents) or [None]

    def jet(self, values: Any, series: Any, *, pending: PendingValue, batch: BatchAxes | None) -> Any:
        pending.resolve_unknown(IN_A_JET)
        return self.results(values), self.results(series)

    def sparsify(self, buffers: Any, value: Any, *, pending: PendingValue, batch: BatchAxes | None) -> Any:
        pending.resolve_unknown(SPARSE)
        return self.results([value])

    def lower(self, context: Any, value: Any, *, pending: PendingValue, batch: BatchAxes | None) -> Any:
        try:
            _lower(context, value, pending, batch)
        except Exception:
            # An unsupported version of JAX must not stop the user's program from compiling.
            log_problem("the sharding inspection could not be inserted into the program")
            pending.resolve_unknown(NOT_AVAILABLE)
        return self.results([value])


def _lower(context: Any, value: Any, pending: PendingValue, batch: BatchAxes | None) -> None:
    """Insert an inspection into the program that is being lowered, unless it is lowered for export."""
    drop_inspection_effect()
    place = lowering_place(context.module_context)
    if place is None:
        return
    module = module_listener(context.module_context, LoweredModule)
    inspection = pending.inspection(module, batch, place, module.order(pending.position), call_site())
    if is_compiling():
        # custom_partitioning lowers this part during a compilation, so no compilation event follows.
        inspection.compiled()
        return
    if inspection.needs_partitioner:
        inspection.address = emit_inspection(context, value, inspection.partitioned)
    inspection.join()


_R = TypeVar("_R", bound=Report)


def report_when_known(value: Any, name: str | None, show: Show) -> None:
    """Deliver the report of a traced value as soon as its sharding is known.

    Where XLA chooses the sharding, this is at compile time, otherwise immediately. Equal
    reports of one call in a compiled program are shown once, with their number.
    """
    pending = _pending_report(value, name, show)
    if pending is not None:
        inspect_when_compiled(value, pending, taps=False)


def tap_when_known(value: Any, name: str | None, show: Show) -> Any:
    """Do as ``report_when_known``, and return the value with the inspection in its computation."""
    pending = _pending_report(value, name, show)
    return value if pending is None else inspect_when_compiled(value, pending, taps=True)


def _pending_report(value: Any, name: str | None, show: Show) -> PendingReport | None:
    """Return a report that is resolved at compile time; None if it is already known and delivered."""
    facts = traced_facts(value)
    name = None if name is None else plain_text(name)
    pending = PendingReport(facts, name, Position(), Call(show, name, caller_outside("jax_array_info")))
    if not facts.known.is_pending:
        pending.resolve_known()
        return None
    if will_not_compile():
        # JAX caches the trace and may compile it later without running the Python function again.
        pending.resolve_unknown(NOT_COMPILED)
    return pending


class TracedValue(NamedTuple):
    """One of several values that are reported together."""

    value: Any
    name: str
    """Name of the value in its report."""

    taps: bool
    """Whether the inspection is part of the computation of the returned value, as in ``tap_when_known``."""


def report_together(
    values: Sequence[TracedValue | ArrayReport],
    build: Callable[[list[ArrayReport]], _R],
    show: Callable[[_R], None],
) -> list[Any]:
    """Deliver one report on several values, as soon as the shardings of all are known.

    A value that the compiled program does not contain has an unknown sharding, with the reason.

    Args:
        values: The traced values, and the reports on values that are not traced.
        build: Function that makes the report from the reports on all values.
        show: Function that prints it.

    Returns:
        The traced values, each with its inspection in its computation if it ``taps``.
    """

    def deliver_all(reports: Callable[[], list[ArrayReport]], order: Order, site: CallSite | None) -> None:
        deliver_or_log(lambda: build(reports()), show, order, site)

    group = PendingGroup(len(values), deliver_all)
    members: list[PendingMember | None] = []
    for index, value in enumerate(values):
        if isinstance(value, ArrayReport):
            group.known[index] = value
        else:
            facts = traced_facts(value.value)
            member = PendingMember(facts, value.name, group.position, group, index)
            members.append(member if facts.known.is_pending else None)
            if facts.known.is_pending:
                group.waiting[index] = member
            else:
                member.resolve_known()
    traced = [value for value in values if not isinstance(value, ArrayReport)]
    inspected = [
        value.value if member is None else inspect_when_compiled(value.value, member, taps=value.taps)
        for value, member in zip(traced, members, strict=True)
    ]
    group.traced(will_compile=not (group.waiting and will_not_compile()))
    return inspected
