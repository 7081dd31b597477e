"""The root of a failure over the ranks of a job, and the sentence on it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ...base.grouping import by_key
from ...base.quantities import counted, format_number
from ...base.text import printable
from ...facts.reports.logs import LogEvent, RankEnd, RankLog
from ...programs.log_kinds.verdict_kinds import signal_of
from ...xla.logs.lines import YEAR, read_line
from ...xla.logs.progress import is_progress
from .events import FIRST_AT_SHUTDOWN, LATE, NOT_INTERPRETED, VERDICT, Found, OneRank

_MOST_NAMED = 8
_PATH = r"""(["'])[^"'\n]*/[^"'\n]*\1|(?<![\w.<])/[^\s"',:;)\]]+"""
"""A path in quotes, or an absolute one."""
_MOST_TEXT = 120
_SIGNAL, _OWN, _EXIT, _STALL, _WEAK, _CONSEQUENCE = range(6)
"""Facts on an end, the one nearest to the root first: a signal of a verdict, an own error, an exit code."""
_OF_SHUTDOWN = ("barrier", "coordinator gone", "abort", "preemption poller")
"""Kinds of lines of a process that waits at the end for the others."""
NO_EVIDENCE = "no evidence of who was first"
"""What is said where the logs do not tell the rank."""

_Failed = Mapping[str | None, Sequence[Found]]
"""The fatal events of each rank that has any, the one nearest to the root first."""


class Root(NamedTuple):
    """The root of a failure."""

    headline: str
    """The sentence on it; empty if nothing fatal was found."""
    ranks: tuple[str | None, ...] = ()
    """Its ranks; empty if the logs do not tell."""


def _order(failure: Found) -> tuple[int, int]:
    """Return a key that sorts events by their kind, then by their line."""
    return _priority(failure), failure.event.line


def _priority(failure: Found) -> int:
    event = failure.event
    if event.role == "consequence":
        return _CONSEQUENCE
    if event.role == "stall":
        return _STALL
    if event.kind == VERDICT:
        return _SIGNAL if signal_of(event.numbers) else _EXIT
    is_said = event.kind == NOT_INTERPRETED and not failure.is_exception
    return _WEAK if failure.is_weak or is_said else _OWN


def fatal_of(rank: OneRank) -> list[Found]:
    """Return the fatal events of a rank, the one nearest to the root first."""
    return sorted((failure for failure in rank.found if failure.event.is_fatal), key=_order)


def shape_of(event: LogEvent) -> tuple[str, str]:
    """Return what equal errors of several ranks have in common: addresses, times and paths differ."""
    return event.kind, re.sub(rf"{_PATH}|\d+", "0", event.text)


def root_of(ranks: Sequence[OneRank]) -> Root:
    """Return the root of a failure: verdicts come first, then own errors.

    A consequence is the root of nothing. Without a root, it is the rank that the others name.
    """
    failed = {member.rank: events for member in ranks if (events := fatal_of(member))}
    if not failed:
        return Root("")
    best = min(_priority(events[0]) for events in failed.values())
    if best == _STALL and any(_priority(one) == _CONSEQUENCE for events in failed.values() for one in events):
        best = _CONSEQUENCE
    first = {rank: events[0] for rank, events in failed.items() if _priority(events[0]) == best}
    if len(first) > 1:
        first.pop(None, None)  # what a launcher repeats
    numbered = [member for member in ranks if member.rank is not None]
    if None in first or len(numbered) == 1 == len(ranks):
        return _alone(next(iter(first)), failed, ranks)
    if best == _CONSEQUENCE:
        return _without_root(numbered, failed, _named(ranks))
    if best in (_SIGNAL, _EXIT):  # the first verdict, which may be on several ranks
        line = min(one.event.line for one in first.values())
        first = {rank: one for rank, one in first.items() if one.event.line == line}
    elif len(first) == len(numbered) and len({shape_of(one.event) for one in first.values()}) == 1:
        return Root(f"all {len(numbered)} ranks: {_said(next(iter(first.values())))}", tuple(first))
    said, others = _said(next(iter(first.values()))), _others(numbered, first, failed)
    if best > _EXIT and not _is_told(first, numbered, failed):
        return Root(said + others)
    rank = _earliest(first, _named(ranks))
    if rank is None:
        which = "; the logs do not tell which of them was first"
        return Root(f"{listed(first)} failed: {said}{which}{others}", tuple(first))
    shown = next((one for one in failed[rank] if _priority(one) == _OWN), first[rank])
    return Root(f"rank {rank} failed first: {_said(shown)}{_others(numbered, [rank], failed)}", (rank,))


def _is_told(first: Mapping[str | None, Found], ranks: Sequence[OneRank], failed: _Failed) -> bool:
    """Return whether ranks with a stall or a weak error are the root: all others went on, or ended so."""
    if any(one.is_of_all for one in first.values()):
        return False
    others = [member for member in ranks if member.rank not in first]
    if all(one.event.role == "stall" for one in first.values()):
        begin = max(
            (member.progress.seconds or 0) + member.progress.bound for member in ranks if member.rank in first
        )
        return all((member.progress.seconds or 0) > begin for member in others)
    return all(member.rank in failed for member in others) and len(first) == 1


def _said(failure: Found) -> str:
    """Return the words on an event."""
    summary = failure.event.summary
    is_unknown = failure.event.kind == NOT_INTERPRETED and _priority(failure) != _OWN
    return f"fatal, not interpreted: {summary}" if is_unknown else summary


def _alone(rank: str | None, failed: _Failed, ranks: Sequence[OneRank]) -> Root:
    """Return the root in a log without ranks, or of a launcher, with the ranks that it names."""
    failure = failed[rank][0]
    event = failure.event
    ended = [
        (other, f"; rank {other}: {one.event.summary}")
        for other, events in failed.items()
        for one in events
        if one.event.kind == VERDICT and one.event.role == "root" and other != rank
    ]
    other, named = ended[0] if ended else (None, "")
    first = rank or other
    accused = () if first is None else (first,)
    if event.kind == "timed out":
        return Root(_timed_out(event, ranks))
    if event.kind == "never registered":
        return Root(f"never all connected: {event.summary}")
    if event.role == "consequence":
        names = {other: reason for one in failed[rank] for other, reason in one.named}
        who = "".join(f"; rank {other}: {reason}" for other, reason in list(names.items())[:_MOST_NAMED])
        return Root(f"ended in consequence of another failure: {event.summary}{who or named}")
    if event.kind == VERDICT and rank is not None:
        return Root(f"rank {rank} failed first: {event.summary}", accused)
    if event.kind == NOT_INTERPRETED:
        is_open = any(_goes_on(member, failure) for member in ranks if member.rank == rank)
        told = "not known to be survived" if is_open else "fatal, not interpreted"
        return Root(f"{told}: {event.summary}{named}", accused)
    words = event.summary if event.words or event.role == "stall" else f"failed: {event.summary}"
    return Root(f"{words}{named}", accused)


def _goes_on(member: OneRank, failure: Found) -> bool:
    """Return whether a log without counters goes on after an exception."""
    tail = read_line(member.progress.tail).text
    is_last = any(tail in later.record for later in member.found)
    return not (failure.is_hard or member.progress.steps or is_last)


def _timed_out(event: LogEvent, ranks: Sequence[OneRank]) -> str:
    """Return the sentence on a job that did not end in its time: who wrote its stacks."""
    wrote = {member.rank for member in ranks for failure in member.found if failure.event.kind == "stack"}
    silent = [member.rank for member in ranks if member.rank not in wrote and member.rank is not None]
    words = f"timed out after {event.numbers['seconds']} s"
    if not wrote or not silent:
        return words
    have = listed(sorted(wrote, key=_by_number))
    return f"{words}: {have} wrote where they stood, {listed(silent)} did not"


def _by_number(rank: str | None) -> tuple[int, str]:
    return len(str(rank)), str(rank)


def _named(ranks: Iterable[OneRank]) -> dict[str, tuple[str, int]]:
    """Return the ranks that others name as the cause, the most often named first, with the reason."""
    given = by_key(
        ((rank, member.rank), reason)
        for member in ranks
        for failure in member.found
        for rank, reason in failure.named
        if rank != member.rank
    )
    # The first reason that a rank gives for another counts.
    names = by_key((rank, reasons[0]) for (rank, _), reasons in given.items())
    counts = {rank: (Counter(firsts).most_common(1)[0][0], len(firsts)) for rank, firsts in names.items()}
    return dict(sorted(counts.items(), key=lambda item: -item[1][1]))


def _without_root(ranks: Sequence[OneRank], failed: _Failed, named: Mapping[str, tuple[str, int]]) -> Root:
    """Return the root where no rank has an error of its own: none without evidence."""
    failed = {
        rank: events for rank, events in failed.items() if rank is not None and _priority(events[0]) != _STALL
    }
    events = [failure for failures in failed.values() for failure in failures]
    here = {member.rank: member for member in ranks}
    silent_ranks = [member.rank for member in ranks if member.rank not in failed]
    if waiting := [failure for failure in events if failure.event.kind == "never registered"]:
        late = silent_ranks or missing_ranks(here)
        who = listed(late) if late else "the others"
        words = f"never all connected: {counted(len(failed), 'rank', 'ranks')} waited for {who}"
        return Root(f"{words} ({waiting[0].event.summary})", tuple(late))
    accused = [rank for rank in named if rank not in failed]
    if accused:
        most = named[accused[0]][1]
        accused = [rank for rank in accused if named[rank][1] == most]
    elif any("eader task" in failure.record for failure in events) and "0" not in failed:
        accused = ["0"]
    elif len(silent_ranks) == 1 and not missing_ranks(here):
        accused = [str(silent_ranks[0])]
    elif not silent_ranks:
        accused = [rank for rank in named if _has_evidence(failed.get(rank, ()), named[rank][0])]
    if not accused:
        return Root(_unknown(silent_ranks, failed, named) + _others(ranks, silent_ranks, failed))
    reason = named.get(
        accused[0], ("the coordinator" if accused == ["0"] and "0" not in here else "", len(failed))
    )
    because = f" ({counted(reason[1], 'rank', 'ranks')}: {reason[0]})" if reason[0] else ""
    who = listed(accused)
    if accused[0] in failed:
        own = min(failed[accused[0]], key=lambda one: one.event.line).previous
        words = (
            f"{who} {'was late' if reason[0].startswith(LATE) else 'ended early'}{because}{_last_words(own)}"
        )
    elif accused[0] in here:
        tail = read_line(here[accused[0]].progress.tail).text
        words = f"{_without_error(accused)}{because}{_last_words(tail)}"
    else:
        words = f"{who} failed first: its log is not here{because}"
    return Root(words + _others(ranks, accused, failed), tuple(accused))


def _has_evidence(failures: Sequence[Found], reason: str) -> bool:
    """Return whether a rank that ended with the others is the one that was late, or early at the end."""
    is_told = reason == FIRST_AT_SHUTDOWN or reason.startswith(LATE)
    return is_told and all(one.event.kind in _OF_SHUTDOWN for one in failures)


def _last_words(text: str) -> str:
    """Return the words on the last line that a rank wrote of itself."""
    return (
        f"; its last line: {printable(text[:_MOST_TEXT])}" if text.strip() and not is_progress(text) else ""
    )


def _unknown(silent: Sequence[str | None], failed: _Failed, named: Mapping[str, tuple[str, int]]) -> str:
    """Return the sentence where the logs do not tell the rank."""
    if silent:
        return f"{_without_error(silent)}; {NO_EVIDENCE}"
    first = min((failure for events in failed.values() for failure in events), key=_order)
    others = [rank for rank in named if rank in failed]
    also = f" (rank {others[0]}: {named[others[0]][0]}, in consequence)" if others else ""
    return f"ended in consequence of another failure: {first.event.summary}; {NO_EVIDENCE}{also}"


def _without_error(ranks: Sequence[str | None]) -> str:
    """Return the words on ranks that ended without an error."""
    have = "has" if len(ranks) == 1 else "have"
    return f"{listed(ranks)} {have} no error: killed from outside, or ended early"


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


def _others(ranks: Sequence[OneRank], roots: Iterable[str | None], failed: _Failed) -> str:
    """Return the words on the other ranks, and on those without a log."""
    roots = set(roots)
    ends = [_priority(events[0]) for rank, events in failed.items() if rank is not None and rank not in roots]
    consequences = sum(priority in (_CONSEQUENCE, _WEAK) for priority in ends)
    silent = sum(member.rank not in failed and member.rank not in roots for member in ranks)
    parts = [
        (consequences, "other rank ended in consequence", "other ranks ended in consequence"),
        (len(ends) - consequences, "other rank failed too", "other ranks failed too"),
        (silent, "other rank has no error", "other ranks have no error"),
    ]
    words = "".join(f"; {counted(count, singular, plural)}" for count, singular, plural in parts if count)
    missing = missing_ranks([member.rank for member in ranks])
    return words + (f"; no log of {listed(missing)}" if missing else "")


def missing_ranks(ranks: Iterable[str | None]) -> list[str]:
    """Return the ranks below the highest one that have no log."""
    numbers = {int(rank) for rank in ranks if rank is not None and rank.isdecimal()}
    return (
        [str(number) for number in range(max(numbers, default=-1)) if number not in numbers]
        if len(numbers) > 1
        else []
    )


def listed(ranks: Iterable[str | None]) -> str:
    """Return ranks as a list, the first ones by name: ``rank 1``, ``ranks 1, 5 and 3 more``."""
    names = [str(rank) for rank in ranks]
    more = len(names) - _MOST_NAMED
    words = f"{'rank' if len(names) == 1 else 'ranks'} {', '.join(names[:_MOST_NAMED])}"
    return words + (f" and {format_number(more)} more" if more > 0 else "")


def rank_logs(ranks: Sequence[OneRank]) -> tuple[RankLog, ...]:
    """Return the rows of the ranks, in their order."""
    ranks = [member for member in ranks if member.rank is not None and member.attempt]
    ends = {member.rank: fatal_of(member)[:1] for member in ranks}

    def end(member: OneRank) -> RankEnd:
        if not ends[member.rank]:
            return "no error" if any(ends.values()) and not member.progress.done else "ended"
        priority = _priority(ends[member.rank][0])
        return "in consequence" if priority == _CONSEQUENCE else "stalled" if priority == _STALL else "failed"

    return tuple(
        RankLog(
            rank=str(member.rank),
            end=end(member),
            line_count=member.progress.line_count,
            step=member.progress.step,
            time="" if member.progress.time is None else clock(member.progress.time),
            text="".join(_short(failure.event) for failure in ends[member.rank]),
        )
        for member in sorted(ranks, key=lambda member: _by_number(member.rank))
    )


def _short(event: LogEvent) -> str:
    """Return the words on an event; of a consequence, its kind."""
    return event.kind if event.role == "consequence" else event.summary


def clock(seconds: int) -> str:
    """Return the time of day, such as ``12:18:30``."""
    return f"{seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
