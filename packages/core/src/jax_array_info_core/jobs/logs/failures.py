"""Failures in the events of a rank: each once, and the times at which the rank stood still."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...base.quantities import format_number, grouped
from ...base.text import printable
from ...facts.reports.logs import LogEvent
from ...programs.log_kinds.memory_words import memory_numbers, memory_words
from .events import NOT_INTERPRETED, Found, numbers_agree
from .lines import YEAR
from .ranks import OneRank, clock, shape_of

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
    for one in found:
        if last is not None and (one.event.line == last.event.line or f"\n{one.record}" in last.record):
            continue
        last = one
        place = None
        if one.event.numbers or one.event.category in _MEMORY:  # any other is a failure of its own
            place = next((at for at in reversed(range(len(kept))) if _is_one_failure(kept[at], one)), None)
        follows = one.event.kind == NOT_INTERPRETED and one.event.is_fatal
        if place is not None:
            kept[place] = _joined(kept[place], one)
        elif not (follows and any(other.event.is_fatal for other in kept)):
            kept.append(one)
        elif (
            len(kept) == 1
            and kept[0].event.kind == NOT_INTERPRETED
            and one.event.place
            and not kept[0].event.place
        ):
            kept[0] = one  # what a logger says before a traceback
    return kept


def _is_one_failure(one: Found, other: Found) -> bool:
    """Return whether an earlier and a later line of a rank are about one failure of memory."""
    if one.event.kind == other.event.kind and one.event.numbers and one.event.numbers == other.event.numbers:
        return one.event.category not in _MEMORY or one.event.role == other.event.role
    if any(found.event.category not in _MEMORY and found.event.kind != _LIMIT for found in (one, other)):
        return False
    kinds = {one.event.kind, other.event.kind}
    is_alike = len(kinds) == 1 or _LIMIT in kinds or kinds <= _ON_GPU
    return is_alike and numbers_agree(one.event.numbers, other.event.numbers)


def _joined(one: Found, other: Found) -> Found:
    """Return an earlier and a later line about one failure as one."""
    says_more = one.event.kind not in (_LIMIT, _ANY_ALLOCATION) or (
        one.event.kind == other.event.kind and one.event.is_fatal >= other.event.is_fatal
    )
    main = one if says_more else other
    numbers = {**other.event.numbers, **one.event.numbers}
    if "rounded_nbytes" in one.event.numbers and "requested_nbytes" in other.event.numbers:
        numbers["requested_nbytes"] = other.event.numbers["requested_nbytes"]
    numbers = memory_numbers(numbers)
    event = replace(
        main.event,
        numbers=numbers,
        line=one.event.line,
        place=one.event.place or other.event.place,
        is_fatal=one.event.is_fatal or other.event.is_fatal,
        words="" if main.kind is None else memory_words(main.kind, numbers),
    )
    return main._replace(event=event, survived=other.survived, seconds=one.seconds)


def explained(found: Found) -> LogEvent:
    """Return an event; that of an error which JAX raised on shardings, with the rule that was broken."""
    event = found.event
    if event.role != "root" or event.words:
        return event
    from ...programs.raised.explain import explanation_of_text  # many rules, which few logs need

    known = explanation_of_text(found.record)
    if known is None:
        return event
    types = ", ".join(filter(None, (one.type for one in known.operands)))
    operands = f" Operands: {types}." if types else ""
    return replace(event, cause=printable(f"{known.rule.rstrip('.')}.{operands}"))


def equal_once(events: Iterable[LogEvent]) -> list[LogEvent]:
    """Return events, equal ones of all ranks and lines once."""
    once: dict[object, LogEvent] = {}
    for event in events:
        sizes = event.numbers.get("requested_nbytes"), event.numbers.get("needed_nbytes")
        key: object = (event.kind, "" if event.words else shape_of(event), event.is_fatal, sizes)
        if event.role in ("consequence", "warning"):
            key = event.kind, event.is_fatal
        known = once.get(key)
        if known is None:
            once[key] = event
            continue
        ranks = tuple(dict.fromkeys((*known.ranks, *event.ranks)))
        numbers = {**event.numbers, **known.numbers}
        once[key] = replace(known, count=known.count + event.count, ranks=ranks, numbers=numbers)
    return list(once.values())


def with_stalls(one: OneRank) -> OneRank:
    """Return a rank with the times at which it stood still, from its third step on."""
    progress, bound = one.progress, one.progress.bound
    stalls = [
        _stall(one, gap.seconds, gap.step, gap.number, is_fatal=False)
        for gap in progress.gaps
        if bound < gap.seconds < YEAR and gap.number <= progress.last
    ]
    errors = [found for found in one.fatal if found.event.kind not in _EXTERNAL]
    times = progress.seconds, progress.time
    if progress.steps > 2 and None not in times and not errors and progress.done < progress.last:
        seconds = (progress.time or 0) - (progress.seconds or 0)
        # Between a time with a date and one without, nothing is known.
        if bound < seconds < YEAR:
            stalls.append(_stall(one, seconds, progress.step, progress.last, is_fatal=True))
    return one._replace(found=[*one.found, *stalls])


def _stall(one: OneRank, seconds: int, step: int | None, number: int, *, is_fatal: bool) -> Found:
    """Return the event of a time without progress."""
    numbers: dict[str, int | str] = {"seconds": seconds}
    after = "" if step is None else f" after step {format_number(step)}"
    if step is not None:
        numbers["step"] = step
    if is_fatal and one.progress.seconds is not None:
        after += f" at {clock(one.progress.seconds)}"
    event = LogEvent(
        kind="silent stall",
        role="stall",
        category="stall" if is_fatal else "log warning",
        text=f"stalled: no progress for {grouped(seconds)} seconds{after}"
        f"{'' if is_fatal else ', then it went on'}",
        line=max(1, number),
        rank=one.rank,
        ranks=() if one.rank is None else (one.rank,),
        is_fatal=is_fatal,
        numbers=numbers,
        cause="The process waits in a collective, for input or output, or in a loop of the host.",
        remedy="Record the next run with jai-cli run --record: it writes the stacks of a stall.",
    )
    return Found(event, None, (), survived=False, is_weak=True, seconds=None)
