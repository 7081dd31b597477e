"""The root of a failure over the ranks of a job, and the sentence on it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ...base.quantities import counted, format_number
from ...facts.reports.logs import LogEvent, RankEnd, RankLog
from ...xla.logs.lines import YEAR
from ...xla.logs.scanner import Progress
from .events import FIRST_AT_SHUTDOWN, NOT_INTERPRETED, Found

_MOST_NAMED = 8
_PATH = r"""(["'])[^"'\n]*/[^"'\n]*\1|(?<![\w.<])/[^\s"',:;)\]]+"""
"""A path in quotes, or an absolute one."""
_ROOT, _WEAK, _STALL, _CONSEQUENCE = range(4)


class OneRank(NamedTuple):
    """What the log of one rank has."""

    rank: str | None
    """The rank; None for a log without ranks."""
    found: Sequence[Found]
    """Its events, in their order."""
    progress: Progress
    """Its progress."""

    @property
    def fatal(self) -> list[Found]:
        """The fatal events, the one nearest to the root first."""
        return sorted((failure for failure in self.found if failure.event.is_fatal), key=_order)


class Root(NamedTuple):
    """The root of a failure."""

    headline: str
    """The sentence on it; empty if nothing fatal was found."""
    ranks: tuple[str | None, ...] = ()
    """Its ranks."""


def _order(failure: Found) -> tuple[int, int]:
    """Return a key that sorts events by their kind, then by their line."""
    return _priority(failure), failure.event.line


def _priority(failure: Found) -> int:
    event = failure.event
    if event.role == "consequence":
        return _CONSEQUENCE
    if event.role == "stall":
        return _STALL
    if re.match(r"(?:\w+\.)*(?:KeyboardInterrupt|BrokenPipeError|Connection\w+Error|EOFError)\b", event.text):
        return _WEAK
    is_exception = event.place or re.match(r"[\w.]*(?:Error|Exception)\b", event.text)
    return _WEAK if failure.is_weak or (event.kind == NOT_INTERPRETED and not is_exception) else _ROOT


def shape_of(event: LogEvent) -> tuple[str, str]:
    """Return what equal errors of several ranks have in common: addresses, times and paths differ."""
    return event.kind, re.sub(rf"{_PATH}|\d+", "0", event.text)


def root_of(ranks: Sequence[OneRank]) -> Root:
    """Return the root of a failure: by its kind, then by its time.

    A consequence is the root of nothing. Without a root, it is the rank that the others name.
    """
    numbered = [member for member in ranks if member.rank is not None] or ranks
    failed = {member.rank: member.fatal for member in numbered if member.fatal}
    launcher = [failure for member in ranks if member.rank is None for failure in member.fatal]
    named = _named(ranks)
    if not failed and not launcher:
        return Root("")
    if len(numbered) == 1:
        return Root(_alone(next(iter(failed.values()), launcher)), tuple(failed) or (None,))
    if not failed:
        return _without_root(numbered, {None: launcher}, named) if named else Root(_alone(launcher), (None,))
    ranks = numbered
    best = min(_priority(events[0]) for events in failed.values())
    first = {rank: events[0] for rank, events in failed.items() if _priority(events[0]) == best}
    is_told = len(first) > 1 and len(failed) < len(ranks)
    if best == _CONSEQUENCE or (best == _WEAK and (named or is_told)):
        return _without_root(ranks, failed, named)
    summary = _said(next(iter(first.values())))
    if len(first) == len(ranks) and len({shape_of(failure.event) for failure in first.values()}) == 1:
        return Root(f"all {len(ranks)} ranks: {summary}", tuple(first))
    rank = _earliest(first, named)
    if rank is None:
        words = f"ranks {listed(first)} failed: {summary}; the logs do not tell which of them was first"
        return Root(words + _others(ranks, first, failed), tuple(first))
    return Root(f"rank {rank} failed first: {_said(first[rank])}{_others(ranks, [rank], failed)}", (rank,))


def _said(failure: Found) -> str:
    """Return the words on an event."""
    summary = failure.event.summary
    is_unknown = failure.event.kind == NOT_INTERPRETED and _priority(failure) != _ROOT
    return f"fatal, not interpreted: {summary}" if is_unknown else summary


def _alone(events: Sequence[Found]) -> str:
    """Return the sentence on a log without ranks."""
    failure = events[0]
    event = failure.event
    if event.kind == NOT_INTERPRETED:
        return f"fatal, not interpreted: {event.summary}"
    if event.kind == "never registered":
        return f"never all connected: {event.summary}"
    if event.role == "consequence":
        named = {rank: reason for failure in events for rank, reason in failure.named}
        who = "".join(f"; rank {rank}: {reason}" for rank, reason in list(named.items())[:_MOST_NAMED])
        return f"ended in consequence of another failure: {event.summary}{who}"
    return event.summary if event.words or event.role == "stall" else f"failed: {event.summary}"


def _named(ranks: Iterable[OneRank]) -> dict[str, tuple[str, int]]:
    """Return the ranks that others name as the cause, the most often named first, with the reason."""
    names: dict[str, dict[str | None, str]] = {}
    for member in ranks:
        for failure in member.found:
            for rank, reason in failure.named:
                if rank != member.rank:
                    names.setdefault(rank, {}).setdefault(member.rank, reason)
    counts = {rank: (Counter(by.values()).most_common(1)[0][0], len(by)) for rank, by in names.items()}
    return dict(sorted(counts.items(), key=lambda item: -item[1][1]))


def _without_root(
    ranks: Sequence[OneRank],
    failed: Mapping[str | None, Sequence[Found]],
    named: Mapping[str, tuple[str, int]],
) -> Root:
    """Return the root where no rank has an error of its own."""
    events = [failure for failures in failed.values() for failure in failures]
    if waiting := [failure for failure in events if failure.event.kind == "never registered"]:
        silent = _others(ranks, list(failed), failed)
        words = f"never all connected: {counted(len(failed), 'rank', 'ranks')} waited for the others"
        return Root(f"{words} ({waiting[0].event.summary}){silent}", tuple(failed))
    here = {member.rank for member in ranks}
    silent_ranks = [member.rank for member in ranks if member.rank not in failed]
    # A rank that is first at the Shutdown barrier in consequence of another's end did not end early.
    ended = {
        rank: named[rank]
        for rank in named
        if not (silent_ranks and rank in failed and _is_first(named[rank]))
    }
    rank, reason = next(iter(ended.items()), (None, ("", 0)))
    is_coordinator = any(failure.event.kind == "coordinator gone" for failure in events)
    if rank is None and silent_ranks and not (is_coordinator and "0" in silent_ranks) and silent_ranks[1:]:
        words = f"ranks {listed(silent_ranks)} have no error: killed from outside, or ended early"
        return Root(words + _others(ranks, silent_ranks, failed), tuple(silent_ranks))
    if rank is None and silent_ranks:
        rank = "0" if is_coordinator and "0" in silent_ranks else silent_ranks[0]
    if rank is None and is_coordinator and "0" not in here:
        rank, reason = "0", ("the coordinator", len(failed))
    if rank is None:
        first = min((failure for events in failed.values() for failure in events), key=_order)
        return Root(f"ended in consequence of another failure: {first.event.summary}", tuple(failed))
    because = f" ({counted(reason[1], 'rank', 'ranks')}: {reason[0]})" if reason[0] else ""
    if rank in failed:
        words = f"rank {rank} failed first: the others name it{because}; its log has only consequences"
    elif rank in here:
        words = f"rank {rank} has no error: killed from outside, or ended early{because}"
    else:
        words = f"rank {rank} failed first: its log is not here{because}"
    return Root(words + _others(ranks, [rank], failed), (rank,))


def _is_first(reason: tuple[str, int]) -> bool:
    """Return whether the reason to name a rank is that it was the first at a Shutdown barrier."""
    return reason[0] == FIRST_AT_SHUTDOWN


def _earliest(first: Mapping[str | None, Found], named: Mapping[str, object]) -> str | None:
    """Return the rank whose error was first; None if the logs do not tell."""
    if len(first) == 1:
        return next(iter(first))
    if suspects := [rank for rank in first if rank in named]:
        return suspects[0]
    times = {rank: failure.seconds for rank, failure in first.items() if failure.seconds is not None}
    least, last = min(times.values(), default=0), max(times.values(), default=0)
    if len(times) < len(first) or list(times.values()).count(least) != 1 or last - least > YEAR // 2:
        return None
    return next(rank for rank, seconds in times.items() if seconds == least)


def _others(
    ranks: Sequence[OneRank], roots: Iterable[str | None], failed: Mapping[str | None, Sequence[Found]]
) -> str:
    """Return the words on the other ranks, and on those without a log."""
    roots = set(roots)
    ends = [_priority(events[0]) for rank, events in failed.items() if rank not in roots]
    consequences = sum(priority in (_CONSEQUENCE, _WEAK) for priority in ends)
    silent = sum(member.rank not in failed and member.rank not in roots for member in ranks)
    parts = [
        (consequences, "other rank ended in consequence", "other ranks ended in consequence"),
        (len(ends) - consequences, "other rank failed too", "other ranks failed too"),
        (silent, "other rank has no error", "other ranks have no error"),
    ]
    words = "".join(f"; {counted(count, singular, plural)}" for count, singular, plural in parts if count)
    missing = missing_ranks([member.rank for member in ranks])
    return words + (
        f"; no log of {'rank' if len(missing) == 1 else 'ranks'} {listed(missing)}" if missing else ""
    )


def missing_ranks(ranks: Iterable[str | None]) -> list[str]:
    """Return the ranks below the highest one that have no log."""
    numbers = {int(rank) for rank in ranks if rank is not None and rank.isdecimal()}
    return (
        [str(number) for number in range(max(numbers, default=-1)) if number not in numbers]
        if len(numbers) > 1
        else []
    )


def listed(ranks: Iterable[str | None]) -> str:
    """Return ranks as a list, the first ones by name: ``1, 5 and 3 more``."""
    names = [str(rank) for rank in ranks]
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {format_number(more)} more" if more > 0 else "")


def rank_logs(ranks: Sequence[OneRank]) -> tuple[RankLog, ...]:
    """Return the rows of the ranks, in their order."""
    ranks = [member for member in ranks if member.rank is not None]
    any_failed = any(member.fatal for member in ranks)

    def end(member: OneRank) -> RankEnd:
        if not member.fatal:
            return "no error" if any_failed and not member.progress.done else "ended"
        priority = _priority(member.fatal[0])
        return "in consequence" if priority == _CONSEQUENCE else "stalled" if priority == _STALL else "failed"

    return tuple(
        RankLog(
            rank=str(member.rank),
            end=end(member),
            line_count=member.progress.line_count,
            step=member.progress.step,
            time="" if member.progress.time is None else clock(member.progress.time),
            text=_short(member.fatal[0].event) if member.fatal else "",
        )
        for member in sorted(ranks, key=lambda member: (len(str(member.rank)), str(member.rank)))
    )


def _short(event: LogEvent) -> str:
    """Return the words on an event; of a consequence, its kind."""
    return event.kind if event.role == "consequence" else event.summary


def clock(seconds: int) -> str:
    """Return the time of day, such as ``12:18:30``."""
    return f"{seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
