"""Where a report goes: to the screen, or into the list of ``collect_reports``."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

from . import compat
from .compat.frames import is_foreign_thread
from .reports import Report

_R = TypeVar("_R", bound=Report)

Order = tuple[int, int]
"""Where a report stands in the order of the program."""

_numbers = itertools.count()


def next_number() -> int:
    """Return a number greater than all before: the place in the program of what is asked now."""
    return next(_numbers)


class Asked(NamedTuple):
    """Where a report was asked for that comes later."""

    collectors: tuple[weakref.ref[Collector], ...]
    """The open ``collect_reports`` around that, the innermost first; weak, as JAX caches what is lowered."""

    thread: int
    """The thread."""


class Collector:
    """The list of one ``collect_reports``, kept in the order of the program."""

    def __init__(self, around: Collector | None) -> None:
        self.reports: list[Report] = []
        self.is_open = True
        self.around = around
        """The block that this one is in."""
        self.thread = threading.get_ident()
        """The thread that has opened it."""
        self._orders: list[Order] = []
        self._lock = threading.Lock()

    def add(self, report: Report, order: Order) -> None:
        """Put a report where it belongs, after those that belong to the same place."""
        with self._lock:
            place = bisect.bisect_right(self._orders, order)
            self._orders.insert(place, order)
            self.reports.insert(place, report)


_current: ContextVar[Collector | None] = ContextVar("collector", default=None)
_open: list[Collector] = []


@contextlib.contextmanager
def collect_reports() -> Iterator[list[Report]]:
    """Gather the reports that the functions would print, instead of printing them.

    The list is in the order of the program: what is traced has its place from when JAX traced it, though
    the compiler answers in an order of its own. What is answered after the block has ended (a function
    that is only lowered in it) is printed. Blocks may be nested: the innermost gathers. Each thread and
    each asyncio task has blocks of its own.

    >>> import jax.numpy as jnp
    >>> from jax_array_info import sharding_info
    >>> with collect_reports() as reports:
    ...     sharding_info(jnp.zeros((4, 2)), "weights")
    >>> [(report.name, report.shape, report.source) for report in reports]
    [('weights', (4, 2), 'array')]
    """
    collector = Collector(current_collector())
    _current.set(collector)
    _open.append(collector)
    try:
        yield collector.reports
    finally:
        # Generators and tasks need not close their blocks in the order in which they opened them.
        collector.is_open = False
        _open.remove(collector)
        _current.set(current_collector())


def current_collector() -> Collector | None:
    """Return the innermost open ``collect_reports`` around the caller, None where there is none."""
    return next(_open_around(_current.get()), None)


def _open_around(collector: Collector | None) -> Iterator[Collector]:
    """Yield those of a collector and the ones around it that are open, the innermost first."""
    while collector is not None:
        if collector.is_open:
            yield collector
        collector = collector.around


def asked_here() -> Asked:
    """Return where the caller asks for a report that comes later.

    In a thread of XLA's own (jax 0.10 partitions in one) that is where JAX waits for it.
    """
    thread = compat.compiling_thread() if is_foreign_thread() else None
    return Asked(tuple(map(weakref.ref, _open_around(_current.get()))), thread or threading.get_ident())


def _still_open(asked_in: Asked) -> Collector | None:
    """Return the innermost block around a place that is open still."""
    collectors = (reference() for reference in asked_in.collectors)
    return next((collector for collector in collectors if collector is not None and collector.is_open), None)


def _opened_by(thread: int) -> Collector | None:
    """Return the last block that a thread has opened, for a caller in a thread that is not Python's.

    jax 0.10 calls back in one of its own, which does not see the blocks of the thread that compiles.
    """
    if not is_foreign_thread():
        return None
    return next((opened for opened in reversed(_open) if opened.thread == thread), None)


def deliver(
    report: _R,
    show: Callable[[_R], None],
    order: Order | None = None,
    asked_in: Asked | None = None,
) -> None:
    """Gather a report where reports are collected, show it elsewhere.

    Args:
        report: What is reported.
        show: Prints it.
        order: Its place in the program, when that is not now.
        asked_in: Where it was asked for, where the answer may come from elsewhere.
    """
    target = current_collector()
    if target is None and asked_in is not None:
        target = _still_open(asked_in) or _opened_by(asked_in.thread)
    if target is None:
        show(report)
    else:
        number = next_number() if order is None else -1
        target.add(report, order or (number, number))
