"""Sharding inspections in lowered programs, and the pending reports that they resolve."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from ...compat.compiled_calls import ModuleListener, compilations_are_heard
from ...compat.inspection import strip_unpartitioned_inspections
from ...compat.jax_stack import LoweringPlace
from ...compat.values import ArrayFacts, KnownSharding
from ...facts.reports import Report
from ...facts.reports.array import (
    IN_A_REDUCER,
    NOT_AVAILABLE,
    NOT_COMPILED,
    REMOVED,
    TRANSPOSED,
    UNUSED,
    ArrayReport,
    BatchAxes,
)
from ..array_report import report_of_facts
from ..delivery import CallSite, Order, deliver, next_number
from .sources import Call, Repeats, Show, from_compiler, log_failed_delivery, log_problem, unresolved

_R = TypeVar("_R", bound=Report)


@dataclass(eq=False)
class Position:
    """The position of a pending report in the order of the program."""

    number: int = field(default_factory=next_number)
    """Position while tracing."""

    first_module: LoweredModule | None = None
    """The first lowered program with an inspection for the report."""

    @property
    def traced(self) -> Order:
        """Sort key of a report that is delivered while tracing."""
        return self.number, self.number


@dataclass(eq=False)
class PendingValue(ABC):
    """The facts about a traced value until its sharding is known. They refer to no array and no tracer."""

    facts: ArrayFacts
    """The facts known while tracing."""

    name: str | None
    position: Position

    def __repr__(self) -> str:
        """Return the name, the parameter's text in a printed jaxpr."""
        return repr(self.name)

    @abstractmethod
    def resolve(
        self,
        read_sharding: Callable[[], KnownSharding],
        order: Order | None = None,
        site: CallSite | None = None,
    ) -> None:
        """Handle the sharding. Errors are logged, and the user's program continues."""

    def resolve_known(self) -> None:
        """Handle the sharding that is known while tracing."""
        self.resolve(lambda: self.facts.known)

    def resolve_unknown(self, reason: str) -> None:
        """Handle the reason for an unknown sharding."""
        self.resolve(lambda: unresolved(self.facts, reason))

    def report(self, read_sharding: Callable[[], KnownSharding]) -> ArrayReport:
        """Return the report on the value. If the sharding cannot be read, the error is logged."""
        try:
            return report_of_facts(self.facts, self.name, read_sharding())
        except Exception:
            log_problem("the sharding of a traced value could not be read")
            return self.report_unknown(NOT_AVAILABLE)

    def report_unknown(self, reason: str) -> ArrayReport:
        """Return the report with the facts known while tracing, and the reason for an unknown sharding."""
        return report_of_facts(self.facts, self.name, unresolved(self.facts, reason))

    @abstractmethod
    def inspection(self, *where: Any) -> Inspection:
        """Return an inspection of the value in a lowered program."""


@dataclass(eq=False)
class PendingReport(PendingValue):
    """A value with a report of its own."""

    call: Call

    def resolve(
        self,
        read_sharding: Callable[[], KnownSharding],
        order: Order | None = None,
        site: CallSite | None = None,
        show: Show | None = None,
    ) -> None:
        """Deliver the report, to a function other than its call's with ``show``."""
        show = show or self.call.show
        deliver_or_log(lambda: self.report(read_sharding), show, order or self.position.traced, site)

    def inspection(self, *where: Any) -> Inspection:
        """Return an inspection of the value in a lowered program."""
        return ReportInspection(self, *where)


def deliver_or_log(
    build: Callable[[], _R], show: Callable[[_R], None], order: Order, site: CallSite | None = None
) -> None:
    """Build a report and deliver it. Errors are logged, and the user's program continues."""
    with log_failed_delivery():
        deliver(build(), show, order, site)


class LoweredModule(ModuleListener):
    """The inspections in one lowered program, which keeps them alive."""

    def __init__(self) -> None:
        self.inspections: list[Inspection] = []
        self.results: dict[tuple[PendingValue, BatchAxes | None], set[str]] = defaultdict(set)
        """The results delivered for each pending report in the current compilation."""
        self.calls: dict[PendingGroup, list[list[MemberInspection]]] = defaultdict(list)
        """The inspections of each group of values, for each call of the function that inspects them."""
        self.repeats: dict[Call, Repeats] = {}
        """The panels of each call that inspects values."""
        self._number = next_number()

    def order(self, position: Position) -> Order:
        """Return a report's position in the program: its trace, or this lowering if JAX reuses the trace."""
        position.first_module = position.first_module or self
        return (position.number if position.first_module is self else self._number, position.number)

    def lowered(self, module: Any) -> None:
        """Strip the inspections that XLA would not partition, once the module is complete."""
        if not any(inspection.address for inspection in self.inspections):
            return
        try:
            stripped = strip_unpartitioned_inspections(module)
        except Exception:
            # As in traced_report.py: an unsupported version of JAX must not stop the compilation.
            log_problem("the lowered program could not be read")
            return
        for inspection in self.inspections:
            inspection.is_stripped = inspection.address in stripped

    def compiled(self, succeeded: bool) -> None:
        """Resolve the remaining reports after a successful compilation, none after a failed one.

        Panels that wait for equal ones are printed in both cases.
        """
        for inspection in self.inspections:
            if succeeded:
                inspection.compiled()
        for group, calls in self.calls.items():
            if succeeded:
                group.compiled(calls)
            for inspection in chain.from_iterable(calls):
                inspection.results.clear()
        for repeats in self.repeats.values():
            repeats.ended()
        # The next compilation reports again, even if its results are the same.
        self.results.clear()


