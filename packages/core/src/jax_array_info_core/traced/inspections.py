"""Inspections of traced values: what was asked, and where it is answered while the program is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import compat
from ..arrays.report import report_of_facts
from ..compat.array_facts import ArrayFacts, Knowledge
from ..compat.lowering import LoweringPlace
from ..compat.tracers import IN_A_REDUCER
from ..delivery import Asked, Order, asked_here, deliver, next_number
from ..reports.array import ArrayReport, BatchAxes
from ..text import plain_text
from .logs import log_problem
from .sharding_sources import NO_ANSWER, from_compiler, still_unknown

REMOVED = "the compiler removed it"


class Question:
    """What was asked about a traced value; it holds no array and no tracer."""

    def __init__(self, facts: ArrayFacts, name: str | None, show: Callable[[ArrayReport], None]) -> None:
        self.facts = facts
        """What is known while tracing."""
        self.number = next_number()
        """Its place in the program."""
        self.home: LoweredModule | None = None
        """The lowered program that it was part of first."""
        self._name = None if name is None else plain_text(name)
        self._show = show

    def __repr__(self) -> str:
        """Return the name, as which the question stands in a printed jaxpr."""
        return repr(self._name)

    def answer(
        self,
        learn: Callable[[], Knowledge],
        order: Order | None = None,
        asked_in: Asked | None = None,
    ) -> None:
        """Deliver the report; whatever goes wrong with that, the user's program goes on."""
        try:
            try:
                report = report_of_facts(self.facts, self._name, learn())
            except Exception:
                log_problem("what was learnt of a traced value could not be read")
                report = report_of_facts(self.facts, self._name, still_unknown(self.facts, NO_ANSWER))
            deliver(report, self._show, order or (self.number, self.number), asked_in)
        except OSError as error:
            log_problem(f"a report could not be written: {error}", with_traceback=False)
        except Exception:
            log_problem("a report could not be shown")

    def stay_unknown(self, because: str) -> None:
        """Deliver the report of what is known while tracing, and why there is no more."""
        self.answer(lambda: still_unknown(self.facts, because))


class LoweredModule:
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
        self._asked_in = asked_here()
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
        self._answer(text, lambda: self._learn(text))

    def compiled(self) -> None:
        """Take that the program has been compiled."""
        if self.is_withdrawn:
            self._answer(IN_A_REDUCER, lambda: still_unknown(self._question.facts, IN_A_REDUCER))
        elif not self.asks_partitioner:
            self._answer("not partitioned", lambda: self._learn("{replicated}"))
        elif not self._module.has_answered(self._question, self._batch):
            self._answer(REMOVED, lambda: still_unknown(self._question.facts, REMOVED))

    def _answer(self, answer: str, learn: Callable[[], Knowledge]) -> None:
        if self._module.is_new(self._question, self._batch, answer):
            self._question.answer(learn, self._order, self._asked_in)

    def _learn(self, sharding: str) -> Knowledge:
        return from_compiler(self._question.facts, sharding, self._batch, self._place, self._module)
