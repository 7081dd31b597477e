"""Which measured changes help, and which have a price."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeVar

from ..reports.advice import ProgramFigures

Verdict = Literal["better", "trade", "no"]
"""Whether a change makes a figure better and none worse, one better and one worse, or none better."""

MARGIN = 0.05
"""Part by which a figure has to be less to be better, or more to be worse."""
LEAST_NBYTES = 2**20
"""Bytes from which a saving counts: of what is sent, also one percent of the memory."""
_NOISE_NBYTES = 1024
"""Bytes by which a figure can be more and not worse: a sum of scalars."""
MOST_REMEDIES, MOST_TRADES = 5, 3
_FLOPS = ("flops", "xla_flops")
COMPARED = ("sent_nbytes", "memory_nbytes", "flops")
"""The figures that changes are compared by."""
_T = TypeVar("_T")


def verdict(base: ProgramFigures, new: ProgramFigures) -> Verdict:
    """Return whether a changed program is better than another.

    Better: it sends at least 5 % fewer bytes, and 1 MiB or 1 % of its memory fewer; or it needs 5 % and 1 MiB
    less memory; or 5 % fewer FLOPs, of dots and Fourier transforms or as XLA counts them. No other of these
    is more by over 5 %. A change that costs FLOPs is no trade: each device may compute everything then.

    A figure that one of the programs lacks makes a change neither better nor a trade.
    """
    if any(getattr(one, name) is None for one in (base, new) for name in COMPARED):
        return "no"
    worse = [name for name in (*COMPARED, "xla_flops") if _is_worse(base, new, name)]
    if not _is_better(base, new) or not {*_FLOPS}.isdisjoint(worse):
        return "no"
    return "trade" if worse else "better"


def _is_better(base: ProgramFigures, new: ProgramFigures) -> bool:
    """Return whether a figure is less by enough."""
    memory = base.memory_nbytes or 0
    least = {"sent_nbytes": min(LEAST_NBYTES, memory // 100), "memory_nbytes": LEAST_NBYTES}
    for name in (*COMPARED, "xla_flops"):
        old, its = getattr(base, name), getattr(new, name)
        if old and its is not None and its <= (1 - MARGIN) * old and old - its >= least.get(name, 1):
            return True
    return False


def _is_worse(base: ProgramFigures, new: ProgramFigures, name: str) -> bool:
    """Return whether a figure is more by over 5 %, or unknown in one of two programs."""
    old, its = getattr(base, name), getattr(new, name)
    if old is None or its is None:
        return old is not its
    noise = 0 if name in _FLOPS else _NOISE_NBYTES
    return bool(its > (1 + MARGIN) * old + noise)


def best_of(found: Iterable[_T], figures: Callable[[_T], ProgramFigures], most: int) -> list[_T]:
    """Return the changes that no other equals or beats in all figures, the fewest bytes sent first.

    Args:
        found: The changes; of equal ones, the first is kept.
        figures: The function that returns the figures of one.
        most: Maximum number that is returned.
    """
    kept: list[_T] = []
    for one in sorted(found, key=lambda each: _compared(figures(each))):
        own = _compared(figures(one))
        if not any(_is_dominated(own, _compared(figures(other))) for other in kept):
            kept.append(one)
    return kept[:most]


def _compared(one: ProgramFigures) -> tuple[int, ...]:
    return tuple(getattr(one, name) or 0 for name in COMPARED)


def _is_dominated(own: Sequence[int], other: Sequence[int]) -> bool:
    return all(mine >= its for mine, its in zip(own, other, strict=True))
