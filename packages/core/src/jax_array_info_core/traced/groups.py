"""Pending reports of several traced values that are delivered together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from ..compat.values import KnownSharding
from ..delivery import CallSite, Order
from ..reports.array import ArrayReport
from ..reports.unknown_reasons import NOT_COMPILED, REMOVED, TRANSPOSED, UNUSED
from .inspections import Inspection, PendingValue, Position

Deliver = Callable[[Callable[[], list[ArrayReport]], Order, CallSite | None], None]
"""A function that gets the reports on all values of a group and delivers them, without raising an error."""


class PendingGroup:
    """Several values until the shardings of all are known. The group refers to no array and no tracer.

    Each traced value has an inspection of its own, so JAX transforms and removes it as it would without the
    group. The group gathers the results: of a compiled program at the end of its compilation, and of values
    that JAX computes without compiling when the last one is computed.

    Args:
        count: Number of values.
        deliver: Function that delivers the reports on all values.
    """

    def __init__(self, count: int, deliver: Deliver) -> None:
        self.position = Position()
        self.known: dict[int, ArrayReport] = {}
        """Reports that are known while tracing, by the index of the value."""
        self.waiting: dict[int, PendingMember] = {}
        """The other values."""
        self._count = count
        self._deliver = deliver
        self._computed: dict[int, ArrayReport] = {}
        """Reports on values that JAX has computed since the last delivery."""
        self._is_tracing = True

    def traced(self, *, will_compile: bool) -> None:
        """Handle the end of the call that inspects the values."""
        self._is_tracing = False
        if not self.waiting:
            self.deliver({})
        elif not will_compile:
            # JAX caches the trace and may compile it later without running the Python function again.
            self.deliver({}, NOT_COMPILED)

    def computed(
        self,
        index: int,
        report: ArrayReport,
        order: Order | None = None,
        site: CallSite | None = None,
        *,
        is_last_known: bool = True,
    ) -> None:
        """Handle a value that JAX computes or transposes outside a compiled program.

        Args:
            index: Index of the value.
            report: Report on the value.
            order: Position in the program; the position of the trace when None.
            site: Call site that requested the report, if it is delivered elsewhere.
            is_last_known: Whether the values come in their order, or in reverse if they are transposed. The
                last one then ends the reports, even if JAX has removed others.
        """
        if self._is_tracing:
            self.known[index] = report
            self.waiting.pop(index, None)
        if index not in self.waiting:
            return
        if index in self._computed:
            self._deliver_computed(order, site)
        self._computed[index] = report
        last = min(self.waiting) if report.unknown_because == TRANSPOSED else max(self.waiting)
        if len(self._computed) == len(self.waiting) or (is_last_known and index == last):
            self._deliver_computed(order, site)

    def _deliver_computed(self, order: Order | None, site: CallSite | None) -> None:
        computed, self._computed = self._computed, {}
        self.deliver(computed, order=order, site=site)

    def compiled(self, calls: Sequence[Sequence[MemberInspection]]) -> None:
        """Handle the end of a compilation, with the inspections in each call of the traced function."""
        results = _distinct(chain.from_iterable(map(_copies, calls)))
        if self._is_tracing:
            # Up to JAX 0.6, shard_map without jit compiles each operation separately.
            for found, _ in results:
                for index, result in found.items():
                    self.computed(index, result.report)
            return
        outside, self._computed = self._computed, {}
        for found, first in results:
            inside = {index: result.report for index, result in found.items()}
            self.deliver({**outside, **inside}, order=first.order, site=first.site)

    def deliver(
        self,
        found: Mapping[int, ArrayReport],
        missing: str = UNUSED,
        order: Order | None = None,
        site: CallSite | None = None,
    ) -> None:
        """Deliver the reports on all values.

        Args:
            found: Reports by index, in addition to those known while tracing.
            missing: Reason why the sharding of the other values is unknown.
            order: Position in the program; the position of the trace when None.
            site: Call site that requested the reports, if they are delivered elsewhere.
        """

        def reports() -> list[ArrayReport]:
            unknown = {index: member.report_unknown(missing) for index, member in self.waiting.items()}
            by_index = {**unknown, **self.known, **found}
            return [by_index[index] for index in range(self._count)]

        self._deliver(reports, order or self.position.traced, site)


@dataclass(eq=False)
class PendingMember(PendingValue):
    """A value of a group."""

    group: PendingGroup
    index: int
    """Index of the value in the group."""

    def resolve(
        self,
        read_sharding: Callable[[], KnownSharding],
        order: Order | None = None,
        site: CallSite | None = None,
    ) -> None:
        """Pass the report to the group."""
        # With a call site, XLA calls back in any order.
        report = self.report(read_sharding)
        self.group.computed(self.index, report, order, site, is_last_known=site is None)

    def inspection(self, *where: Any) -> Inspection:
        """Return an inspection of the value in a lowered program."""
        return MemberInspection(self, *where)


class _Result(NamedTuple):
    """The sharding of one value in a compiled program."""

    key: Hashable
    """Identifies the sharding; None if XLA removed the value."""

    report: ArrayReport


@dataclass(eq=False)
class MemberInspection(Inspection):
    """One inspection of a value of a group."""

    pending: PendingMember
    found: list[_Result] = field(default_factory=list)
    """The results of the current compilation: one for each copy of the inspection that XLA makes."""

    is_in_program: bool = False
    """Whether the inspection is part of a program whose compilation has not ended."""

    def join(self) -> None:
        """Add the inspection to its program: to the current call, unless it has later values."""
        super().join()
        self.is_in_program = True
        calls = self.module.calls[self.pending.group]
        if not calls or calls[-1][-1].pending.index >= self.pending.index:
            calls.append([])
        calls[-1].append(self)

    def _has_result(self) -> bool:
        return bool(self.found)

    def _resolve(self, result: str, read_sharding: Callable[[], KnownSharding]) -> None:
        report = self.pending.report(read_sharding)
        if self.is_in_program:
            key = None if result == REMOVED else (result, self.batch)
            self.found.append(_Result(key, report))
        else:
            self.pending.group.computed(self.pending.index, report, self.order, self.site)


_Results = tuple[dict[int, _Result], MemberInspection]
"""Results by index of the value, and the first of their inspections."""


def _copies(call: Sequence[MemberInspection]) -> Iterator[_Results]:
    """Yield the results of a call: several if XLA copies it, as when it inlines a function."""
    for copy in range(max(len(inspection.found) for inspection in call)):
        results = {
            inspection.pending.index: inspection.found[min(copy, len(inspection.found) - 1)]
            for inspection in call
            if inspection.found
        }
        yield results, call[0]


def _distinct(calls: Iterable[_Results]) -> list[_Results]:
    """Return the results without those that others include, as those of rematerialized values."""
    distinct: list[_Results] = []
    for results, first in calls:
        if not any(_includes(other, results) for other, _ in distinct):
            distinct = [call for call in distinct if not _includes(results, call[0])]
            distinct.append((results, first))
    return distinct


def _includes(results: Mapping[int, _Result], others: Mapping[int, _Result]) -> bool:
    """Return whether some results include all others, except those of removed values."""
    return all(
        index in results and results[index].key == other.key
        for index, other in others.items()
        if other.key is not None
    )
