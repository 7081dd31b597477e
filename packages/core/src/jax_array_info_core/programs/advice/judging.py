"""The judgement of changes: those that change nothing, those that help, and those that have a price."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeVar

from ...facts.reports.advice import FIGURES, MARGIN, ProgramFigures
from ..propagation.helper import NoAnswerError, ask

Verdict = Literal["better", "trade", "no"]
"""Whether a change makes a figure better and none worse, one better and one worse, or none better."""

LEAST_NBYTES = 2**20
"""Bytes from which a saving counts: of what is sent, also one percent of the memory."""
MOST_REMEDIES, MOST_TRADES = 5, 3
COMPARED = ("sent_nbytes", "memory_nbytes", "flops")
"""The figures that have to be known, and that changes are ordered by."""
_CONSTRAINT = "sdy.sharding_constraint"
_T = TypeVar("_T")


def verdict(base: ProgramFigures, new: ProgramFigures) -> Verdict:
    """Return whether a changed program is better than another.

    Better: it sends at least 5 % fewer bytes, and 1 MiB or 1 % of its memory fewer; or it needs 5 % and 1 MiB
    less memory; or 5 % fewer FLOPs, of dots and Fourier transforms or as XLA counts them. No other of these
    is more by over 5 %. A change that costs FLOPs is not a trade: each device may compute everything then.

    A figure that one of the programs lacks makes a change neither better nor a trade.
    """
    if any(getattr(figures, name) is None for figures in (base, new) for name in COMPARED):
        return "no"
    least = {
        "sent_nbytes": min(LEAST_NBYTES, (base.memory_nbytes or 0) // 100),
        "memory_nbytes": LEAST_NBYTES,
    }
    is_better, worse = False, []
    for figure in FIGURES:
        before, after = getattr(base, figure.name), getattr(new, figure.name)
        if before is None or after is None:
            worse += [figure.name] if before is not after else []
        elif after > (1 + MARGIN) * before + figure.noise:
            worse.append(figure.name)
        else:
            saved = before - after
            is_better |= after <= (1 - MARGIN) * before and saved >= max(least.get(figure.name, 0), 1)
    if not is_better or any("flops" in name for name in worse):
        return "no"
    return "trade" if worse else "better"


def best_of(changes: Iterable[_T], figures: Callable[[_T], ProgramFigures], most: int) -> list[_T]:
    """Return the changes that no other equals or beats in all figures, the fewest bytes sent first.

    Of more than the maximum, the best in each figure are among them.

    Args:
        changes: The changes; of equal ones, the first is kept.
        figures: The function that returns the figures of one.
        most: Maximum number that is returned.
    """
    kept: list[tuple[tuple[int, ...], _T]] = []
    for row in sorted(((_compared(figures(change)), change) for change in changes), key=lambda row: row[0]):
        if not any(_is_dominated(row[0], numbers) for numbers, _ in kept):
            kept.append(row)
    best = [min(kept, key=lambda row: row[0][number]) for number in range(len(COMPARED)) if kept]
    chosen = [*dict.fromkeys(map(id, (*best, *kept)))][:most]
    return [row[1] for row in kept if id(row) in chosen]


def _compared(figures: ProgramFigures) -> tuple[int, ...]:
    return tuple(getattr(figures, name) or 0 for name in COMPARED)


def _is_dominated(numbers: Sequence[int], others: Sequence[int]) -> bool:
    return all(number >= other for number, other in zip(numbers, others, strict=True))


def sharding_key(bytecode: bytes) -> bytes:
    """Return a key that two programs of one function share if Shardy gives all their values one sharding.

    Such programs differ in constraints that change nothing. Where Shardy gives no answer, only equal programs
    share it.

    Args:
        bytecode: The lowered program.
    """
    try:
        answer = ask(bytecode)
    except NoAnswerError:
        return hashlib.sha256(bytecode).digest()
    known = [*answer.shardings, None]
    values = [known[-1 if row.sharding is None else row.sharding] for row in answer.values]
    rows = [
        (row.name, [values[number] for number in row.operands], [values[number] for number in row.results])
        for row in answer.operations
        if row.name != _CONSTRAINT
    ]
    returned = [known[-1 if place is None else place] for place in answer.results]
    return hashlib.sha256(json.dumps([rows, values[: answer.arguments], returned]).encode()).digest()
