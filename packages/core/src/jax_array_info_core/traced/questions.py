"""Inspections of traced values: what was asked, and where it is answered while the program is compiled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .. import compat
from ..arrays.report import report_of_facts
from ..compat.array_facts import ArrayFacts, Knowledge
from ..compat.lowering import LoweringPlace
from ..delivery import CallSite, Order, deliver, next_number
from ..reports.array import ArrayReport, BatchAxes
from ..reports.unknown_reasons import IN_A_REDUCER, NOT_AVAILABLE, REMOVED
from .logs import log_problem
from .sharding_sources import from_compiler, still_unknown


@dataclass(eq=False)
class Question:
    """What was asked about a traced value; it holds no array and no tracer."""

    facts: ArrayFacts
    """What is known while tracing."""

    name: str | None
    show: Callable[[ArrayReport], None]
    number: int = field(default_factory=next_number)
    """Its place in the program."""

    home: LoweredModule | None = None
    """The lowered program that it was part of first."""

    def __repr__(self) -> str:
        """Return the name, as which the question stands in a printed jaxpr."""
        return repr(self.name)

    def answer(
        self,
        learn: Callable[[], Knowledge],
        order: Order | None = None,
        asked_in: CallSite | None = None,
    ) -> None:
        """Deliver the report; whatever goes wrong with that, the user's program goes on."""
        try:
            try:
                report = report_of_facts(self.facts, self.name, learn())
            except Exception:
                log_problem("what was learnt of a traced value could not be read")
                report = report_of_facts(self.facts, self.name, still_unknown(self.facts, NOT_AVAILABLE))
            deliver(report, self.show, order or (self.number, self.number), asked_in)
        except OSError as error:
            log_problem(f"a report could not be written: {error}", with_traceback=False)
        except Exception:
            log_problem("a report could not be shown")

    def stay_unknown(self, because: str) -> None:
        """Deliver the report of what is known while tracing, and why there is no more."""
        self.answer(lambda: still_unknown(self.facts, because))


class LoweredModule(compat.ModuleListener):
    """The questions in one lowered program, which keeps them alive."""

    def __init__(self) -> None:
        self.inspections: list[Inspection] = []
        self.answers: dict[tuple[Question, BatchAxes | None], set[str]] = defaultdict(set)
        """The answers that each question has had in this compilation."""
        self._number = next_number()

    def order(self, question: Question) -> Order:
        """Return the place of a question: where it was traced; now, where an older trace is lowered anew."""
        question.home = question.home or self
        return (question.number if question.home is self else self._number, question.number)

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
        self.answers.clear()


@dataclass(eq=False)
class Inspection:
    """One place in a lowered program where a question is answered."""

    module: LoweredModule
    question: Question
    batch: BatchAxes | None
    place: LoweringPlace
    order: Order
    asked_in: CallSite
    address: bytes | None = None
    """The address of XLA's call, None where it is not asked."""

    is_withdrawn: bool = False
    """Whether the call was taken out, as XLA does not partition the function that it was in."""

    @property
    def asks_partitioner(self) -> bool:
        """Whether XLA's partitioner decides: not on one device, nor where all mesh axes are manual."""
        return self.place.device_count > 1 and not self.place.is_manual

    def partitioned(self, sharding: object) -> None:
        """Take XLA's answer."""
        text = str(sharding)
        self._answer(text, lambda: self._learn(text))

    def compiled(self) -> None:
        """Take that the program has been compiled."""
        if self.is_withdrawn:
            self._answer_unknown(IN_A_REDUCER)
        elif not self.asks_partitioner:
            self._answer("not partitioned", lambda: self._learn("{replicated}"))
        elif not self.module.answers[self.question, self.batch]:
            self._answer_unknown(REMOVED)

    def _answer_unknown(self, because: str) -> None:
        self._answer(because, lambda: still_unknown(self.question.facts, because))

    def _answer(self, answer: str, learn: Callable[[], Knowledge]) -> None:
        """Answer the question, unless this compilation has given the same answer.

        It comes again where a function is called again, or computed again for its gradient.
        """
        answers = self.module.answers[self.question, self.batch]
        if answer not in answers:
            answers.add(answer)
            self.question.answer(learn, self.order, self.asked_in)

    def _learn(self, sharding: str) -> Knowledge:
        return from_compiler(self.question.facts, sharding, self.batch, self.place, self.module)
