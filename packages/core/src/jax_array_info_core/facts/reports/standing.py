"""Processes of a job that stand in a step, or are no longer heard from, and those that wait for them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from ...base.quantities import counted, format_device_ids, grouped
from .timeline_process import TimelineProcess

LEAST_PATIENCE, PATIENCE = 15.0, 5
"""A process that wrote nothing for so many seconds, and times the time between samples, is not heard from."""
_SILENT, _ENDED = ("gone", "not heard from"), ("stopped", "exited", "raised")
_MOST_CLAUSES = 4

_WORDS = {
    "gone": "{who} killed, or crashed, after {until}, {step}",
    "not heard from": "{who} last heard from at {until}, {step}",
    "ended": "{who} {state} at {until}, {step}",
    "runs": "{who} without a stall in {step}",
    "stands": "{who} {has} stood in {place} since {since}, {words}",
    "stood": "{who} stood in {place} from {since} to {until}, {words}",
}
"""Clause of processes, by what they do. The first two wrote nothing while others did."""
_WAITS = {**_WORDS, "stands": "{who} {waits} in {step}", "stood": "{who} waited in {step}"}
"""Clause of processes that are not the first."""


def standing_groups(processes: Sequence[TimelineProcess]) -> list[tuple[str, list[TimelineProcess]]]:
    """Return processes that differ in their step or in what they do, those that others wait for first.

    These are no longer heard from, or in the lowest step; in the same step, they are the fewest in one place.
    Empty if none stands, all are heard from, and all that ended raised an exception, or none did. Processes
    that ended before another began are left out.
    """
    began = max((member.start for member in processes), default=0.0)
    active = [member for member in processes if member.end >= began]
    latest = max((member.end for member in active), default=0.0)
    is_over = all(member.state in _SILENT for member in active)
    groups: dict[tuple[bool, float, int, bool, str], list[TimelineProcess]] = {}
    for process in active:
        rank = [*_WORDS].index(_kind(process, latest, is_over))
        step = math.inf if process.step is None else process.step
        groups.setdefault((rank > 1, step, rank, process.state == "raised", process.state), []).append(
            process
        )
    kinds = [([*_WORDS][key[2]], groups[key]) for key in sorted(groups)]
    is_early = len({member.state == "raised" for member in active if member.state in _ENDED}) > 1
    if {kind for kind, _ in kinds} <= {"ended", "runs"} and not is_early:
        return []
    (kind, first), *later = kinds
    # In one step, the fewest in one place; of several places, one that is no call.
    counts = Counter(map(_place, first))
    least = min(counts, key=lambda place: (counts[place], ", waiting in " in place))
    few, others = (
        [member for member in first if (_place(member) == least) is is_few] for is_few in (True, False)
    )
    return [(kind, few), *([(kind, others)] if others else []), *later]


def _kind(process: TimelineProcess, latest: float, is_over: bool) -> str:
    """Return what a process does, as a key of the clauses."""
    if process.stall is not None:
        return "stands" if process.state == "running" else "stood"
    if process.state not in _SILENT:
        return "runs" if process.state == "running" else "ended"
    is_silent = latest - process.end > max(LEAST_PATIENCE, PATIENCE * process.every)
    return process.state if is_silent or (process.state == "gone" and not is_over) else "runs"


def _place(process: TimelineProcess) -> str:
    return "" if process.stall is None else f"{process.stall.place}, {process.stall.words}"


def standing_words(processes: Sequence[TimelineProcess], time_words: Callable[[float], str]) -> str:
    """Return which process stands where, or is no longer heard from, and which wait; empty if none does.

    Args:
        processes: All processes of the record.
        time_words: Text of a moment.
    """
    groups = standing_groups(processes)
    clauses = [
        _clause((_WAITS if number else _WORDS)[kind], group, time_words)
        for number, (kind, group) in enumerate(groups[:_MOST_CLAUSES])
    ]
    if hidden := sum(len(group) for _, group in groups[_MOST_CLAUSES:]):
        clauses.append(counted(hidden, "more process", "more processes"))
    return "; ".join(clauses)


def _clause(form: str, group: Sequence[TimelineProcess], time_words: Callable[[float], str]) -> str:
    leader, stalls = group[0], [member.stall for member in group if member.stall is not None]
    who = leader.name if len(group) == 1 else counted(len(group), "process", "processes")
    if len(group) > 1 and "{place}" in form and all(member.run_count == 1 for member in group):
        who = f"processes {format_device_ids([member.process for member in group])}"
    return form.format(
        who=who,
        has="has" if len(group) == 1 else "have",
        waits="waits" if len(group) == 1 else "wait",
        state=leader.state_words,
        step="no step" if leader.step is None else f"step {grouped(leader.step)}",
        until=time_words(max(member.end for member in group)),
        since=time_words(max((stall.since for stall in stalls), default=0.0)),
        place=stalls[0].place if stalls else "",
        words=stalls[0].words if stalls else "",
    )
