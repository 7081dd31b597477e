"""Sharding inspections in lowered programs, and the pending reports that they resolve."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from .. import compat
from ..arrays.report import report_of_facts
from ..compat.jax_stack import LoweringPlace
from ..compat.values import ArrayFacts, KnownSharding
from ..delivery import CallSite, Order, deliver, next_number
from ..reports import Report
from ..reports.array import ArrayReport, BatchAxes
from ..reports.unknown_reasons import IN_A_REDUCER, NOT_AVAILABLE, REMOVED
from .logs import log_failed_delivery, log_problem
from .repeats import Call, Repeats, Show
from .sharding_sources import from_compiler, unresolved

if TYPE_CHECKING:
    from .groups import MemberInspection, PendingGroup

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


class LoweredModule(compat.ModuleListener):
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
            stripped = compat.strip_unpartitioned_inspections(module)
        except Exception:
            # As in primitives.py: an unsupported version of JAX must not stop the compilation.
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
                inspection.found.clear()
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
        if repeats is None or not compat.compilations_are_heard():
            super()._deliver(read_sharding)
            return
        self.pending.resolve(read_sharding, self.order, self.site, repeats.add)
        repeats.resolved(self.pending)
