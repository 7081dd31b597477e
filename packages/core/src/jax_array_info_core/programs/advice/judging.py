"""The judgement of measured changes: those that help, and those that have a price."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeVar

from ...facts.reports.advice import FIGURES, MARGIN, ProgramFigures

Verdict = Literal["better", "trade", "no"]
"""Whether a change makes a figure better and none worse, one better and one worse, or none better."""

LEAST_NBYTES = 2**20
"""Bytes from which a saving counts: of what is sent, also one percent of the memory."""
MOST_REMEDIES, MOST_TRADES = 5, 3
COMPARED = ("sent_nbytes", "memory_nbytes", "flops")
"""The figures that have to be known, and that changes are ordered by."""
_T = TypeVar("_T")


def verdict(base: ProgramFigures, new: ProgramFigures) -> Verdict:
    """Return whether a changed program is better than another.

    Better: it sends at least 5 % fewer bytes, and 1 MiB or 1 % of its memory fewer; or it needs 5 % and 1 MiB
    less memory; or 5 % fewer FLOPs, of dots and Fourier transforms or as XLA counts them. No other of these
    is more by over 5 %. A change that costs FLOPs is not a trade: each device may compute everything then.

    A figure that one of the programs lacks makes a change neither better nor a trade.
    """
    if any(getattr(one, name) is None for one in (base, new) for name in COMPARED):
        return "no"
    least = {
        "sent_nbytes": min(LEAST_NBYTES, (base.memory_nbytes or 0) // 100),
        "memory_nbytes": LEAST_NBYTES,
    }
    is_better, worse = False, []
    for figure in FIGURES:
        old, its = getattr(base, figure.name), getattr(new, figure.name)
        if old is None or its is None:
            worse += [figure.name] if old is not its else []
        elif its > (1 + MARGIN) * old + figure.noise:
            worse.append(figure.name)
        else:
            is_better |= its <= (1 - MARGIN) * old and old - its >= max(least.get(figure.name, 0), 1)
    if not is_better or any("flops" in name for name in worse):
        return "no"
    return "trade" if worse else "better"


def best_of(found: Iterable[_T], figures: Callable[[_T], ProgramFigures], most: int) -> list[_T]:
    """Return the changes that no other equals or beats in all figures, the fewest bytes sent first.

    Of more than the maximum, the best in each figure are among them.

    Args:
        found: The changes; of equal ones, the first is kept.
        figures: The function that returns the figures of one.
        most: Maximum number that is returned.
    """
    kept: list[tuple[tuple[int, ...], _T]] = []
    for own, one in sorted(((_compared(figures(one)), one) for one in found), key=lambda pair: pair[0]):
        if not any(_is_dominated(own, other) for other, _ in kept):
            kept.append((own, one))
    best = [min(kept, key=lambda pair: pair[0][number]) for number in range(len(COMPARED)) if kept]
    chosen = [*dict.fromkeys(map(id, (*best, *kept)))][:most]
    return [pair[1] for pair in kept if id(pair) in chosen]


def _compared(one: ProgramFigures) -> tuple[int, ...]:
    return tuple(getattr(one, name) or 0 for name in COMPARED)


def _is_dominated(own: Sequence[int], other: Sequence[int]) -> bool:
    return all(mine >= its for mine, its in zip(own, other, strict=True))
