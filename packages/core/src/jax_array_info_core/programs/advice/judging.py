"""The judgement of changes: those that help, and those that have a price."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from ...base.grouping import by_key
from ...base.quantities import known_sum
from ...compat.topology_names import FLOPS_PER_BYTE, parse_topology
from ...facts.reports.advice import (
    BALANCE,
    LEAST_NBYTES,
    MARGIN,
    LoopFigures,
    ProgramFigures,
    better_and_worse,
    moved_nbytes,
)
from ...facts.reports.control_flow import ControlFlow, FlopTotals, PerIteration
from ...facts.reports.program import ProgramReport
from ...facts.reports.program_values import uncounted_words

Verdict = Literal["better", "trade", "no"]
"""Whether a change makes a figure better and none worse, one better and one worse, or none better."""

MOST_REMEDIES, MOST_TRADES = 5, 3
COMPARED = ("sent_nbytes", "memory_nbytes", "flops")
"""The figures that have to be known."""
_MOST_WORK = 0.25
"""Part by which a trade may have more FLOPs: with more, devices do again what others do."""
_DEFAULT_CHIP = "v5e"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What figures are worth, and from which number of bytes on."""

    balance: int = BALANCE
    """FLOPs that cost as much as a byte sent."""

    chip: str = _DEFAULT_CHIP
    """Chip whose rates give the balance; empty if it was given."""

    min_nbytes: int = LEAST_NBYTES
    """Bytes below which a figure is neither better nor worse."""

    @classmethod
    def of(cls, topology: str | None, balance: int | None = None, min_nbytes: int = LEAST_NBYTES) -> Scale:
        """Return the scale of a topology.

        Args:
            topology: The topology; None for another chip's balance.
            balance: FLOPs that cost as much as a byte sent; None for those of the chip.
            min_nbytes: Bytes below which a figure is neither better nor worse.
        """
        if balance is not None:
            return cls(balance=balance, chip="", min_nbytes=min_nbytes)
        chip = _DEFAULT_CHIP if topology is None else parse_topology(topology).kind
        chip = chip if chip in FLOPS_PER_BYTE else _DEFAULT_CHIP
        return cls(balance=FLOPS_PER_BYTE[chip], chip=chip, min_nbytes=min_nbytes)

    def verdict(self, base: ProgramFigures, new: ProgramFigures) -> Verdict:
        """Return whether a changed program is better than another.

        Better: it costs 5 % less, by the bytes sent and the FLOPs together, or needs 5 % and ``min_nbytes``
        less memory. What one iteration of a loop of unknown length costs is compared apart, too. If one of
        these, or a single figure, is worse by over 5 %, it is a trade. Bytes sent that are fewer than
        ``min_nbytes`` and 1 % of the memory make no difference.

        A program that lacks a figure, or whose figures lack something else, is neither.
        """
        if not _are_comparable(base, new):
            return "no"
        better, worse = better_and_worse(base, new, self.min_nbytes)
        pairs = self._costs(base, new)
        needs_less = self._needs_less(base, new)
        costs_less = any(one.name != "memory_nbytes" for one in better) and any(
            after <= (1 - MARGIN) * before for before, after in pairs
        )
        noise = self._noise(base)
        costs_more = any(after > (1 + MARGIN) * before + noise for before, after in pairs)
        has_work = any(one.name.endswith("flops") for one in worse)
        repeats = new.cost(0) > (1 + _MOST_WORK) * base.cost(0)
        if not (costs_less or needs_less) or repeats or (has_work and not costs_less):
            return "no"
        return "trade" if worse or costs_more else "better"

    def _noise(self, base: ProgramFigures) -> int:
        """Return the cost that makes no difference."""
        return self.balance * min(self.min_nbytes, (base.memory_nbytes or 0) // 100)

    def _needs_less(self, base: ProgramFigures, new: ProgramFigures) -> bool:
        before, after = base.memory_nbytes or 0, new.memory_nbytes or 0
        return after <= (1 - MARGIN) * before and before - after >= max(self.min_nbytes, 1)

    def _gains(self, base: ProgramFigures, new: ProgramFigures) -> bool:
        """Return whether a program is better than another in cost, in memory, or in work for no more cost."""
        noise, costs = self._noise(base), self._costs(base, new)
        costs_less = any(after < (1 - MARGIN) * before - noise for before, after in costs)
        costs_more = any(after > (1 + MARGIN) * before + noise for before, after in costs)
        works_less = new.cost(0) < (1 - MARGIN) * base.cost(0) and not costs_more
        return costs_less or works_less or self._needs_less(base, new)

    def _costs(self, base: ProgramFigures, new: ProgramFigures) -> list[tuple[int, int]]:
        """Return the costs of two programs, and those of one iteration of each loop of unknown length."""
        loops = [{one.loop: self._iteration(one) for one in figures.loops} for figures in (base, new)]
        names = dict.fromkeys((*loops[0], *loops[1]))
        total = base.cost(self.balance), new.cost(self.balance)
        return [total, *((loops[0].get(name, 0), loops[1].get(name, 0)) for name in names)]

    def _iteration(self, loop: LoopFigures) -> int:
        return self.balance * loop.sent_nbytes + loop.flops

    def _compared(self, figures: ProgramFigures) -> tuple[int, ...]:
        """Return the cost, that of an iteration, and the memory."""
        loops = sum(map(self._iteration, figures.loops))
        return figures.cost(self.balance), loops, figures.memory_nbytes or 0

    def gaining(
        self,
        changes: Iterable[_T],
        others: Sequence[ProgramFigures],
        figures: Callable[[_T], ProgramFigures],
    ) -> list[_T]:
        """Return the changes that are better than each of some others in something."""
        return [change for change in changes if all(self._gains(other, figures(change)) for other in others)]

    def rank(self, figures: ProgramFigures) -> float:
        """Return a number that is lower for better figures: half of a cost counts as half of the memory."""
        return sum(math.log2(number + 1) for number in self._compared(figures))

    def best_of(
        self, base: ProgramFigures, changes: Iterable[_T], figures: Callable[[_T], ProgramFigures], most: int
    ) -> list[_T]:
        """Return the changes that are better than each other in something, the best first.

        Of more than the maximum, the best in cost and in memory are among them. Those that only move a gather
        to the caller come last.

        Args:
            base: The figures of the program as it is.
            changes: The changes; of those that are about equal, the first is kept.
            figures: The function that returns the figures of one.
            most: Maximum number that is returned.
        """
        kept: list[_T] = []
        for change in changes:
            new = figures(change)
            if all(self._gains(figures(other), new) for other in kept):
                kept = [other for other in kept if self._gains(new, figures(other))]
                kept.append(change)
        kept.sort(key=lambda change: self.rank(figures(change)))
        best = [
            min(kept, key=lambda change: self._compared(figures(change))[number])
            for number in range(3)
            if kept
        ]
        chosen = [*dict.fromkeys(map(id, (*kept[:1], *best, *kept)))][:most]
        found = [change for change in kept if id(change) in chosen]
        return sorted(found, key=lambda change: moved_nbytes(base, figures(change)) > 0)


DEFAULT = Scale()
"""The scale without a topology."""


def _are_comparable(base: ProgramFigures, new: ProgramFigures) -> bool:
    lacks = any(getattr(figures, name) is None for figures in (base, new) for name in COMPARED)
    is_alike = (base.xla_flops is None) is (new.xla_flops is None) and base.unknown == new.unknown
    return is_alike and not lacks


def figures_of(report: ProgramReport) -> ProgramFigures:
    """Return the figures of a compiled program that changes are compared by.

    Outside of loops of unknown length, each conditional counts its larger side. FLOPs that are not counted
    are named.
    """
    memory, sent = report.memory, report.sent if report.is_sent_known else None
    dots = report.dot_totals
    if dots is None and report.dot_flops is not None:  # a report of an older version
        dots = FlopTotals(known=report.dot_flops, bound=report.dot_flops)
    totals = (dots, report.fft_totals, *((None,) if report.decompositions is None else report.decompositions))
    known = [None if one is None else one.known if one.bound is None else one.bound for one in totals]
    sent_loops = () if sent is None else sent.per_iteration
    loops = (*sent_loops, *(row for one in totals if one is not None for row in one.per_iteration))
    return ProgramFigures(
        sent_nbytes=None if sent is None else sent.bound_nbytes if sent.unknown_count else sent.nbytes,
        memory_nbytes=None if memory is None else memory.needed_nbytes,
        temporary_nbytes=None if memory is None else memory.temporary_nbytes,
        argument_nbytes=None if memory is None else memory.argument_nbytes,
        output_nbytes=None if memory is None else memory.output_nbytes,
        flops=known_sum(known),
        xla_flops=report.xla_flops,
        loops=tuple(_loops(loops)),
        unknown=tuple(uncounted_words(report.uncounted_flops or ())),
    )


def _loops(rows: Iterable[PerIteration]) -> Iterable[LoopFigures]:
    """Yield the figures of one iteration of each loop, those of loops at one place together."""
    loops = ((ControlFlow(kind="while_loop", at_most=row.at_most, origin=row.origin), row) for row in rows)
    by_place = by_key(
        (" in ".join(one.words for one in (loop, *reversed(row.outer))), row) for loop, row in loops
    )
    for name, alike in sorted(by_place.items()):
        yield LoopFigures(
            loop=name,
            sent_nbytes=sum((row.nbytes or 0) * row.count for row in alike),
            flops=sum((row.flops or 0) * row.count for row in alike),
        )
