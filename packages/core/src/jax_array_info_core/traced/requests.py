"""What was asked about traced values, and the answers that come while their program is compiled."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from .. import compat
from ..arrays.report import IN_A_REDUCER
from ..compat.lowering import LoweringPlace
from ..delivery import CallSite, Order, call_site, deliver, next_number
from ..layouts.xla import XlaSharding, parse_xla_sharding
from ..reports.array import ArrayReport, BatchAxes
from . import complete
from .logs import log_problem

REMOVED = "the compiler removed it"
NO_ANSWER = "this version of jax does not tell"


class Question:
    """What was asked about a traced value; it holds no array and no tracer."""

    def __init__(
        self, report: ArrayReport, dtype: Any, show: Callable[[ArrayReport], None], number: int
    ) -> None:
        self.report = report
        """What is known while tracing."""
        self.dtype = dtype
        """The value's dtype."""
        self.number = number
        """Its place in the program."""
        self.home: LoweredModule | None = None
        """The lowered program that it was part of first."""
        self._show = show

    def __repr__(self) -> str:
        """Return the name, as which the question stands in a printed jaxpr."""
        return repr(self.report.name)

    def answer(
        self,
        make: Callable[[], ArrayReport],
        order: Order | None = None,
        asked_in: CallSite | None = None,
    ) -> None:
        """Deliver a report; whatever goes wrong with that, the user's program goes on."""
        try:
            try:
                report = make()
            except Exception:
                log_problem("what was learnt of a traced value could not be read")
                report = self.unknown(NO_ANSWER)
            deliver(report, self._show, order or (self.number, self.number), asked_in)
        except OSError as error:
            log_problem(f"a report could not be written: {error}", with_traceback=False)
        except Exception:
            log_problem("a report could not be shown")

    def unknown(self, because: str) -> ArrayReport:
        """Return what is known while tracing, and why there is no more."""
        if self.report.source != "unknown":
            return self.report
        return dataclasses.replace(self.report, unknown_because=because)


class LoweredModule(compat.ModuleListener):
    """The questions in one lowered program, which keeps them alive."""

    def __init__(self) -> None:
        self.inspections: list[Inspection] = []
        self._said: set[tuple[Question, BatchAxes | None, str]] = set()
        self._number: int | None = None

    def order(self, question: Question) -> Order:
        """Return the place of a question: where it was traced; now, where an older trace is lowered anew."""
        question.home = question.home or self
        if question.home is self:
            return (question.number, question.number)
        if self._number is None:
            self._number = next_number()
        return (self._number, question.number)

    def lowered(self, module: Any) -> None:
        """Take out of the program what XLA would not answer, now that all of it is there."""
        if not any(inspection.address for inspection in self.inspections):
            return
        try:
            withdrawn = compat.withdraw_inspections(module)
        except Exception:
            # As in primitives.py: whatever a version of jax does otherwise, the program is compiled.
            log_problem("a lowered program could not be read")
            return
        for inspection in self.inspections:
            inspection.is_withdrawn = inspection.address in withdrawn

    def compiled(self, succeeded: bool) -> None:
        """Say what is still to be said when the program has been compiled, nothing when that failed."""
        for inspection in self.inspections:
            if succeeded:
                inspection.compiled()
        # The next compilation may have other answers, or the same.
        self._said.clear()

    def is_new(self, question: Question, batch: BatchAxes | None, answer: str) -> bool:
        """Take note of an answer; return whether the question has had it already in this compilation.

        It comes again where a function is called again, or computed again for its gradient.
        """
        known = (question, batch, answer) in self._said
        self._said.add((question, batch, answer))
        return not known

    def has_answered(self, question: Question, batch: BatchAxes | None) -> bool:
        """Return whether a question has had any answer in this compilation."""
        return any(said[:2] == (question, batch) for said in self._said)


class Inspection:
    """One place in a lowered program where a question is answered."""

    def __init__(
        self, module: LoweredModule, question: Question, batch: BatchAxes | None, place: LoweringPlace
    ) -> None:
        self._module = module
        self._question = question
        self._batch = batch
        self._place = place
        self._order = module.order(question)
        self._asked_in = call_site()
        self.address: bytes | None = None
        """The address of XLA's call, None where it is not asked."""
        self.is_withdrawn = False
        """Whether the call was taken out, as XLA does not partition the function that it was in."""

    @property
    def asks_partitioner(self) -> bool:
        """Whether XLA's partitioner decides: not on one device, nor where all mesh axes are manual."""
        return self._place.device_count > 1 and not self._place.is_manual

    def partitioned(self, sharding: object) -> None:
        """Take XLA's answer."""
        text = str(sharding)
        self._answer(text, lambda: self._report(parse_xla_sharding(text)))

    def compiled(self) -> None:
        """Take that the program has been compiled."""
        if self.is_withdrawn:
            self._answer(IN_A_REDUCER, lambda: self._question.unknown(IN_A_REDUCER))
        elif not self.asks_partitioner:
            self._answer("not partitioned", lambda: self._report(XlaSharding("replicated")))
        elif not self._module.has_answered(self._question, self._batch):
            self._answer(REMOVED, lambda: self._question.unknown(REMOVED))

    def _answer(self, answer: str, make: Callable[[], ArrayReport]) -> None:
        if self._module.is_new(self._question, self._batch, answer):
            self._question.answer(make, self._order, self._asked_in)

    def _report(self, sharding: XlaSharding) -> ArrayReport:
        question = self._question
        if self._place.is_manual:
            return complete.from_shard_map(question.report, self._place)
        compilation = compat.compilation_of(self._module)
        return complete.from_compiler(
            question.report, self._batch, self._place, compilation, sharding, question.dtype
        )
