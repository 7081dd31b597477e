"""The search for changes that help: each is tried, and those that help are proved."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from ...base.quantities import counted, known_sum
from ...facts.reports.advice import AdviceReport, ProgramFigures, Remedy, RemedyKind
from ...facts.reports.collectives import because_words
from ...facts.reports.left_out import ALL, Parts
from ...facts.reports.program import ProgramReport
from ..assertions import collective_words
from .candidates import Edit, SiteValue, edits_in_order, pointed_at, weights_of
from .judging import MOST_REMEDIES, MOST_TRADES, best_of, verdict

NEEDED = ("collectives", "memory", "FLOPs", ALL)
"""Parts of the report on a program that have the figures by which changes are compared."""
_LEAST_TRIES, _MOST_REASONS = 3, 5
_MOST_ENDS = 3
"""Number of times that changes of a kind can end the process."""
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


class _Tries(NamedTuple):
    measured: list[_Tried]
    refused: list[str]
    """Why others failed, each in words."""
    untried: int
    """Number of those for which there was no time, or that would end the process, too."""


class _Proofs(NamedTuple):
    remedies: list[Remedy]
    refused: list[str]
    """Why others failed, each in words."""
    late: int
    """Number of those for which there was no time."""


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
    compiled = now()
    deadline = compiled + 2 * budget
    stop = compiled + budget - min(_FOR_PROOFS * (compiled - start), budget / 2)
    report = base.report
    parts = Parts([part for part in report.left_out if part.part in NEEDED])
    edits = edits_in_order(report, base.values, weights_of(report), has_places=base.has_places, parts=parts)
    edits = [edit for edit in edits if base.has_outputs or not edit.outputs]
    advice = AdviceReport(
        name=report.name,
        origin=report.origin,
        mesh=report.mesh,
        device_count=report.device_count,
        platform=report.platform,
        topology=report.topology,
        base=figures_of(report),
        reason=_reason(base, edits, parts),
        caveats=(*base.caveats, *(part.words for part in parts.left_out)),
        left_out=parts.left_out,
    )
    if advice.reason is None and (reason := _short(_LEVEL * base.seconds, stop - now())):
        reasons = tuple(map(collective_words, (report.collectives or ())[:_MOST_REASONS]))
        advice = replace(advice, reason=reason, reasons=reasons)
    if advice.reason is not None:
        return replace(advice, seconds=now() - start)
    tries = _tried(engine, edits, most, lambda: now() < stop, deadline)
    proofs = _proved(engine, base, tries.measured, lambda: now() < deadline, deadline)
    better, trades = (
        [remedy for remedy in proofs.remedies if verdict(remedy.before, remedy.after) == kind]
        for kind in ("better", "trade")
    )
    return replace(
        advice,
        remedies=tuple(best_of(better, lambda remedy: remedy.after, MOST_REMEDIES)),
        trades=tuple(best_of(trades, lambda remedy: remedy.after, MOST_TRADES)),
        tried=len(tries.measured),
        failed=len(tries.refused) + len(proofs.refused),
        unproved=proofs.late + len(proofs.refused),
        untried=tries.untried,
        seconds=now() - start,
        caveats=(*advice.caveats, *_failures(tries, proofs)),
    )


def _reason(base: Base, edits: Sequence[Edit], parts: Parts) -> str | None:
    """Return why no change is tried; None if some are."""
    figures = figures_of(base.report)
    if parts.left_out and (not edits or lacking(base.report)):
        return f"no change is tried: {parts.left_out[0].words}"
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


def _tried(
    engine: Engine, edits: Sequence[Edit], most: int | None, has_time: Callable[[], bool], deadline: float
) -> _Tries:
    """Measure changes while there is time, at most so many without those that are twins.

    A kind of change that has ended the process is tried after the others, and no more after some ends.
    """
    measured, refused, untried = list[_Tried](), list[str](), 0
    left, ends = [*edits], Counter[RemedyKind]()
    while left and has_time() and (most is None or len(measured) + len(refused) < most):
        edit = left.pop(0)
        try:
            measured.append(_Tried(edit, engine.tried(edit, deadline)))
        except TwinError:
            continue
        except TryFailedError as error:
            refused.append(str(error))
            ends[edit.kind] += isinstance(error, EndedError)
            if ends[edit.kind] > _MOST_ENDS:
                untried += sum(one.kind == edit.kind for one in left)
                left = [one for one in left if one.kind != edit.kind]
            left.sort(key=lambda one: ends[one.kind])
        except TimeOverError:
            untried += 1
            break
    return _Tries(measured, refused, untried + len(left))


def _proved(
    engine: Engine, base: Base, tried: Sequence[_Tried], has_time: Callable[[], bool], deadline: float
) -> _Proofs:
    """Prove the best of the changes that were tried."""
    remedies: list[Remedy] = []
    refused: list[str] = []
    late = 0
    for kind, most in (("better", MOST_REMEDIES), ("trade", MOST_TRADES)):
        changes = [change for change in tried if verdict(base.tried_as, change.figures) == kind]
        for change in best_of(changes, lambda change: change.figures, most):
            try:
                if not has_time():
                    raise TimeOverError
                remedies.append(engine.proved(change.edit, deadline))
            except TryFailedError as error:
                refused.append(str(error))
            except TimeOverError:
                late += 1
    return _Proofs(remedies, refused, late)


def _failures(tries: _Tries, proofs: _Proofs) -> Iterator[str]:
    """Yield the numbers of changes that failed or were not proved, with a reason."""
    if tries.refused and not tries.measured:
        changes = counted(len(tries.refused), "change", "changes")
        yield f"Each of {changes} failed, the last with {tries.refused[-1]}"
    if proofs.late:
        changes = counted(proofs.late, "change", "changes")
        yield f"{changes} that may help could not be proved in time: --budget"
    if proofs.refused:
        changes = counted(len(proofs.refused), "change", "changes")
        problem = next(filter(None, proofs.refused), "")
        yield f"{changes} that may help could not be proved{problem and ': '}{problem}"


def because_of(report: ProgramReport, edit: Edit) -> str:
    """Return why the largest collective is needed that a change is about, in words; empty if unknown.

    Args:
        report: The program without the change.
        edit: The change.
    """
    words: dict[str, int] = {}
    for collective in reversed(report.collectives or ()):
        lines, paths = pointed_at(collective)
        is_at_line = edit.site is not None and (edit.site.file, edit.site.line) in lines
        if is_at_line or not paths.isdisjoint((*edit.arguments, *edit.outputs)):
            words[because_words(collective)] = collective.total_nbytes or 0
    return max(filter(None, words), key=words.__getitem__, default="")


def resolved_by(before: ProgramReport, after: ProgramReport) -> tuple[str, ...]:
    """Return the codes and names of the findings of a program that a changed one no longer has.

    A program has one finding of a code, about all of its values: fewer values do not resolve it.
    """
    present = {finding.code for finding in after.findings or ()}
    return tuple(str(finding.full_code) for finding in before.findings or () if finding.code not in present)


def lacking(report: ProgramReport) -> str | None:
    """Return which part with figures of changes is left out of a report, in words; None if none is."""
    return next(filter(None, map(report.lacks, NEEDED)), None)


def figures_of(report: ProgramReport) -> ProgramFigures:
    """Return the figures of a compiled program that changes are compared by."""
    memory = report.memory
    return ProgramFigures(
        sent_nbytes=report.sent_nbytes,
        memory_nbytes=None if memory is None else memory.needed_nbytes,
        temporary_nbytes=None if memory is None else memory.temporary_nbytes,
        flops=known_sum((report.dot_flops, report.fft_flops, report.decomposition_flops)),
        xla_flops=report.xla_flops,
    )
