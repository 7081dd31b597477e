"""Blocks of ``collect_reports``: which of them gathers a report, and its place in the program's order."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
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


class Collector:
    """The list of one ``collect_reports``, kept in the order of the program."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
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


class CallSite(NamedTuple):
    """Where a report was asked for; it keeps no block alive, as JAX caches what is lowered."""

    blocks: tuple[int, ...]
    """The numbers of the open blocks around it, the innermost first."""

    thread: int
    """The thread."""


_open: dict[int, Collector] = {}
"""The open blocks by their numbers, the last one opened last."""
_around: ContextVar[tuple[int, ...]] = ContextVar("blocks_around", default=())


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
    collector, number = Collector(), next_number()
    _open[number] = collector
    _around.set((number, *_open_around()))
    try:
        yield collector.reports
    finally:
        # Generators and tasks need not close their blocks in the order in which they opened them.
        del _open[number]
        _around.set(_open_around())


def _open_around() -> tuple[int, ...]:
    return tuple(number for number in _around.get() if number in _open)


def current_collector() -> Collector | None:
    """Return the innermost open ``collect_reports`` around the caller, None where there is none."""
    return _first_open(_around.get())


def _first_open(blocks: Iterable[int]) -> Collector | None:
    return next((block for block in map(_open.get, blocks) if block is not None), None)


def call_site() -> CallSite:
    """Return the call site of the caller, which asks for a report that comes later.

    In a thread of XLA's own (jax 0.10 partitions in one) that is where JAX waits for it.
    """
    thread = compat.compiling_thread() if is_foreign_thread() else None
    return CallSite(_open_around(), thread or threading.get_ident())


def deliver(
    report: _R,
    show: Callable[[_R], None],
    order: Order | None = None,
    asked_at: CallSite | None = None,
) -> None:
    """Gather a report where reports are collected, show it elsewhere.

    Args:
        report: What is reported.
        show: Prints it.
        order: Its place in the order of the program, when that is not now.
        asked_at: Where it was asked for, where the answer may come from elsewhere.
    """
    blocks = _around.get()
    if asked_at is not None:
        blocks += asked_at.blocks
        if is_foreign_thread():
            # XLA's own thread (jax 0.10) does not see the blocks of the one that compiles.
            opened = reversed(_open.copy().items())
            blocks += tuple(number for number, block in opened if block.thread == asked_at.thread)
    target = _first_open(blocks)
    if target is None:
        show(report)
    else:
        number = next_number()
        target.add(report, order or (number, number))
