"""Failures in the events of a rank: each once, and the times at which the rank stood still."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from ...base.quantities import format_number, grouped
from ...base.text import printable
from ...facts.reports.logs import LogEvent
from ...programs.log_kinds.memory_kinds import memory_numbers, memory_words
from ...xla.hlo.oom_logs import Refusal
from ...xla.logs.lines import YEAR
from .events import NOT_INTERPRETED, Found, numbers_agree
from .ranks import OneRank, clock, shape_of

ABOUT_SHARDINGS = re.compile(
    r"[Ss]hard|mesh|[Ss]pec|\btypes?\b|unreduced|reshape|replicat|batch dimensions|non-linear"
    r"|not implemented|P\("
)
"""Words of the errors on shardings that JAX raises."""
_MEMORY = ("program memory", "other memory")
_LIMIT = "rematerialization limit"
_ANY_ALLOCATION = "allocation"
"""The kind of the message that also follows the messages of other allocators."""
_ON_GPU = {_ANY_ALLOCATION, "cuda async allocation", "arguments exceed limit"}
"""Kinds of messages on one failure of a GPU."""
_EXTERNAL = ("termination signal", "time limit")
"""Kinds of ends that a stall may have."""


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
        if last is not None and (event.line == last.event.line or f"\n{failure.record}" in last.record):
            if place is not None:  # the table follows a further line of the record
                kept[place] = kept[place]._replace(refusal=_with_table(kept[place], failure))
            continue
        last, place = failure, None
        if event.numbers or event.category in _MEMORY:  # any other is a failure of its own
            place = next(
                (at for at in reversed(range(len(kept))) if _is_one_failure(kept[at], failure)), None
            )
        follows = event.kind == NOT_INTERPRETED and event.is_fatal
        if place is not None:
            kept[place] = _joined(kept[place], failure)
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
        return first.event.category not in _MEMORY or first.event.role == later.event.role
    if any(
        failure.event.category not in _MEMORY and failure.event.kind != _LIMIT for failure in (first, later)
    ):
        return False
    is_alike = len(kinds) == 1 or _LIMIT in kinds or kinds <= _ON_GPU
    return is_alike and numbers_agree(numbers, later.event.numbers)


def _joined(first: Found, later: Found) -> Found:
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
        words="" if main.kind is None else memory_words(main.kind, numbers),
    )
    refusal = _with_table(first, later)
    return main._replace(event=event, survived=later.survived, seconds=first.seconds, refusal=refusal)


def _with_table(first: Found, later: Found) -> Refusal | None:
    """Return what two lines about one failure say about memory, with the table of either."""
    refusals = [failure.refusal for failure in (first, later) if failure.refusal is not None]
    return max(refusals, key=lambda refusal: bool(refusal.buffers), default=None)


def explained(found: Found) -> LogEvent:
    """Return an event; that of an error which JAX raised on shardings, with the rule that was broken."""
    event = found.event
    if event.role != "root" or event.words or not ABOUT_SHARDINGS.search(found.record):
        return event
    from ...programs.raised.explain import explanation_of_text  # many rules, which few logs need

    known = explanation_of_text(found.record)
    if known is None:
        return event
    types = ", ".join(filter(None, (operand.type for operand in known.operands)))
    operands = f" Operands: {types}." if types else ""
    return replace(event, cause=printable(f"{known.rule.rstrip('.')}.{operands}"))


def equal_once(events: Iterable[LogEvent]) -> list[LogEvent]:
    """Return events, equal ones of all ranks and lines once."""
    once: dict[object, list[LogEvent]] = {}
    for event in events:
        sizes = event.numbers.get("requested_nbytes"), event.numbers.get("needed_nbytes")
        key: object = (event.kind, "" if event.words else shape_of(event), event.is_fatal, sizes)
        if event.role in ("consequence", "warning"):
            key = event.kind, event.is_fatal
        alike = once.setdefault(key, [])
        rows = [known.row for known in alike]
        # Without a table, it may be that of any.
        place = next(
            (place for place, row in enumerate(rows) if None in (row, event.row) or row == event.row), None
        )
        if place is None:
            alike.append(event)
            continue
        known = alike[place]
        alike[place] = replace(
            known,
            count=known.count + event.count,
            ranks=tuple(dict.fromkeys((*known.ranks, *event.ranks))),
            numbers={**event.numbers, **known.numbers},
            row=event.row if known.row is None else known.row,
        )
    return [event for alike in once.values() for event in alike]


def with_stalls(rank: OneRank) -> OneRank:
    """Return a rank with the times at which it stood still, from its third step on."""
    progress, bound = rank.progress, rank.progress.bound
    stalls = [
        _stall(rank, gap.seconds, gap.step, gap.number, is_fatal=False)
        for gap in progress.gaps
        if bound < gap.seconds < YEAR and gap.number <= progress.last
    ]
    errors = [failure for failure in rank.fatal if failure.event.kind not in _EXTERNAL]
    times = progress.seconds, progress.time
    if progress.steps > 2 and None not in times and not errors and progress.done < progress.last:
        seconds = (progress.time or 0) - (progress.seconds or 0)
        # Between a time with a date and one without, nothing is known.
        if bound < seconds < YEAR:
            stalls.append(_stall(rank, seconds, progress.step, progress.last, is_fatal=True))
    return rank._replace(found=[*rank.found, *stalls])


def _stall(rank: OneRank, seconds: int, step: int | None, number: int, *, is_fatal: bool) -> Found:
    """Return the event of a time without progress."""
    numbers: dict[str, int | str] = {"seconds": seconds}
    after = "" if step is None else f" after step {format_number(step)}"
    if step is not None:
        numbers["step"] = step
    if is_fatal and rank.progress.seconds is not None:
        after += f" at {clock(rank.progress.seconds)}"
    event = LogEvent(
        kind="silent stall",
        role="stall",
        category="stall" if is_fatal else "log warning",
        text=f"stalled: no progress for {grouped(seconds)} seconds{after}"
        f"{'' if is_fatal else ', then it went on'}",
        line=max(1, number),
        rank=rank.rank,
        ranks=() if rank.rank is None else (rank.rank,),
        is_fatal=is_fatal,
        numbers=numbers,
        cause="The process waits in a collective, for input or output, or in a loop of the host.",
        remedy="Record the next run with jai-cli run --record: it writes the stacks of a stall.",
    )
    return Found(event, None, (), survived=False, is_weak=True, seconds=None)
