"""Sharding inspections in lowered programs, and the pending reports that they resolve."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .. import compat
from ..arrays.report import report_of_facts
from ..compat.array_facts import ArrayFacts, KnownSharding
from ..compat.lowering import LoweringPlace
from ..delivery import CallSite, Order, deliver, next_number
from ..reports.array import ArrayReport, BatchAxes
from ..reports.unknown_reasons import IN_A_REDUCER, NOT_AVAILABLE, REMOVED
from .logs import log_problem
from .sharding_sources import from_compiler, unresolved


@dataclass(eq=False)
class PendingReport:
    """The report of a traced value until its sharding is known. It refers to no array and no tracer."""

    facts: ArrayFacts
    """The facts known while tracing."""

    name: str | None
    show: Callable[[ArrayReport], None]
    number: int = field(default_factory=next_number)
    """Position in the program."""

    first_module: LoweredModule | None = None
    """The first lowered program that inspects the value."""

    def __repr__(self) -> str:
        """Return the name, the parameter's text in a printed jaxpr."""
        return repr(self.name)

    def resolve(
        self,
        read_sharding: Callable[[], KnownSharding],
        order: Order | None = None,
        site: CallSite | None = None,
    ) -> None:
        """Deliver the report. Errors are logged, and the user's program continues."""
        try:
            try:
                report = report_of_facts(self.facts, self.name, read_sharding())
            except Exception:
                log_problem("the sharding of a traced value could not be read")
                report = report_of_facts(self.facts, self.name, unresolved(self.facts, NOT_AVAILABLE))
            deliver(report, self.show, order or (self.number, self.number), site)
        except OSError as error:
            log_problem(f"a report could not be written: {error}", with_traceback=False)
        except Exception:
            log_problem("a report could not be shown")

    def resolve_unknown(self, reason: str) -> None:
        """Deliver the facts known while tracing, with the reason for an unknown sharding."""
        self.resolve(lambda: unresolved(self.facts, reason))


class LoweredModule(compat.ModuleListener):
    """The inspections in one lowered program, which keeps them alive."""

    def __init__(self) -> None:
        self.inspections: list[Inspection] = []
        self.results: dict[tuple[PendingReport, BatchAxes | None], set[str]] = defaultdict(set)
        """The results delivered for each pending report in the current compilation."""
        self._number = next_number()

    def order(self, pending: PendingReport) -> Order:
        """Return a report's position in the program: its trace, or this lowering if JAX reuses the trace."""
        pending.first_module = pending.first_module or self
        return (pending.number if pending.first_module is self else self._number, pending.number)

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
        """Resolve the remaining reports after a successful compilation, none after a failed one."""
        for inspection in self.inspections:
            if succeeded:
                inspection.compiled()
        # The next compilation reports again, even if its results are the same.
        self.results.clear()


@dataclass(eq=False)
class Inspection:
    """One inspection of a value in a lowered program."""

    module: LoweredModule
    pending: PendingReport
    batch: BatchAxes | None
    place: LoweringPlace
    order: Order
    site: CallSite
    address: bytes | None = None
    """Address of XLA's inspection call; None if there is no call."""

    is_stripped: bool = False
    """Whether the call was removed, since XLA does not partition the function around it."""

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
        elif not self.module.results[self.pending, self.batch]:
            self._resolve_unknown(REMOVED)

    def _resolve_unknown(self, reason: str) -> None:
        self._resolve(reason, lambda: unresolved(self.pending.facts, reason))

    def _resolve(self, result: str, read_sharding: Callable[[], KnownSharding]) -> None:
        """Resolve the report, unless this compilation has already had the same result.

        A value has several inspections if its function is called again or rematerialized.
        """
        results = self.module.results[self.pending, self.batch]
        if result not in results:
            results.add(result)
            self.pending.resolve(read_sharding, self.order, self.site)

    def _read(self, sharding: str) -> KnownSharding:
        return from_compiler(self.pending.facts, sharding, self.batch, self.place, self.module)
