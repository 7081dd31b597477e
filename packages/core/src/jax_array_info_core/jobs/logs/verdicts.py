"""Verdicts of launchers on ranks, and the ends that follow from another one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ...programs.log_kinds.verdict_kinds import BY_OTHERS, signal_of
from ...xla.logs.progress import Progress
from .events import NOT_INTERPRETED, VERDICT, Found, OneRank

EXTERNAL = ("termination signal", "time limit")
"""Kinds of ends that come from outside, also in consequence of another end or of a stall."""
_MOST_RANKS = 10_000


def with_verdicts(ranks: Sequence[OneRank]) -> list[OneRank]:
    """Return ranks with the verdicts on each among its events, and with the roles of all that follows.

    A launcher ends the others after the first, and all at a time limit: such ends are no roots.
    """
    found: dict[str | None, list[Found]] = {}
    is_limited = any(one.event.kind == EXTERNAL[1] for member in ranks for one in member.found)
    for member in ranks:
        verdicts = [failure for failure in member.found if failure.event.kind == VERDICT]
        found[member.rank] = [failure for failure in member.found if failure.event.kind != VERDICT]
        for place, verdict in enumerate(verdicts):
            signal = signal_of(verdict.event.numbers)
            sent = signal in BY_OTHERS or (place > 0 and signal == "SIGKILL")
            sent |= is_limited and signal in ("", "SIGKILL")
            for rank in _ranks_in(verdict):
                moved = verdict._replace(event=replace(verdict.event, rank=rank, ranks=(rank,)))
                found.setdefault(rank, []).append(in_consequence(moved) if sent else moved)
    known = {member.rank: member for member in ranks}
    return [
        _with_roles(known.get(rank, OneRank(rank, (), Progress(), attempt=0))._replace(found=events))
        for rank, events in found.items()
    ]


def _ranks_in(verdict: Found) -> Iterator[str]:
    """Yield the ranks of a verdict: one, or those of a list such as ``0-2,5``."""
    numbers = verdict.event.numbers
    listed = str(numbers.get("ranks", numbers.get("rank", "")))
    for first, last in re.findall(r"(\d{1,9})(?:-(\d{1,9}))?", listed):
        yield from map(str, range(int(first), min(int(last or first), int(first) + _MOST_RANKS) + 1))


def _with_roles(rank: OneRank) -> OneRank:
    """Return a rank in which what may follow from another rank's end does, if its log has such an end."""
    consequences = [
        failure.event.line
        for failure in rank.found
        if failure.event.is_fatal and failure.event.role == "consequence" and failure.event.kind != VERDICT
    ]
    if not consequences:
        return rank

    def follows(failure: Found) -> bool:
        event = failure.event
        is_said = event.kind == NOT_INTERPRETED and not failure.is_exception
        is_later = failure.is_weak and event.line > min(consequences)
        return event.role == "root" and (is_said or is_later or event.kind == VERDICT)

    return rank._replace(found=[in_consequence(one) if follows(one) else one for one in rank.found])


def in_consequence(failure: Found) -> Found:
    """Return a failure as one that follows from another end."""
    return failure._replace(event=replace(failure.event, role="consequence", category="consequence"))


def without_external(ranks: Iterable[OneRank]) -> list[OneRank]:
    """Return ranks whose ends from outside follow from an error or a stall, if any of them has one."""
    ranks = [*ranks]
    has_root = any(
        one.event.is_fatal and (one.event.role == "stall" or (one.event.role == "root" and not one.is_weak))
        for rank in ranks
        for one in rank.found
    )
    if not has_root:
        return ranks
    return [
        rank._replace(
            found=[in_consequence(one) if one.event.kind in EXTERNAL else one for one in rank.found]
        )
        for rank in ranks
    ]
