"""Reports on traced values, delivered as soon as their sharding is known.

If a value's type has no sharding, XLA chooses it at compile time. Until then, the pending report passes
through JAX's transformations as a parameter of a primitive (``primitives.py``). It is resolved when XLA
partitions the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from .. import compat
from ..arrays.report import array_report
from ..compat import values
from ..compat.jax_stack import caller_outside
from ..compat.tracers import traced_facts
from ..delivery import CallSite, Order, deliver
from ..reports import Report
from ..reports.array import ArrayReport
from ..reports.unknown_reasons import NOT_COMPILED
from ..text import plain_text
from .groups import PendingGroup, PendingMember
from .inspections import PendingReport, Position, deliver_or_log
from .primitives import inspect_when_compiled
from .repeats import Call, Show

_R = TypeVar("_R", bound=Report)


def report_when_known(value: Any, name: str | None, show: Show) -> None:
    """Deliver the report of a value as soon as its sharding is known.

    For a traced value whose sharding XLA chooses, this is at compile time, otherwise immediately. Equal
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
    """Return a report that is resolved at compile time; None if it could be delivered immediately."""
    if not values.is_tracer(value):
        deliver(array_report(value, name), show)
        return None
    facts = traced_facts(value)
    name = None if name is None else plain_text(name)
    call = Call(show, name, caller_outside("jax_array_info"))
    pending = PendingReport(facts, name, Position(), call)
    if not facts.known.is_pending:
        pending.resolve_known()
        return None
    if compat.will_not_compile():
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
    group.traced(will_compile=not (group.waiting and compat.will_not_compile()))
    return inspected
