"""The processes of a timeline, their devices, and which of them stand and which wait."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ...base import quantities
from ...base.quantities import counted, format_device_ids, grouped
from .record import RecordStall

_LONGEST_MESSAGE = 120
"""Length of an error at which its rest is left out."""

ProcessState = Literal["running", "not heard from", "gone", "stopped", "exited", "raised"]
"""``running``: it wrote a line lately; ``not heard from``: it did not, and may run on another machine;
``gone``: it runs no longer and wrote no end, such as after a kill; the others as in ``RecordEnd``."""

_STATES: dict[ProcessState, str] = {
    "running": "is running",
    "not heard from": "has written nothing for a while",
    "gone": "was killed or crashed",
    "stopped": "stopped the record",
    "exited": "ended",
    "raised": "ended with an exception",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineDevice:
    """Memory of a device at the end of its record."""

    id: quantities.Difference
    """Id of the device."""

    name: str
    """Name, such as ``cuda:0``."""

    bytes_in_use: quantities.Size
    """Bytes in use in the last sample."""

    peak_nbytes: quantities.Size
    """Largest bytes in use: as the backend reports it, else in any sample."""

    bytes_limit: quantities.Size | None = None
    """Maximum number of bytes that can be allocated; None if the backend does not report it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineProcess:
    """Record of one run of a process. The segments of a process that was restarted are joined."""

    process: quantities.Size
    """Index of the process."""

    run: quantities.Size = 0
    """Number of the run, from 0: programs that had the same index at the same time are several runs."""

    run_count: quantities.Count = 1
    """Number of runs of processes with this index."""

    host_name: str
    """Name of its machine, of the last recorder."""

    pid: quantities.Size
    """Id of the process in its operating system."""

    job: str | None = None
    """Id of its job, as the scheduler names it; None without one."""

    platform: str
    """Platform of its devices."""

    start: quantities.Time
    """Time of the first sample, in seconds since 1970-01-01 UTC."""

    end: quantities.Time
    """Time of the last line."""

    every: float
    """Seconds between samples, as asked for."""

    state: ProcessState
    """Whether it runs or how it ended."""

    message: str = ""
    """First line of the exception that ended it; empty without one."""

    restarts: quantities.Size = 0
    """Number of recorders after the first."""

    sample_count: quantities.Size = 0
    """Number of samples."""

    step: quantities.Difference | None = None
    """Last step that the program named; None if it named none."""

    mark: str | None = None
    """Mark that was last; None if there is none or it ended."""

    stall: RecordStall | None = None
    """Its last step, if that did not end for so long that it was recorded as a stall; None if it ended, or
    the process ended its record."""

    in_use_source: Literal["allocator", "arrays"] = "arrays"
    """Source of the bytes in use, as in ``RecordStart``."""

    devices: tuple[TimelineDevice, ...] = ()
    """Its devices."""

    @property
    def name(self) -> str:
        """The process: ``process 0``, with its run if there are several.

        An example is ``process 0 (run 2: host gpu7, pid 4711, job 123_4)``.
        """
        if self.run_count == 1:
            return f"process {self.process}"
        job = "" if self.job is None else f", job {self.job}"
        return f"process {self.process} (run {self.run}: host {self.host_name}, pid {self.pid}{job})"

    @property
    def fullest(self) -> TimelineDevice | None:
        """The device with the highest peak; None without devices."""
        return max(self.devices, key=lambda device: device.peak_nbytes, default=None)

    @property
    def state_words(self) -> str:
        """The state, with how it ended: ``is running``, ``was killed or crashed``."""
        return _STATES[self.state]

    @property
    def ending(self) -> str:
        """The state, with the start of the exception that ended it."""
        if self.state != "raised" or not self.message:
            return self.state_words
        rest = "…" if len(self.message) > _LONGEST_MESSAGE else ""
        return f"ended with {self.message[:_LONGEST_MESSAGE]}{rest}"


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
