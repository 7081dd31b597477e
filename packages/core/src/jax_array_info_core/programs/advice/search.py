"""The search for changes that help: each is tried, and those that help are proved."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from ...base.quantities import counted, known_sum
from ...facts.reports.advice import AdviceReport, ProgramFigures, Remedy, finding_key
from ...facts.reports.collectives import because_words
from ...facts.reports.program import ProgramReport
from ..assertions import collective_words
from .candidates import Edit, SiteValue, edits_in_order, pointed_at, weights_of
from .judging import MOST_REMEDIES, MOST_TRADES, best_of, verdict

_LEAST_TRIES, _MOST_REASONS = 3, 5
_LEAST_SECONDS = 600.0
"""Time that the program as it is may take, whatever the budget."""
_LEVEL = 0.6
"""Time of a try as a part of that of the first compilation."""
_FOR_PROOFS = 3
"""Times that the first compilation took which are left for proofs."""


class TryFailedError(Exception):
    """A change that JAX or XLA refuses, or that cannot be written in the source."""


class TwinError(TryFailedError):
    """A change that gives the same program as one before, or as none."""


class TimeOverError(Exception):
    """The time for tries or proofs is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A program as it is."""

    report: ProgramReport
    """The report on it, with the reasons of its collectives."""

    tried_as: ProgramFigures
    """Its figures, compiled as a change is that is tried."""

    values: tuple[SiteValue, ...] = ()
    """The expressions of its source that can have a constraint."""

    seconds: float = 0.0
    """Time of its compilation."""

    has_places: bool = True
    """Whether its arguments and outputs can have other shardings."""

    has_outputs: bool = True
    """Whether its outputs can have other shardings, too."""

    caveats: tuple[str, ...] = ()
    """What cannot be changed, and why."""


class Engine(Protocol):
    """What applies changes to copies of a program, and compiles them."""

    def base(self, deadline: float) -> Base:
        """Return the program as it is.

        Args:
            deadline: When to stop waiting for it, on ``time.monotonic``.
        """

    def tried(self, edit: Edit, deadline: float) -> ProgramFigures:
        """Return the figures of the program with a change, compiled as fast as the backend can.

        Raises:
            TryFailedError: If it cannot be applied or compiled; ``TwinError`` if it is that of another.
            TimeOverError: If it takes longer than until the deadline, on ``time.monotonic``.
        """

    def proved(self, edit: Edit, deadline: float) -> Remedy:
        """Return a change as it is written, with the figures of both programs, compiled with all options.

        Raises:
            TryFailedError: If it cannot be applied where it is to be written.
            TimeOverError: If it takes longer than until the deadline.
        """


class _Tried(NamedTuple):
    edit: Edit
    figures: ProgramFigures


def advised(
    engine: Engine, budget: float, *, most: int | None = None, now: Callable[[], float] = time.monotonic
) -> AdviceReport:
    """Return the changes that help, from those that can be tried and proved within a time.

    Args:
        engine: What applies and compiles changes.
        budget: The time for tries and proofs, in seconds, without that of the program as it is. What has
            begun is ended after twice as long.
        most: Maximum number of changes that are tried; None for as many as there is time for.
        now: The clock.
    """
    start = now()
    base = engine.base(start + max(2 * budget, _LEAST_SECONDS))
    report = base.report
    advice = AdviceReport(
        name=report.name,
        origin=report.origin,
        mesh=report.mesh,
        device_count=report.device_count,
        platform=report.platform,
        topology=report.topology,
        base=figures_of(report),
        caveats=base.caveats,
    )
    took = now() - start
    hard = now() + 2 * budget
    weights = weights_of(report)
    edits = edits_in_order(report, base.values, weights, has_places=base.has_places)
    edits = [one for one in edits if base.has_outputs or not one.outputs]
    stop = now() + budget - min(_FOR_PROOFS * took, budget / 2)
    each = _LEVEL * base.seconds
    if reason := _reason(base, edits):
        return replace(advice, reason=reason, skipped=len(edits), seconds=now() - start)
    if reason := _short(each, int((stop - now()) / max(each, 1e-3))):
        reasons = tuple(map(collective_words, report.collectives[:_MOST_REASONS]))
        return replace(advice, reason=reason, reasons=reasons, skipped=len(edits), seconds=now() - start)
    found, failed, twins, count, message = [], 0, 0, 0, ""
    for edit in edits:
        if now() >= stop or (most is not None and count - twins >= most):
            break
        count += 1
        try:
            found.append(_Tried(edit, engine.tried(edit, hard)))
        except TwinError:
            twins += 1
        except TryFailedError as error:
            failed += 1
            message = str(error)
        except TimeOverError:
            count -= 1
            break
    proved = _proved(engine, base, found, lambda: hard - now(), hard)
    remedies = proved.remedies
    judged = [(verdict(one.before, one.after), one) for one in remedies]
    better, trades = ([one for word, one in judged if word == kind] for kind in ("better", "trade"))
    caveats = list(base.caveats)
    if failed and not found:
        caveats.append(f"Each of {counted(failed, 'change', 'changes')} failed, the last with {message}")
    if proved.late:
        may_help = counted(proved.late, "change", "changes")
        caveats.append(f"{may_help} that may help could not be proved in time: --budget")
    if proved.refused:
        may_help = counted(len(proved.refused), "change", "changes")
        problem = next(filter(None, proved.refused), "")
        caveats.append(f"{may_help} that may help could not be proved{problem and ': '}{problem}")
    return replace(
        advice,
        remedies=tuple(best_of(better, lambda one: one.after, MOST_REMEDIES)),
        trades=tuple(best_of(trades, lambda one: one.after, MOST_TRADES)),
        tried=len(found),
        failed=failed + len(proved.refused),
        unproved=proved.late + len(proved.refused),
        skipped=len(edits) - len(found) - failed,
        seconds=now() - start,
        caveats=tuple(caveats),
    )


def _reason(base: Base, edits: Sequence[Edit]) -> str | None:
    """Return why no change is tried; None if some are."""
    figures = figures_of(base.report)
    if base.report.mesh is None or base.report.device_count < 2:
        return "no change to try: the program runs on one device"
    if not base.report.is_known or figures.memory_nbytes is None:
        return "no change is tried: the compiled program is not known"
    if figures.sent_nbytes is None:
        return "no change is tried: the bytes that the program sends are unknown, so none can be compared"
    if figures.flops is None:
        return "no change is tried: the FLOPs of the program are unknown, so none can be compared"
    if not edits:
        return "no change to try: nothing that the program sends or holds can be sharded in another way"
    return None


def _short(seconds: float, possible: int) -> str | None:
    """Return that the time is too short for some tries; None if it is not.

    Args:
        seconds: The time that a try takes, about.
        possible: Number of tries for which there is time.
    """
    if possible >= _LEAST_TRIES:
        return None
    enough = math.ceil(2 * (_LEAST_TRIES + 1) * seconds)  # half of it may be for proofs
    return (
        f"no change is tried: one takes about {seconds:.1f} s to compile, and the budget is too short for"
        f" {_LEAST_TRIES}: give it {enough} s or more"
    )


class _Proofs(NamedTuple):
    remedies: list[Remedy]
    refused: list[str]
    """Why others failed, each in words."""
    late: int
    """Number of those for which there was no time."""


def _proved(
    engine: Engine, base: Base, found: Sequence[_Tried], left: Callable[[], float], deadline: float
) -> _Proofs:
    """Prove the best of the changes that were tried."""
    remedies: list[Remedy] = []
    refused: list[str] = []
    late = 0
    for kind, most in (("better", MOST_REMEDIES), ("trade", MOST_TRADES)):
        good = [one for one in found if verdict(base.tried_as, one.figures) == kind]
        for one in best_of(good, lambda each: each.figures, most):
            try:
                if left() <= 0:
                    raise TimeOverError
                remedies.append(engine.proved(one.edit, deadline))
            except TryFailedError as error:
                refused.append(str(error))
            except TimeOverError:
                late += 1
    return _Proofs(remedies, refused, late)


def because_of(report: ProgramReport, edit: Edit) -> str:
    """Return why the largest collective is needed that a change is about, in words; empty if unknown.

    Args:
        report: The program without the change.
        edit: The change.
    """
    about = []
    for one in report.collectives:
        lines, paths = pointed_at(one)
        at = edit.site is not None and (edit.site.file, edit.site.line) in lines
        if at or not paths.isdisjoint((*edit.arguments, *edit.outputs)):
            about.append(one)
    words = {because_words(one): one.total_nbytes or 0 for one in reversed(about)}
    return max(filter(None, words), key=words.__getitem__, default="")


def resolved_by(before: ProgramReport, after: ProgramReport) -> tuple[str, ...]:
    """Return the keys of the findings of a program that a changed one has no more."""
    left = {finding_key(one) for one in after.findings}
    return tuple(key for key in map(finding_key, before.findings) if key not in left)


def figures_of(report: ProgramReport) -> ProgramFigures:
    """Return the figures of a compiled program that changes are compared by."""
    memory = report.memory
    flops = known_sum((report.dot_flops, report.fft_flops))
    return ProgramFigures(
        sent_nbytes=report.sent_nbytes,
        memory_nbytes=None if memory is None else memory.needed_nbytes,
        temporary_nbytes=None if memory is None else memory.temporary_nbytes,
        flops=flops,
        xla_flops=report.xla_flops,
    )
