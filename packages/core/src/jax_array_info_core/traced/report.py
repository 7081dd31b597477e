"""Reports on traced values, delivered as soon as their sharding is known.

If a value's type has no sharding, XLA chooses it at compile time. Until then, the pending report passes
through JAX's transformations as a parameter of a primitive (``primitives.py``). It is resolved when XLA
partitions the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from .. import compat
from ..arrays.report import array_report
from ..compat import values
from ..compat.tracers import traced_facts
from ..delivery import deliver
from ..reports import Report
from ..reports.array import ArrayReport
from ..reports.unknown_reasons import NOT_COMPILED
from ..text import plain_text
from .groups import PendingGroup, PendingMember
from .inspections import PendingReport, Position, deliver_or_log
from .primitives import inspect_when_compiled

Show = Callable[[ArrayReport], None]
_R = TypeVar("_R", bound=Report)


def report_when_known(value: Any, name: str | None, show: Show) -> None:
    """Deliver the report of a value as soon as its sharding is known.

    For a traced value whose sharding XLA chooses, this is at compile time, otherwise immediately.
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
    pending = PendingReport(facts, None if name is None else plain_text(name), Position(), show)
    if not facts.known.is_pending:
        pending.resolve(lambda: facts.known)
        return None
    if compat.will_not_compile():
        # JAX caches the trace and may compile it later without running the Python function again.
        pending.resolve_unknown(NOT_COMPILED)
    return pending


class Part(NamedTuple):
    """One of several values that are reported together."""

    name: str
    value: Any
    """A traced value."""
