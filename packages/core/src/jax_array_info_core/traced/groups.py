"""Pending reports of several traced values that are delivered together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from ..compat.array_facts import KnownSharding
from ..delivery import CallSite, Order
from ..reports.array import ArrayReport
from ..reports.unknown_reasons import NOT_COMPILED, REMOVED, TRANSPOSED, UNUSED
from .inspections import Inspection, PendingValue, Position

Deliver = Callable[[list[ArrayReport], Order, CallSite | None], None]
"""A function that delivers the reports on all values of a group."""


class PendingGroup:
    """Several values until the shardings of all are known. The group refers to no array and no tracer.

    Each traced value has an inspection of its own, so JAX transforms and removes it as it would without the
    group. The group gathers the results: of a compiled program at the end of its compilation, and of values
    that JAX computes without compiling when the last one is computed.

    Args:
        reports: The report on each value that is known while tracing, None for the other values.
        deliver: Function that delivers the reports on all values.
    """

    def __init__(self, reports: Iterable[ArrayReport | None], deliver: Deliver) -> None:
        self.position = Position()
        self._reports = list(reports)
        self._deliver = deliver
        self._waiting: dict[int, PendingMember] = {}
        self._computed: dict[int, ArrayReport] = {}
        """Reports on values that JAX has computed since the last delivery."""
        self._is_tracing = True

    def add(self, member: PendingMember) -> None:
        """Add a value whose sharding is not known yet. The values are added in the order of their indices."""
        self._waiting[member.index] = member

    def traced(self, *, will_compile: bool) -> None:
        """Handle the end of the call that inspects the values."""
        self._is_tracing = False
        self._waiting = {
            index: member for index, member in self._waiting.items() if self._reports[index] is None
        }
        if not self._waiting:
            self.deliver({})
        elif not will_compile:
            # JAX caches the trace and may compile it later without running the Python function again.
            self.deliver({}, NOT_COMPILED)

    def computed(self, index: int, report: ArrayReport, site: CallSite | None = None) -> None:
        """Handle a value that JAX computes or transposes outside a compiled program.

        JAX computes the values in their order, and transposes them in reverse. With a ``site``, XLA calls
        back, in any order.
        """
        if self._is_tracing:
            self._reports[index] = report
        if index not in self._waiting or self._is_tracing:
            return
        if index in self._computed:
            self._deliver_computed(site)
        self._computed[index] = report
        last = min(self._waiting) if report.unknown_because == TRANSPOSED else max(self._waiting)
        if len(self._computed) == len(self._waiting) or (index == last and site is None):
            self._deliver_computed(site)

    def _deliver_computed(self, site: CallSite | None) -> None:
        computed, self._computed = self._computed, {}
        self.deliver(computed, site=site)

    def compiled(self, calls: Sequence[Sequence[MemberInspection]]) -> None:
        """Handle the end of a compilation, with the inspections in each call of the traced function."""
        if self._is_tracing:
            # Up to JAX 0.6, shard_map without jit compiles each operation separately.
            for inspection in chain.from_iterable(calls):
                self._reports[inspection.pending.index] = inspection.found[-1].report
            return
        outside, self._computed = self._computed, {}
        for results, first in _distinct(chain.from_iterable(map(_copies, calls))):
            inside = {index: result.report for index, result in results.items()}
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
        reports = [
            found.get(index) or report or self._waiting[index].report_unknown(missing)
            for index, report in enumerate(self._reports)
        ]
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
        self.group.computed(self.index, self.report(read_sharding), site)

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
            self.pending.group.computed(self.pending.index, report)


_Results = tuple[dict[int, _Result], MemberInspection]
"""Results by index of the value, and the first of their inspections."""


def _copies(call: Sequence[MemberInspection]) -> Iterator[_Results]:
    """Yield the results of a call: several if XLA copies it, as when it inlines a function."""
    for copy in range(max(len(inspection.found) for inspection in call)):
        results = {
            inspection.pending.index: inspection.found[min(copy, len(inspection.found) - 1)]
            for inspection in call
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
