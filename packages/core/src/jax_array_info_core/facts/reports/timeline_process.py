"""The processes of a timeline, their devices, and which of them stand and which wait."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ...base import quantities
from ...base.grouping import by_key
from ...base.quantities import counted, duration_words, format_bytes, format_device_ids, grouped
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
    """Its last step, if that did not end for so long that it was recorded as a stall; before the third step,
    where its main thread has not run for as long. None if that ended, or the process ended its record."""

    in_use_source: Literal["allocator", "arrays"] = "arrays"
    """Source of the bytes in use, as in ``RecordStart``."""

    process_nbytes: quantities.Size | None = None
    """Its bytes in the memory of the host in the last sample (resident); None where it is not known. On the
    CPU backend, those of its arrays are among them."""

    first_process_nbytes: quantities.Size | None = None
    """The same in the first sample of its last recorder."""

    own_nbytes: quantities.Size | None = None
    """Part of them that the recorder's table of live arrays takes; None where it is not known."""

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
    def peak_name(self) -> str:
        """``peak``, or ``highest`` where the backend reports none: of the samples."""
        return "peak" if self.in_use_source == "allocator" else "highest"

    @property
    def fullest(self) -> TimelineDevice | None:
        """The device with the highest peak; None without devices."""
        return max(self.devices, key=lambda device: device.peak_nbytes, default=None)

    @property
    def host_words(self) -> str:
        """Its memory on the host: ``402.1 MiB, +240.8 MiB since its first sample``; empty if it is not known.

        The tables of the recorder, which are part of it, are named.
        """
        now, first = self.process_nbytes, self.first_process_nbytes
        if now is None or first is None:
            return ""
        sign = "+" if now > first else "-" if now < first else ""
        own = (
            f"; the recorder's table of arrays has {format_bytes(self.own_nbytes)}" if self.own_nbytes else ""
        )
        return f"{format_bytes(now)}, {sign}{format_bytes(abs(now - first))} since its first sample{own}"

    @property
    def state_words(self) -> str:
        """The state, with how it ended: ``is running``, ``was killed or crashed``."""
        return _STATES[self.state]

    @property
    def ending(self) -> str:
        """The state, with the start of the exception that ended it."""
        is_told = self.state == "raised" and self.message
        return f"ended with {self.short_message}" if is_told else self.state_words

    @property
    def short_message(self) -> str:
        """The start of the exception that ended it."""
        rest = "…" if len(self.message) > _LONGEST_MESSAGE else ""
        return f"{self.message[:_LONGEST_MESSAGE]}{rest}"

    @property
    def resting(self) -> str:
        """Where its main thread has not run for 60 seconds or more, without a step; empty if it runs.

        An example is ``main thread at fetch, no_step.py:11, for 1 min 30 s``.
        """
        stall = self.stall
        if stall is None or stall.step is not None or stall.origin is None or stall.waits_for_devices:
            return ""  # a look now and then does not tell that it waits for the same devices
        waiting = f", waiting in {stall.waits_in}" if stall.waits_in else ""
        place = f"{stall.origin.function}, {stall.origin.place}"
        return f"main thread at {place}{waiting}, for {duration_words(self.end - stall.since)}"


LEAST_PATIENCE, PATIENCE = 15.0, 5
"""A process that wrote nothing for so many seconds, and times the time between samples, is not heard from."""
_SILENT = ("gone", "not heard from")
_MOST_CLAUSES = 4

_WORDS = {
    "gone": "{who} killed, or crashed, after {until}{step}{later}",
    "not heard from": "{who} last heard from at {until}{step}{later}",
    "ended": "{who} {state}{first} at {until}{step}{message}",
    "stands": "{who} {has} stood in {place} since {since}{words}",
    "stood": "{who} stood in {place} from {since} to {until}{words}",
    "runs": "{who} without a stall{in_step}",
    "waits": "{who} {has} waited for devices in {place} since {since}{words}",
    "waited": "{who} waited for devices in {place} from {since} to {until}{words}",
}
"""Clause of processes, by what they do. The first two wrote nothing more."""
_WAITS = {**_WORDS, "waits": "{who} {waits}{for_it}", "waited": "{who} waited{for_it}"}
"""Clause of processes that are not the first."""
STALLED = ("stands", "stood", "waits", "waited")
"""What processes do whose step does not end."""
_ENDS = ("gone", "not heard from", "ended")
_CAUSES = (*_ENDS, "stands", "stood")
"""What other processes may wait for."""


