"""Processes of a job that stand in a step, or are no longer heard from, and those that wait for them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from ..quantities import counted, format_device_ids, grouped
from .timeline_process import TimelineProcess

Standing = Literal["lost", "ended", "runs", "stands"]
"""``lost``: it wrote nothing while others did; ``stands``: its step is a stall; ``runs``: neither."""
_ORDER: tuple[Standing, ...] = ("lost", "ended", "runs", "stands")
Group: TypeAlias = "tuple[Standing, list[TimelineProcess]]"

LEAST_PATIENCE, PATIENCE = 15.0, 5
"""A process that wrote nothing for so many seconds, and times the time between samples, is not heard from."""
_MOST_CLAUSES = 4


def standing_groups(processes: Sequence[TimelineProcess]) -> list[Group]:
    """Return processes that differ in their step or in what they do, those that others wait for first.

    These are lost, or in the lowest step; in the same step, they are the fewest in one place. Empty if no
    process stands or is lost. Processes from before the last one began are of another job.
    """
    began = max((one.start for one in processes), default=0.0)
    found = [one for one in processes if one.end >= began]
    latest = max((one.end for one in found), default=0.0)
    is_over = all(one.state in ("gone", "not heard from") for one in found)
    groups: dict[tuple[bool, float, int, str], list[TimelineProcess]] = {}
    for one in found:
        rank = _ORDER.index(_standing(one, latest, is_over))
        step = math.inf if one.step is None else one.step
        groups.setdefault((rank > 0, step, rank, "" if one.stall else one.state), []).append(one)
    kinds = [(_ORDER[rank], groups[*before, rank, state]) for *before, rank, state in sorted(groups)]
    if not {"lost", "stands"} & {kind for kind, _ in kinds}:
        return []
    first = _fewest(kinds[0][1]) if kinds[0][0] == "stands" else kinds[0][1]
    others = [one for one in kinds[0][1] if one not in first]
    return [(kinds[0][0], first), *([(kinds[0][0], others)] if others else []), *kinds[1:]]


def _standing(process: TimelineProcess, latest: float, is_over: bool) -> Standing:
    if process.stall is not None:
        return "stands"
    if process.state in ("stopped", "exited", "raised"):
        return "ended"
    silent = latest - process.end > max(LEAST_PATIENCE, PATIENCE * process.every)
    is_gone = process.state == "gone" and not is_over
    return "lost" if process.state != "running" and (silent or is_gone) else "runs"


def _fewest(processes: Sequence[TimelineProcess]) -> list[TimelineProcess]:
    """Return the processes in the place with the fewest; of several, one in no call that waits."""
    stalls = [(one, one.stall) for one in processes if one.stall is not None]
    counts = Counter((stall.place, stall.words) for _, stall in stalls)
    least = min(counts, key=lambda where: (counts[where], ", waiting in " in where[1]))
    return [one for one, stall in stalls if (stall.place, stall.words) == least]


def standing_words(processes: Sequence[TimelineProcess], time_words: Callable[[float], str]) -> str:
    """Return where processes stand, and which wait; empty if none stands or is lost.

    Args:
        processes: All processes of the record.
        time_words: Text of a moment.
    """
    groups = standing_groups(processes)
    clauses = [_clause(kind, group, time_words) for kind, group in groups[:1]]
    clauses += [
        _clause("waits" if kind == "stands" else kind, group, time_words)
        for kind, group in groups[1:_MOST_CLAUSES]
    ]
    left = sum(len(group) for _, group in groups[_MOST_CLAUSES:])
    return "; ".join([*clauses, *([counted(left, "more process", "more processes")] if left else [])])


_VERBS = {
    "stands": ("has stood", "have stood", "stood", "stood"),
    "waits": ("waits", "wait", "waited", "waited"),
    "runs": ("is", "are", "was", "were"),
    "ended": ("", "", "", ""),
    "lost": ("was", "were", "was", "were"),
}
"""For one process, for several, and both in the past."""


def _clause(
    kind: Standing | Literal["waits"], group: Sequence[TimelineProcess], time_words: Callable[[float], str]
) -> str:
    """Return what a group does."""
    one, is_live = group[0], any(each.state == "running" for each in group)
    subject = one.name if len(group) == 1 else counted(len(group), "process", "processes")
    if kind == "stands" and len(group) > 1 and all(each.run_count == 1 for each in group):
        subject = f"processes {format_device_ids([each.process for each in group])}"
    verb = f"{subject} {_VERBS[kind][(len(group) > 1) + 2 * (not is_live)]}"
    step = "" if one.step is None else f"step {grouped(one.step)}"
    until = ", ".join(filter(None, (time_words(max(each.end for each in group)), step)))
    if kind == "stands" and one.stall is not None:
        since = time_words(max(each.stall.since for each in group if each.stall is not None))
        when = f"since {since}" if is_live else f"from {since} to {time_words(one.end)}"
        return f"{verb} in {one.stall.place} {when}, {one.stall.words}"
    if kind in ("waits", "runs"):
        return f"{verb} in {step or 'no step'}{', not stalled' if kind == 'runs' else ''}"
    if kind == "ended":
        return f"{verb}{one.state_words} at {until}"
    return f"{verb} {'killed, or crashed, after' if one.state == 'gone' else 'last heard from at'} {until}"
