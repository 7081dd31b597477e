"""The ranks in a log: each failure once, and the attempts, where a job began again after a failure."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ...arrays.origins.origins import UserLines
from ...base.grouping import by_key
from ...programs.log_kinds.memory_kinds import memory_numbers
from ...xla.hlo.oom_logs import Refusal
from ...xla.logs.progress import Progress, Restart
from ...xla.logs.scanner import Candidate, Scanner
from .chains import chained, link_of, unfolded
from .events import NOT_INTERPRETED, VERDICT, Found, OneRank, found_in, kind_words, numbers_agree, seconds_of

MEMORY = ("program memory", "other memory")
"""Categories of failures of memory."""
_LIMIT = "rematerialization limit"
_ANY_ALLOCATION = "allocation"
"""The kind of the message that also follows the messages of other allocators."""
_ON_GPU = {_ANY_ALLOCATION, "cuda async allocation", "arguments exceed limit"}
"""Kinds of messages on one failure of a GPU."""


def restarts_of(
    found: Mapping[str | None, Sequence[Found]], ranks: Mapping[str | None, Progress]
) -> dict[str | None, list[Restart]]:
    """Return the restarts of each rank.

    A counter that falls is a restart if a failure stands between it and the progress before it: one that no
    process survives, or an exception in a log whose counters do not fall otherwise. A launcher, whose lines
    have no counters, begins with the last rank that does.
    """
    every = [one for failures in found.values() for one in failures if one.is_ending]
    hard = sorted(one.event.line for one in every if one.is_hard)
    soft = sorted(one.event.line for one in every if one.is_hard or one.is_exception)

    def is_one(restart: Restart) -> bool:
        lines = hard if restart.is_usual else soft
        return bisect(lines, restart.line) > bisect(lines, restart.last)

    restarts = {name: [*filter(is_one, progress.restarts)] for name, progress in ranks.items()}
    if None in restarts and len(restarts) > 1:
        restarts[None] = max(restarts.values(), key=lambda of_rank: [one.line for one in of_rank[-1:]])
    return restarts


def failures_of(found: Iterable[Found]) -> list[Found]:
    """Return the events of a rank, each failure once.

    An allocator's warning, its error and the exception are one. A fatal line that no kind explains is not
    a failure of its own after one.
    """
    kept: list[Found] = []
    last: Found | None = None
    place: int | None = None
    for failure in found:
        event = failure.event
        if failure.link and place is not None and (both := chained(kept[place], failure)):
            kept[place] = last = both
            continue
        if event.kind == "stack" and any(other.event.is_fatal for other in kept):
            continue  # a crash writes it
        is_inside = last is not None and event.kind != VERDICT and f"\n{failure.record}" in last.record
        if last is not None and (event.line == last.event.line or is_inside):
            if place is not None:  # the table follows a further line of the record
                kept[place] = kept[place]._replace(refusal=_with_table(kept[place], failure))
            continue
        last, place = failure, None
        if event.numbers or event.category in MEMORY:  # any other is a failure of its own
            place = next(
                (at for at in reversed(range(len(kept))) if _is_one_failure(kept[at], failure)), None
            )
        follows = event.kind == NOT_INTERPRETED and event.is_fatal
        if place is not None:
            kept[place] = _of_both(kept[place], failure)
        elif not (follows and any(other.event.is_fatal for other in kept)):
            kept.append(failure)
            place = len(kept) - 1
        elif (
            len(kept) == 1
            and kept[0].event.kind == NOT_INTERPRETED
            and event.place
            and not kept[0].event.place
        ):
            kept[0] = failure  # what a logger says before a traceback
    return kept


def _is_one_failure(first: Found, later: Found) -> bool:
    """Return whether an earlier and a later line of a rank are about one failure of memory."""
    refusals = [failure.refusal for failure in (first, later) if failure.refusal is not None]
    if len({refusal.buffers for refusal in refusals if refusal.buffers and not refusal.is_warning}) > 1:
        return False  # they list the buffers of different programs
    kinds, numbers = {first.event.kind, later.event.kind}, first.event.numbers
    if len(kinds) == 1 and numbers and numbers == later.event.numbers:
        return first.event.category not in MEMORY or first.event.role == later.event.role
    if any(
        failure.event.category not in MEMORY and failure.event.kind != _LIMIT for failure in (first, later)
    ):
        return False
    is_alike = len(kinds) == 1 or _LIMIT in kinds or kinds <= _ON_GPU
    return is_alike and numbers_agree(numbers, later.event.numbers)


def _of_both(first: Found, later: Found) -> Found:
    """Return an earlier and a later line about one failure as one."""
    says_more = first.event.kind not in (_LIMIT, _ANY_ALLOCATION) or (
        first.event.kind == later.event.kind and first.event.is_fatal >= later.event.is_fatal
    )
    main = first if says_more else later
    numbers = {**later.event.numbers, **first.event.numbers}
    if "rounded_nbytes" in first.event.numbers and "requested_nbytes" in later.event.numbers:
        numbers["requested_nbytes"] = later.event.numbers["requested_nbytes"]
    numbers = memory_numbers(numbers)
    event = replace(
        main.event,
        numbers=numbers,
        line=first.event.line,
        place=first.event.place or later.event.place,
        is_fatal=first.event.is_fatal or later.event.is_fatal,
        words="" if main.kind is None else kind_words(main.kind, numbers),
    )
    refusal = _with_table(first, later)
    return main._replace(event=event, survived=later.survived, seconds=first.seconds, refusal=refusal)


def _with_table(first: Found, later: Found) -> Refusal | None:
    """Return what two lines about one failure say about memory, with the table of either."""
    refusals = [failure.refusal for failure in (first, later) if failure.refusal is not None]
    return max(refusals, key=lambda refusal: bool(refusal.buffers), default=None)


def ranks_of(
    scanner: Scanner,
    candidates: Iterable[Candidate],
    refusals: Mapping[int, Refusal],
    rank: str | None,
    lines: UserLines,
) -> list[OneRank]:
    """Return the ranks in a log: those in the prefixes of most lines, or that of its name."""
    prefixed: dict[str | None, Progress] = {
        name: progress for name, progress in scanner.ranks.items() if name is not None
    }
    count = sum(progress.line_count for progress in prefixed.values())
    # The numbers of steps before each line are no ranks.
    is_repeated = any(progress.line_count > 1 for progress in prefixed.values())
    has_ranks = rank is None and len(prefixed) > 1 and is_repeated and 2 * count >= scanner.line_count
    ranks: dict[str | None, Progress]
    if has_ranks:  # lines without a prefix are the launcher's
        ranks = {**prefixed, None: scanner.ranks.get(None, Progress())}
    else:
        ranks = {rank: _joined([*scanner.ranks.values()] or [Progress()], scanner.line_count)}
        ranks[rank].tail = scanner.tail
    found: dict[str | None, list[Found]] = {name: [] for name in ranks}
    links: dict[str | None, str] = {}
    for whole, candidate in ((line, part) for line in candidates for part in unfolded(line)):
        name = candidate.rank if has_ranks else rank
        if link := link_of(candidate.line):
            links[name] = link
        elif name in ranks and (failure := found_in(candidate, ranks[name], name, lines)):
            refusal, link = refusals.get(candidate.number), links.pop(name, "")
            found[name].append(failure._replace(refusal=refusal, link=link, seconds=seconds_of(whole)))
    if has_ranks:
        end = min(progress.done for progress in prefixed.values())  # all ended well after it
        found[None] = [_outlived(one) if one.event.line < end else one for one in found[None]]
    restarts = restarts_of(found, ranks)
    return [_rank(name, found[name], progress, restarts[name]) for name, progress in ranks.items()]


def _rank(
    name: str | None, found: Sequence[Found], progress: Progress, restarts: Sequence[Restart]
) -> OneRank:
    """Return a rank with the failures of its last attempt, and with what ended the attempt before it."""
    before, start = (restarts[-1].last, restarts[-1].line) if restarts else (0, 0)
    ended = (one for one in found if before < one.event.line < start and one.is_ending)
    return OneRank(
        name,
        failures_of(one for one in found if one.event.line >= start),
        progress,
        start,
        attempt=len(restarts) + 1,
        earlier=failures_of(
            one._replace(event=replace(one.event, is_fatal=True), survived=False) for one in ended
        ),
    )


def _outlived(failure: Found) -> Found:
    """Return what a launcher says as an event that its job survived."""
    survived = failure.is_ending and failure.event.role != "warning"
    return failure._replace(event=replace(failure.event, is_fatal=False), survived=survived)


def each_once(ranks: Iterable[OneRank]) -> Iterator[OneRank]:
    """Yield each rank once: its output and its errors may be in two files."""
    for files in by_key((rank.rank, rank) for rank in ranks).values():
        every = [file.progress for file in files]
        progress = _joined(every, sum(part.line_count for part in every))
        last = max(files, key=lambda file: file.attempt)
        found = [failure for file in files for failure in file.found]
        earlier = [failure for file in files for failure in file.earlier]
        yield last._replace(found=found, earlier=earlier, progress=progress)


def _joined(every: Sequence[Progress], line_count: int) -> Progress:
    """Return the progress of logs or of prefixes that are not ranks."""
    joined = max(every, key=lambda part: part.steps)
    joined.line_count = line_count
    joined.last = max(part.last for part in every)
    joined.done = max(part.done for part in every)
    return joined


def is_ended(ranks: Iterable[OneRank]) -> bool:
    """Return whether the last attempt of all ranks ended well."""
    return all(member.progress.done > member.start for member in ranks if member.progress.steps)