@dataclass(eq=False)
class Inspection:
    """One inspection of a value in a lowered program."""

    pending: PendingValue
    module: LoweredModule
    batch: BatchAxes | None
    place: LoweringPlace
    order: Order
    site: CallSite
    address: bytes | None = None
    """Address of XLA's inspection call; None if there is no call."""

    is_stripped: bool = False
    """Whether the call was removed, since XLA does not partition the function around it."""

    def join(self) -> None:
        """Add the inspection to its program."""
        self.module.inspections.append(self)

    @property
    def needs_partitioner(self) -> bool:
        """Whether XLA's partitioner runs: on several devices, unless all mesh axes are manual."""
        return self.place.device_count > 1 and not self.place.is_manual

    def partitioned(self, sharding: object) -> None:
        """Handle XLA's callback with the sharding of the value."""
        text = str(sharding)
        self._resolve(text, lambda: self._read(text))

    def compiled(self) -> None:
        """Handle the end of the compilation."""
        if self.is_stripped:
            self._resolve_unknown(IN_A_REDUCER)
        elif not self.needs_partitioner:
            self._resolve("not partitioned", lambda: self._read("{replicated}"))
        elif not self._has_result():
            self._resolve_unknown(REMOVED)

    def _has_result(self) -> bool:
        return bool(self.module.results[self.pending, self.batch])

    def _resolve_unknown(self, reason: str) -> None:
        self._resolve(reason, lambda: unresolved(self.pending.facts, reason))

    def _resolve(self, result: str, read_sharding: Callable[[], KnownSharding]) -> None:
        """Resolve the report, unless this compilation has already had the same result.

        A value has several inspections if its function is called again or rematerialized.
        """
        results = self.module.results[self.pending, self.batch]
        if result not in results:
            results.add(result)
            self._deliver(read_sharding)

    def _deliver(self, read_sharding: Callable[[], KnownSharding]) -> None:
        self.pending.resolve(read_sharding, self.order, self.site)

    def _read(self, sharding: str) -> KnownSharding:
        return from_compiler(self.pending.facts, sharding, self.batch, self.place, self.module)


@dataclass(eq=False)
class ReportInspection(Inspection):
    """One inspection of a value with a report of its own."""

    pending: PendingReport
    repeats: Repeats | None = None
    """The panels of the same call; None if no end of a compilation follows."""

    def join(self) -> None:
        """Add the inspection to its program and its panel to those of its call."""
        super().join()
        call = self.pending.call
        self.repeats = self.module.repeats.setdefault(call, Repeats(call.show))
        self.repeats.values.add(self.pending)

    def _deliver(self, read_sharding: Callable[[], KnownSharding]) -> None:
        repeats = self.repeats
        if repeats is None or not compilations_are_heard():
            super()._deliver(read_sharding)
            return
        self.pending.resolve(read_sharding, self.order, self.site, repeats.add)
        repeats.resolved(self.pending)


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
            for members, _ in results:
                for index, result in members.items():
                    self.computed(index, result.report)
            return
        outside, self._computed = self._computed, {}
        for members, first in results:
            inside = {index: result.report for index, result in members.items()}
            self.deliver({**outside, **inside}, order=first.order, site=first.site)

    def deliver(
        self,
        inspected: Mapping[int, ArrayReport],
        missing: str = UNUSED,
        order: Order | None = None,
        site: CallSite | None = None,
    ) -> None:
        """Deliver the reports on all values.

        Args:
            inspected: Reports by index, in addition to those known while tracing.
            missing: Reason why the sharding of the other values is unknown.
            order: Position in the program; the position of the trace when None.
            site: Call site that requested the reports, if they are delivered elsewhere.
        """

        def reports() -> list[ArrayReport]:
            unknown = {index: member.report_unknown(missing) for index, member in self.waiting.items()}
            by_index = {**unknown, **self.known, **inspected}
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
        self.group.computed(self.index, self.report(read_sharding), order, site, is_last_known=site is None)

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
    results: list[_Result] = field(default_factory=list)
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
        return bool(self.results)

    def _resolve(self, result: str, read_sharding: Callable[[], KnownSharding]) -> None:
        report = self.pending.report(read_sharding)
        if self.is_in_program:
            self.results.append(_Result(None if result == REMOVED else (result, self.batch), report))
        else:
            self.pending.group.computed(self.pending.index, report, self.order, self.site)


_Results = tuple[dict[int, _Result], MemberInspection]
"""Results by index of the value, and the first of their inspections."""


def _copies(call: Sequence[MemberInspection]) -> Iterator[_Results]:
    """Yield the results of a call: several if XLA copies it, as when it inlines a function."""
    for copy in range(max(len(inspection.results) for inspection in call)):
        results = {
            inspection.pending.index: inspection.results[min(copy, len(inspection.results) - 1)]
            for inspection in call
            if inspection.results
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
