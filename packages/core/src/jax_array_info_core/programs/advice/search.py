"""The search for changes that help: each is tried, and those that help are proved."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from ...base.quantities import counted
from ...facts.reports.advice import AdviceReport, ProgramFigures, Remedy
from ...facts.reports.left_out import ALL, LeftOut, Parts
from ...facts.reports.program import ProgramReport
from ..assertions import collective_words
from .edits import Candidate, Ranked
from .judging import DEFAULT, MOST_REMEDIES, MOST_TRADES, Scale, figures_of

NEEDED = ("collectives", "memory", "FLOPs", ALL)
"""Parts of the report on a program that have the figures by which changes are compared."""
_LEAST_TRIES, _MOST_REASONS = 3, 5
_FIRST, _FURTHER = 12, 5
"""Number of candidates that are tried before the best stays, and of those on top of it."""
_MOST_CHANGES = 3
"""Number of changes that stay, each on top of the others."""
_MOST_FAILS = 3
"""Number of proofs that can fail before others of the kind are not proved."""
_MOST_ENDS = 2
"""Number of times that the candidates of a rule can end the process."""
_LEAST_SECONDS = 600.0
"""Time that the program as it is may take, whatever the budget."""
_FOR_PROOFS = 2
"""Times that the first answer took which are left for proofs."""


class TryFailedError(Exception):
    """A change that JAX or XLA refuses, or that cannot be written in the source."""


class EndedError(TryFailedError):
    """The process ended while it was asked: its memory was full, or a check in C++ failed."""


class TimeOverError(Exception):
    """The time for tries or proofs is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A program as it is."""

    report: ProgramReport
    """The report on it, with the reasons of its collectives."""

    tried_as: ProgramFigures
    """Its figures, compiled as a change is that is tried."""

    seconds: float = 0.0
    """Time of a compilation as for a change that is tried."""

    caveats: tuple[str, ...] = ()
    """What cannot be changed, and why."""


class Engine(Protocol):
    """What applies changes to copies of a program, and compiles them."""

    def base(self, deadline: float) -> Base:
        """Return the program as it is.

        Args:
            deadline: When to stop waiting for it, on ``time.monotonic``.
        """

    def candidates(self, applied: Candidate | None, deadline: float) -> Ranked:
        """Return the candidates on top of one that is applied, each with its changes, best first.

        Raises:
            EndedError: If the process ends.
            TimeOverError: If it takes longer than until the deadline, on ``time.monotonic``.
        """

    def tried(self, candidate: Candidate, deadline: float) -> ProgramFigures:
        """Return the figures of the program with a candidate, compiled as fast as the backend can.

        Raises:
            TryFailedError: If it cannot be applied or compiled.
            TimeOverError: If it takes longer than until the deadline.
        """

    def proved(self, candidate: Candidate, figures: ProgramFigures, deadline: float) -> Remedy:
        """Return a candidate as it is written, with the figures of both programs, compiled with all options.

        Raises:
            TryFailedError: If it cannot be applied where it is to be written.
            TimeOverError: If it takes longer than until the deadline.
        """


class _Tried(NamedTuple):
    candidate: Candidate
    figures: ProgramFigures


class _Proofs(NamedTuple):
    remedies: list[Remedy]
    refused: list[str]
    """Why others failed, each in words."""
    late: int
    """Number of those for which there was no time."""


def advised(
    engine: Engine,
    budget: float,
    *,
    scale: Scale = DEFAULT,
    on_first: Callable[[Remedy], None] | None = None,
    now: Callable[[], float] = time.monotonic,
) -> AdviceReport:
    """Return the changes that help, from those that can be tried and proved within a time.

    Args:
        engine: What applies and compiles changes.
        budget: The time for tries and proofs, in seconds, without that of the program as it is.
        scale: What figures are worth.
        on_first: The function that is called with the first change that is proved, while others are not.
        now: The clock.
    """
    start = now()
    base = engine.base(start + max(2 * budget, _LEAST_SECONDS))
    compiled = now()
    deadline = compiled + budget
    stop = deadline - min(_FOR_PROOFS * (compiled - start), budget / 2)
    report = base.report
    parts = Parts([part for part in report.left_out if part.part in NEEDED])
    advice = AdviceReport(
        name=report.name,
        origin=report.origin,
        mesh=report.mesh,
        device_count=report.device_count,
        platform=report.platform,
        topology=report.topology,
        base=figures_of(report),
        balance=scale.balance,
        chip=scale.chip,
        min_nbytes=scale.min_nbytes,
        reason=_reason(base, parts),
        caveats=(*base.caveats, *(part.words for part in parts.left_out)),
        left_out=parts.left_out,
    )
    if advice.reason is None and (reason := _short(base.seconds, stop - now())):
        reasons = tuple(map(collective_words, (report.collectives or ())[:_MOST_REASONS]))
        advice = replace(advice, reason=reason, reasons=reasons)
    if advice.reason is None:
        search = _Search(engine, base, scale, lambda: now() < stop, stop)
        search.run()
        left_out = (*advice.left_out, *search.left_out)
        words = (part.words for part in search.left_out)
        advice = replace(advice, reason=search.reason, left_out=left_out, caveats=(*advice.caveats, *words))
    if advice.reason is not None:
        return replace(advice, seconds=now() - start)
    proofs = _proved(engine, base, search.measured, scale, lambda: now() < deadline, deadline, on_first)
    better, trades = (
        [remedy for remedy in proofs.remedies if scale.verdict(remedy.before, remedy.after) == kind]
        for kind in ("better", "trade")
    )
    return replace(
        advice,
        remedies=tuple(scale.best_of(advice.base, better, lambda remedy: remedy.after, MOST_REMEDIES)),
        trades=tuple(scale.best_of(advice.base, trades, lambda remedy: remedy.after, MOST_TRADES)),
        candidates=search.tried + len(search.refused) + search.untried,
        tried=search.tried,
        failed=len(search.refused) + len(proofs.refused),
        unproved=proofs.late + len(proofs.refused),
        untried=search.untried,
        is_ranked=search.is_ranked,
        seconds=now() - start,
        caveats=(*advice.caveats, *_failures(search, proofs)),
    )


class _Search:
    """The tries: the first candidates, then others on top of the best; all of them if none helps.

    Args:
        engine: What applies and compiles changes.
        base: The program as it is.
        scale: What figures are worth.
        has_time: Function that returns whether another try can begin.
        deadline: When a try under way is ended.
    """

    def __init__(
        self, engine: Engine, base: Base, scale: Scale, has_time: Callable[[], bool], deadline: float
    ) -> None:
        self._engine = engine
        self._base = base
        self._scale = scale
        self._has_time = has_time
        self._deadline = deadline
        self._ends = Counter[str]()
        self.tried = 0
        self.measured: list[_Tried] = []
        """What may be proved: the first ones, and others that are better than what they are on top of."""
        self.refused: list[str] = []
        """Why others failed, each in words."""
        self.untried = 0
        """Number of those for which there was no time, or that would end the process, too."""
        self.is_ranked = True
        self.left_out: dict[LeftOut, None] = {}
        """Rules that failed."""
        self.reason: str | None = None
        """Why there is none to try."""

    def run(self) -> None:
        """Try candidates while there is time."""
        left = self._candidates(None)
        if not left:
            self.reason = f"no change is tried: {self.refused[0]}" if self.refused else _NOTHING
            return
        first, left = left[:_FIRST], left[_FIRST:]
        best = self._best_of(first, self._base.tried_as)
        while best is None and left and self._has_time():
            best, left = self._best_of(left[:_FIRST], self._base.tried_as), left[_FIRST:]
        self.untried += len(left)
        for _ in range(_MOST_CHANGES - 1):
            if best is None or not self._has_time():
                break
            best = self._best_of(self._candidates(best.candidate)[:_FURTHER], best.figures)

    def _candidates(self, applied: Candidate | None) -> list[Candidate]:
        """Return the candidates on top of one; none if there is no answer in time."""
        try:
            ranked = self._engine.candidates(applied, self._deadline)
        except (TryFailedError, TimeOverError) as error:
            self.refused.append(str(error) or _NOT_RANKED)
            return []
        self.is_ranked &= ranked.by_propagation
        self.left_out |= dict.fromkeys(ranked.left_out)
        return [*ranked.candidates]

    def _best_of(self, candidates: Sequence[Candidate], before: ProgramFigures) -> _Tried | None:
        """Try candidates, and return the best that is better than the program before; None if none is."""
        better = []
        for number, candidate in enumerate(candidates):
            if not self._has_time():
                self.untried += len(candidates) - number
                break
            if self._ends[candidate.rule] >= _MOST_ENDS:
                self.untried += 1
                continue
            try:
                tried = _Tried(candidate, self._engine.tried(candidate, self._deadline))
            except TimeOverError:
                self.untried += len(candidates) - number
                break
            except TryFailedError as error:
                self.refused.append(str(error))
                self._ends[candidate.rule] += isinstance(error, EndedError)
                continue
            self.tried += 1
            is_better = self._scale.verdict(before, tried.figures) == "better"
            if is_better or before is self._base.tried_as:  # what is on top of another one has to be better
                self.measured.append(tried)
            better += [tried] * is_better
        return next(iter(self._scale.best_of(before, better, lambda tried: tried.figures, 1)), None)


_NOT_RANKED = "the time was over before they were ranked: give it more with --budget"
_NOTHING = "no change to try: nothing that the program sends or holds can be sharded in another way"


def _reason(base: Base, parts: Parts) -> str | None:
    """Return why no change is tried; None if some are."""
    figures = figures_of(base.report)
    if parts.left_out and lacking(base.report):
        return f"no change is tried: {parts.left_out[0].words}"
    if base.report.mesh is None or base.report.device_count < 2:
        return "no change to try: the program runs on one device"
    if not base.report.is_known or figures.memory_nbytes is None:
        return "no change is tried: the compiled program is not known"
    if figures.sent_nbytes is None:
        return "no change is tried: the bytes that the program sends are unknown, so none can be compared"
    if figures.flops is None:
        return "no change is tried: the FLOPs of the program are unknown, so none can be compared"
    return None


def _short(seconds: float, available: float) -> str | None:
    """Return that the time is too short for some tries; None if it is not.

    Args:
        seconds: The time that a try takes, about.
        available: The time for tries, in seconds.
    """
    if int(available / max(seconds, 1e-3)) >= _LEAST_TRIES:
        return None
    enough = math.ceil(2 * (_LEAST_TRIES + 1) * seconds)  # half of it may be for proofs
    return (
        f"no change is tried: one takes about {seconds:.1f} s to compile, and the budget is too short for"
        f" {_LEAST_TRIES}: give it {enough} s or more"
    )


def _proved(
    engine: Engine,
    base: Base,
    tried: Sequence[_Tried],
    scale: Scale,
    has_time: Callable[[], bool],
    deadline: float,
    on_first: Callable[[Remedy], None] | None,
) -> _Proofs:
    """Prove the best of the changes that were tried; if one fails, another that is about as good."""
    remedies: list[Remedy] = []
    refused: list[str] = []
    late = 0
    for kind, most in (("better", MOST_REMEDIES), ("trade", MOST_TRADES)):
        left = [change for change in tried if scale.verdict(base.tried_as, change.figures) == kind]
        if kind == "trade":
            left = scale.gaining(left, [remedy.after for remedy in remedies], lambda change: change.figures)
        done, fails = list[_Tried](), 0
        while fails <= _MOST_FAILS:
            best = scale.best_of(base.tried_as, left, lambda change: change.figures, most)
            if not (best := [change for change in best if change not in done]):
                break
            try:
                if not has_time():
                    raise TimeOverError
                remedies.append(engine.proved(*best[0], deadline))
                done.append(best[0])
                if (
                    on_first is not None
                    and scale.verdict(remedies[-1].before, remedies[-1].after) == "better"
                ):
                    on_first(remedies[-1])
                    on_first = None
            except TryFailedError as error:
                refused.append(str(error))
                left.remove(best[0])
                fails += 1
            except TimeOverError:
                late += len(best)
                break
    return _Proofs(remedies, refused, late)


def _failures(search: _Search, proofs: _Proofs) -> Iterator[str]:
    """Yield the numbers of changes that failed or were not proved, with a reason."""
    if search.refused and not search.measured:
        changes = counted(len(search.refused), "change", "changes")
        yield f"Each of {changes} failed, the last with {search.refused[-1]}"
    if proofs.late:
        changes = counted(proofs.late, "change", "changes")
        yield f"{changes} that may help could not be proved in time: --budget"
    if proofs.refused:
        changes = counted(len(proofs.refused), "change", "changes")
        problem = next(filter(None, proofs.refused), "")
        yield f"{changes} that may help could not be proved{problem and ': '}{problem}"


def resolved_by(before: ProgramReport, after: ProgramReport) -> tuple[str, ...]:
    """Return the codes and names of the findings of a program that a changed one no longer has.

    A program has one finding of a code, about all of its values: fewer values do not resolve it.
    """
    present = {finding.code for finding in after.findings or ()}
    return tuple(str(finding.full_code) for finding in before.findings or () if finding.code not in present)


def lacking(report: ProgramReport) -> str | None:
    """Return which part with figures of changes is left out of a report, in words; None if none is."""
    return next(filter(None, map(report.lacks, NEEDED)), None)
