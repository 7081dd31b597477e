"""Where a report goes: to the screen, or into the list of ``collect_reports``."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TypeVar

from .model import Report

_R = TypeVar("_R", bound=Report)

Order = tuple[int, int]
"""Where a report stands in the order of the program."""

_numbers = itertools.count()


def next_number() -> int:
    """Return a number greater than all before: the place in the program of what is asked now."""
    return next(_numbers)


class Collector:
    """The list of one ``collect_reports``, kept in the order of the program."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
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
    collector = Collector()
    token = _current.set(collector)
    _open.append(collector)
    try:
        yield collector.reports
    finally:
        _open.remove(collector)
        _current.reset(token)


def current_collector() -> Collector | None:
    """Return the innermost ``collect_reports`` around the caller, None where there is none."""
    return _current.get()


def deliver(
    report: _R,
    show: Callable[[_R], None],
    order: Order | None = None,
    collector: Collector | None = None,
) -> None:
    """Gather a report where reports are collected, show it elsewhere.

    Args:
        report: What is reported.
        show: Prints it.
        order: Its place in the program, when that is not now.
        collector: The collector around what asked for it, where the answer may come elsewhere.
    """
    target = _current.get() or (collector if collector in _open else None)
    if target is None and _open and isinstance(threading.current_thread(), threading._DummyThread):
        # jax 0.10 compiles in a thread of its own, to which no Python program belongs.
        target = _open[-1]
    if target is None:
        show(report)
    else:
        number = next_number() if order is None else -1
        target.add(report, order or (number, number))