def standing_groups(processes: Sequence[TimelineProcess]) -> list[tuple[str, list[TimelineProcess]]]:
    """Return processes that differ in what they do, those that others may wait for first.

    These have ended, are no longer heard from, or stand in a line that waits for no device: in the order of
    time, and of several places that of the lowest step, then that of the fewest. A process that waits for
    devices comes last: it tells nothing of the cause. Empty if nothing is wrong. Processes that ended before
    another began are left out.
    """
    began = max((member.start for member in processes), default=0.0)
    active = [member for member in processes if member.end >= began]
    latest = max((member.end for member in active), default=0.0)
    stalls = [member.stall for member in active if member.stall]
    # Without steps, a main thread that does not run may be as it should be, unless others wait meanwhile.
    are_waiting = {stall.waits_for_devices for stall in stalls}
    has_stalls = any(stall.step is not None for stall in stalls) or len(are_waiting) == 2
    is_running = any(member.state == "running" for member in active)
    with_kinds = ((_kind(process, latest, has_stalls, is_running), process) for process in active)
    groups = by_key(((kind, *_distinct(kind, process, latest)), process) for kind, process in with_kinds)
    kinds = [(str(key[0]), members) for key, members in groups.items()]
    is_wrong = has_stalls or (
        len(active) > 1 and any(kind in _SILENT or members[0].state == "raised" for kind, members in kinds)
    )
    since = min((stall.since for stall in stalls), default=0.0)
    return sorted(kinds, key=lambda pair: _order(pair[0], pair[1], since)) if is_wrong else []


def _kind(process: TimelineProcess, latest: float, has_stalls: bool, is_running: bool) -> str:
    """Return what a process does, as a key of the clauses."""
    if process.stall is not None and has_stalls:
        now, then = ("waits", "waited") if process.stall.waits_for_devices else ("stands", "stood")
        return now if process.state == "running" else then
    if process.state not in _SILENT:
        return "runs" if process.state == "running" else "ended"
    is_told = process.state == "gone" or not is_running or _is_early(process, latest)
    return process.state if is_told else "runs"


def _is_early(process: TimelineProcess, latest: float) -> bool:
    """Return whether a process wrote its last line well before others did."""
    return latest - process.end > max(LEAST_PATIENCE, PATIENCE * process.every)


def _distinct(kind: str, process: TimelineProcess, latest: float) -> tuple[object, ...]:
    """Return what processes of one group have in common."""
    if kind in ("stands", "stood") and process.stall is not None:
        return process.step, process.stall.place, process.stall.words
    if kind == "ended":
        return process.state, process.message
    # A job that was killed as a whole is one group.
    return (process.step,) if kind not in _SILENT or _is_early(process, latest) else ()


def _order(kind: str, group: Sequence[TimelineProcess], since: float) -> tuple[bool, float, int, float, int]:
    """Return the key by which groups are sorted.

    Args:
        kind: What its processes do.
        group: The processes.
        since: Time at which the first stall began.
    """
    time = min(member.end for member in group) if kind in _ENDS else since
    least = min(math.inf if member.step is None else member.step for member in group)
    is_cause = kind in _CAUSES
    return not is_cause, time if is_cause else 0.0, [*_WORDS].index(kind), least, len(group)


def standing_words(processes: Sequence[TimelineProcess], time_words: Callable[[float], str]) -> str:
    """Return how processes ended or where they stand, and which wait; empty if nothing is wrong.

    Args:
        processes: All processes of the record.
        time_words: Text of a moment.
    """
    groups = standing_groups(processes)
    count = sum(len(group) for _, group in groups)
    ends = sum(kind in _ENDS for kind, _ in groups)
    clauses = [
        _clause((_WAITS if number else _WORDS)[kind], group, time_words, count, not number and ends > 1)
        for number, (kind, group) in enumerate(groups[:_MOST_CLAUSES])
    ]
    if hidden := sum(len(group) for _, group in groups[_MOST_CLAUSES:]):
        clauses.append(counted(hidden, "more process", "more processes"))
    return "; ".join(clauses)


def _clause(
    form: str,
    group: Sequence[TimelineProcess],
    time_words: Callable[[float], str],
    count: int,
    is_first: bool,
) -> str:
    """Return the clause of a group.

    Args:
        form: Its form.
        group: The processes.
        time_words: Text of a moment.
        count: Number of processes in all groups.
        is_first: Whether it ended before others did.
    """
    leader, stalls = group[0], [member.stall for member in group if member.stall is not None]
    who = leader.name if len(group) == 1 else counted(len(group), "process", "processes")
    if len(group) == count > 1:
        who = "both processes" if count == 2 else f"all {who}"
    elif len(group) > 1 and "wait" not in form and all(member.run_count == 1 for member in group):
        who = f"processes {format_device_ids([member.process for member in group])}"
    steps = sorted({member.step for member in group if member.step is not None})
    step = f"step {' to '.join(map(grouped, dict.fromkeys((steps[0], steps[-1]))))}" if steps else ""
    words = stalls[0].words if stalls else ""
    ends = dict.fromkeys(time_words(find(member.end for member in group)) for find in (min, max))
    return form.format(
        who=who,
        has="has" if len(group) == 1 else "have",
        waits="waits" if len(group) == 1 else "wait",
        state="ended" if leader.message else leader.state_words,
        first=" first," if is_first and leader.state == "raised" else "",
        message=f": {leader.short_message}" if leader.message else "",
        step=step and f", {step}",
        in_step=step and f" in {step}",
        for_it=f" in {step}" if step else " for devices",
        later=" or later" if step else "",
        until=" to ".join(ends),
        since=time_words(max((stall.since for stall in stalls), default=0.0)),
        place=stalls[0].place if stalls else "",
        words=words and f", {words}",
    )
