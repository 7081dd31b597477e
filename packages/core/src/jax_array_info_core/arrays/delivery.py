"""Delivery of reports to the innermost ``collect_reports`` block, or to the terminal."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ..compat.jax_stack import compiling_thread, is_foreign_thread

if TYPE_CHECKING:
    from ..facts.reports import Report

_R = TypeVar("_R", bound="Report")

Order = tuple[int, int]
"""Sort key of a report: its position in the order of the program."""

_numbers = itertools.count()


def next_number() -> int:
    """Return a number greater than all before: the current position in the order of the program."""
    return next(_numbers)


class Collector:
    """Reports of one ``collect_reports`` block, in the order of the program."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.thread = threading.get_ident()
        """Thread that opened the block."""
        self._orders: list[Order] = []
        self._lock = threading.Lock()

    def add(self, report: Report, order: Order) -> None:
        """Insert a report by its order, after reports of the same order."""
        with self._lock:
            place = bisect.bisect_right(self._orders, order)
            self._orders.insert(place, order)
            self.reports.insert(place, report)


class CallSite(NamedTuple):
    """Blocks and thread around the call that requested a report.

    It holds numbers instead of blocks: JAX caches lowered functions, which would keep the blocks alive.
    """

    blocks: tuple[int, ...]
    """Numbers of the open blocks around the call, the innermost first."""

    thread: int
    """Identifier of the thread."""


_open: dict[int, Collector] = {}
"""Open blocks by number, in the order in which they were opened."""
_around: ContextVar[tuple[int, ...]] = ContextVar("blocks_around", default=())


@contextlib.contextmanager
def collect_reports() -> Iterator[list[Report]]:
    """Collect reports in a list instead of printing them.

    The list is in program order: the report of a traced value is at the position where JAX traced the value,
    even though XLA chooses its sharding later. A report that arrives after the end of the block, for
    example because the function is lowered inside the block and compiled after it, is printed instead.
    Blocks can be nested; the innermost one collects. Each thread and each asyncio task has its own blocks.

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
        # Generators and tasks can close their blocks in any order.
        del _open[number]
        _around.set(_open_around())


def _open_around() -> tuple[int, ...]:
    return tuple(number for number in _around.get() if number in _open)


def call_site() -> CallSite:
    """Return the call site of the caller, for a report that is delivered later.

    JAX 0.10 partitions in a thread of XLA; the call site is then in the thread that waits for it.
    """
    thread = compiling_thread() if is_foreign_thread() else None
    return CallSite(_open_around(), thread or threading.get_ident())


def deliver(
    report: _R,
    show: Callable[[_R], None],
    order: Order | None = None,
    requested_at: CallSite | None = None,
) -> None:
    """Add a report to the innermost ``collect_reports`` block, or print it if there is none.

    Args:
        report: Report to deliver.
        show: Function that prints the report.
        order: Position in the order of the program; the current one when None.
        requested_at: Call site that requested the report, if it is delivered elsewhere.
    """
    blocks = _around.get()
    if requested_at is not None:
        blocks += requested_at.blocks
        if is_foreign_thread():
            # A thread of XLA (JAX 0.10) does not see the blocks of the thread that compiles.
            opened = reversed(_open.copy().items())
            blocks += tuple(number for number, block in opened if block.thread == requested_at.thread)
    target = next((block for block in map(_open.get, blocks) if block is not None), None)
    if target is None:
        show(report)
    else:
        number = next_number()
        target.add(report, order or (number, number))
