"""The report on a memory record, finished or still written, and the runs of each process.

A run is the recorders that continue each other.
"""

from __future__ import annotations

import itertools
import math
import os
import time as clock
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from ...base.errors import FileFormatError, UnsupportedValueError
from ...base.files import Progress
from ...base.grouping import by_key
from ...base.quantities import format_device_ids
from ...base.text import printable
from ...facts.reports.record import RecordDevice, RecordEnd, RecordStart
from ...facts.reports.timeline import (
    TimelineOutOfMemory,
    TimelineRecompilation,
    TimelineReport,
    UnreadRecord,
)
from ...facts.reports.timeline_process import (
    LEAST_PATIENCE,
    PATIENCE,
    ProcessState,
    TimelineDevice,
    TimelineProcess,
)
from .analysis import DeviceHistory
from .history import History, Room
from .marks import OpenMarks
from .reading import SUFFIX, SegmentReader, files_of
from .samples import NO_STEP
from .segments import is_gone, is_written

_LONGEST_SKEW = 60.0
"""Seconds by which a process that starts again on another machine may seem to start too early."""
_MOST_CANDIDATES = 8
"""Number of earlier recorders that are compared: those that ended last."""


class Recorder(NamedTuple):
    """A recorder, with its segments in their order."""

    start: RecordStart
    segments: tuple[SegmentReader, ...]


@dataclass(frozen=True, slots=True)
class Earlier:
    """What a record tells about a recorder that began earlier."""

    start: RecordStart
    last: float
    """Time of its last line."""

    has_end: bool
    """Whether that line is its end."""

    is_written: Callable[[], bool]
    """Returns whether a process holds the lock of its last segment."""


def is_restart(start: RecordStart, earlier: Earlier) -> bool:
    """Return whether a recorder continues an earlier one of the same process index; else it is another run.

    It does if the earlier one was over before it started, and has its end line or was of the same job.
    Another rank, or another task of a job array, is always another run. The clocks of two machines may
    differ: by any time within a job, by a minute where no job is known.

    Args:
        start: First line of the recorder.
        earlier: The earlier recorder.
    """
    job, other = start.job, earlier.start.job
    if start.rank != earlier.start.rank or _task(job) != _task(other):
        return False
    skew = 0.0
    if start.host_name != earlier.start.host_name and job == other:
        skew = _LONGEST_SKEW if job is None else math.inf
    was_over = earlier.last - start.started <= skew
    return was_over and (earlier.has_end or (job == other and not earlier.is_written()))


def _task(job: str | None) -> str:
    """Return the number of a task in its array; empty for another job."""
    return "" if job is None else job.partition("_")[2]


def runs_of(segments: Iterable[SegmentReader]) -> Iterator[tuple[int, list[list[Recorder]]]]:
    """Yield each process index with its runs by their start, each as its recorders one after the other.

    Args:
        segments: Segments whose first line was read.
    """
    pairs = [(segment.start, segment) for segment in segments if segment.start is not None]
    pairs.sort(key=lambda pair: (pair[0].process, pair[0].recorder, pair[0].segment))
    for process, of_process in groupby(pairs, key=lambda pair: pair[0].process):
        groups = ([*of_recorder] for _, of_recorder in groupby(of_process, key=lambda pair: pair[0].recorder))
        recorders = [Recorder(rows[0][0], tuple(segment for _, segment in rows)) for rows in groups]
        yield process, _joined(recorders) if len(recorders) > 1 else [recorders]


def _joined(recorders: Iterable[Recorder]) -> list[list[Recorder]]:
    """Return the runs of the recorders of a process, which are in the order of their start."""
    runs: list[list[Recorder]] = []
    ends: list[Earlier] = []
    of_job: dict[tuple[int | None, str | None], int] = {}
    of_rank: dict[int | None, list[tuple[float, int]]] = {}
    for recorder in recorders:
        start = recorder.start
        by_end = of_rank.setdefault(start.rank, [])
        place = bisect_right(by_end, (start.started + _LONGEST_SKEW, len(runs)))
        by_time = [number for _, number in by_end[max(place - _MOST_CANDIDATES, 0) : place]]
        same_job = [of_job[key]] if (key := (start.rank, start.job)) in of_job else []
        run = next(
            (one for one in [*same_job, *reversed(by_time)] if is_restart(start, ends[one])), len(runs)
        )
        if run == len(runs):
            runs.append([])
            ends.append(_earlier(recorder))
        else:
            del by_end[bisect_left(by_end, (ends[run].last, run))]
            ends[run] = _earlier(recorder)
        runs[run].append(recorder)
        by_end.insert(bisect_left(by_end, (ends[run].last, run)), (ends[run].last, run))
        of_job[key] = run
    return runs


def _earlier(recorder: Recorder) -> Earlier:
    """Return what the end of a recorder's last segment tells."""
    segment = recorder.segments[-1]
    line = segment.last_line() or segment.start or recorder.start
    return Earlier(recorder.start, line.time, isinstance(line, RecordEnd), partial(is_written, segment.path))


_MOST_UNREAD = 100
_MOST_ERRORS = 1000
_OF_DEVICE = 4
"""Numbers of a device."""


def timeline_report(
    folder: str | os.PathLike[str],
    *,
    process: int | None = None,
    run: int | None = None,
    device: int | None = None,
    last: float | None = None,
    on_progress: Progress | None = None,
) -> TimelineReport:
    """Return the memory of a job over time, from the record that ``record_memory`` writes.

    The record may be finished, or still be written: it is only read, and an incomplete line is left out.
    Files that cannot be read are listed in ``unread``.

    A process that was started again is one run. Processes with the same index at the same time, such as the
    tasks of a job array, are several runs, each with its own entry in ``processes``.

    Args:
        folder: Folder of the record.
        process: Index of the process of the timeline. Defaults to the one with the highest peak.
        run: Number of its run, from 0. Defaults to the one with the highest peak.
        device: Id of the device of the timeline. Defaults to that of the process with the highest peak.
        last: Number of seconds before the last sample to look at. Defaults to the whole record.
        on_progress: Function that is called with the number of files that were read, and of all files.

    Raises:
        FileFormatError: (a ValueError) If the folder has no record, or none that can be read.
        UnsupportedValueError: (a ValueError) If there is no such process, run or device in the record.
        ValueError: If ``last`` is not a positive number of seconds.
        OSError: If the folder cannot be read.
    """
    follower = Follower(folder)
    return follower.report(process=process, run=run, device=device, last=last, on_progress=on_progress)


class Follower:
    """A record that is read while it is written. Each report reads only what is new.

    Args:
        folder: Folder of the record.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._begin()

    def _begin(self) -> None:
        """Forget all that was read."""
        self._segments: dict[Path, SegmentReader] = {}
        self._devices: dict[tuple[RecordDevice, ...], tuple[RecordDevice, ...]] = {}
        self._recorders: dict[_Run, list[object]] = {}
        self._room = Room()
        self._histories: dict[_Run, History] = defaultdict(lambda: History(self._room))

    def report(
        self,
        *,
        process: int | None = None,
        run: int | None = None,
        device: int | None = None,
        last: float | None = None,
        on_progress: Progress | None = None,
    ) -> TimelineReport:
        """Return the report, as ``timeline_report`` does.

        With ``last``, samples before this time are forgotten, also for later reports.
        """
        if last is not None and not last > 0:
            raise ValueError(f"last must be a positive number of seconds, got {last!r}")

        self._read((process, run), last, on_progress)
        read_at = clock.time()
        histories = {one: found for one, found in sorted(self._histories.items()) if found.sample_count}
        unread = self._unread()
        if not histories:
            raise FileFormatError(_nothing(self._folder, len(self._segments), unread))
        run_counts = Counter(one.process for one in histories)
        processes, errors = [], []
        for one, history in histories.items():
            marks = OpenMarks(history.spans())
            processes.append(_process(one, run_counts[one.process], history, marks, read_at))
            errors += [(error, one, marks.at(error.time)) for error in history.errors]
        errors = sorted(errors, key=lambda error: error[0].time)[-_MOST_ERRORS:]
        chosen = _chosen(processes, process, run, device)
        history = histories[_Run(chosen[0], chosen[1])]
        found = DeviceHistory(history, chosen[2])
        points = found.points()
        return TimelineReport(
            folder=str(self._folder),
            processes=tuple(processes),
            process_count=max(one.starts[-1].process_count for one in histories.values()),
            process=chosen[0],
            run=chosen[1],
            device=chosen[2],
            thinned=history.is_thinned,
            times=tuple(map(float, found.times[points])),
            steps=tuple(None if step == NO_STEP else int(step) for step in found.steps[points]),
            in_use=tuple(map(int, found.use[points])),
            series=found.series(points),
            peak=found.peak(),
            growth=found.growth(),
            is_growth_known=found.is_growth_known,
            jumps=found.jumps(),
            marks=found.marks(),
            out_of_memory=tuple(
                TimelineOutOfMemory(
                    process=one.process,
                    run=one.number,
                    time=error.time,
                    message=error.message,
                    requested_nbytes=error.requested_nbytes,
                    step=error.step,
                    mark=mark,
                )
                for error, one, mark in sorted(errors, key=lambda error: error[1])
            ),
            recompilations=tuple(_recompilations(histories)),
            unread=unread,
            read_at=read_at,
        )

    def _read(
        self, asked: tuple[int | None, int | None], last: float | None, on_progress: Progress | None
    ) -> None:
        """Read the new lines of all segments, run by run in the order of their start.

        Without ``last``, only the samples of one run are kept: of those asked for, the one with the highest
        peak.
        """
        runs = self._runs()
        count, number = sum(len(one.segments) for found in runs.values() for one in found), 0
        kept: History | None = None
        highest = -1
        for run, recorders in runs.items():
            history = self._histories[run]
            for segment in (segment for one in recorders for segment in one.segments):
                if on_progress is not None:
                    on_progress(number, count)
                number += 1
                segment.read_into(history)
            if last is not None:
                history.forget_before(history.last - last)
                continue
            is_asked_for = all(of in (None, one) for of, one in zip(asked, run, strict=True))
            if not is_asked_for or (peak := max(history.peaks.values(), default=0)) <= highest:
                history.forget_before(math.inf)
                continue
            if kept is not None:
                kept.forget_before(math.inf)
            kept, highest = history, peak

    def _runs(self) -> dict[_Run, list[Recorder]]:
        """Return the recorders of each run.

        What becomes known of an earlier recorder may tell that another one did not continue it. Then all is
        read again.
        """
        for path in files_of(self._folder):
            if path not in self._segments:
                self._segments[path] = SegmentReader(path)
        opened = [segment for segment in self._segments.values() if self._open(segment)]
        runs = {
            _Run(process, number): recorders
            for process, found in runs_of(opened)
            for number, recorders in enumerate(found)
        }
        before, self._recorders = self._recorders, {run: [*map(_key, found)] for run, found in runs.items()}
        if any(self._recorders.get(run, [])[: len(found)] != found for run, found in before.items()):
            self._begin()
            return self._runs()
        return runs

    def _open(self, segment: SegmentReader) -> bool:
        """Read the first line of a segment, and return whether there is one.

        The devices of a recorder, which all of its segments name, are kept once.
        """
        is_new = segment.start is None
        if segment.open_start() and is_new and segment.start is not None:
            devices = segment.start.devices
            try:
                if devices not in self._devices:
                    self._room.take(_OF_DEVICE * len(devices))
                devices = self._devices.setdefault(devices, devices)
                segment.start = replace(segment.start, devices=devices)
            except FileFormatError as error:
                segment.problem = str(error)
        return segment.start is not None and not segment.problem

    def _unread(self) -> tuple[UnreadRecord, ...]:
        reasons = ((path.name, segment.unread) for path, segment in sorted(self._segments.items()))
        found = (UnreadRecord(name=name, reason=reason) for name, reason in reasons if reason)
        return tuple(itertools.islice(found, _MOST_UNREAD))


class _Run(NamedTuple):
    process: int
    number: int


def _recompilations(histories: Mapping[_Run, History]) -> Iterator[TimelineRecompilation]:
    """Yield the recompilations of all processes, alike ones together, by their time."""
    lines = [(line, run) for run, history in histories.items() for line in history.recompilations]
    lines.sort(key=lambda pair: pair[0].time)
    for (function, origin, reason), alike in by_key(
        ((line.function, line.origin, line.reason), (line, run)) for line, run in lines
    ).items():
        of_runs = by_key((run, line.seconds) for line, run in alike).values()
        yield TimelineRecompilation(
            function=function,
            origin=origin,
            reason=reason,
            time=alike[0][0].time,
            step=alike[0][0].step,
            processes=tuple(sorted({run.process for _, run in alike})),
            count=max(map(len, of_runs)),
            seconds=max(map(sum, of_runs)),
        )


def _key(recorder: Recorder) -> object:
    return recorder.start.recorder


def _nothing(folder: Path, count: int, unread: Sequence[UnreadRecord]) -> str:
    """Return the message for a folder without samples."""
    if unread:
        first = unread[0]
        return f"none of {count} files could be read; {printable(first.name)}: {first.reason}"
    return f"no memory record (files that end in {SUFFIX}): write one with record_memory({str(folder)!r})"


def _chosen(
    processes: Sequence[TimelineProcess], process: int | None, run: int | None, device: int | None
) -> tuple[int, int, int]:
    """Return the process, the run and the device of the timeline.

    Raises:
        UnsupportedValueError: If there is none with this index, number or id.
    """
    found: Sequence[TimelineProcess] = processes
    for field, asked in (("process", process), ("run", run)):
        known = sorted({getattr(one, field) for one in found})
        found = [one for one in found if asked in (None, getattr(one, field))]
        if not found:
            words = format_device_ids(known)
            raise UnsupportedValueError(f"{field}={asked!r} is not in the record: it has {words}")
    pairs = [(one, of) for one in found for of in one.devices if device in (None, of.id)]
    if not pairs:
        words = format_device_ids([of.id for one in found for of in one.devices]) or "none"
        raise UnsupportedValueError(f"device={device!r} is not in the record: it has {words}")
    one, of = max(pairs, key=lambda pair: pair[1].peak_nbytes)
    return one.process, one.run, of.id


def _process(
    run: _Run, run_count: int, history: History, marks: OpenMarks, read_at: float
) -> TimelineProcess:
    start = history.starts[-1]
    end, peaks = history.end, history.peaks
    return TimelineProcess(
        process=run.process,
        run=run.number,
        run_count=run_count,
        host_name=start.host_name,
        pid=start.pid,
        job=start.job,
        platform=start.platform,
        start=history.first,
        end=history.last,
        every=start.every,
        state=_state(history, start, read_at),
        message=end.message if end else "",
        restarts=len(history.starts) - 1,
        sample_count=history.sample_count,
        step=history.step,
        mark=marks.at(history.last),
        stall=None if end else history.stall,
        in_use_source=start.in_use_source,
        process_nbytes=history.process_nbytes[1],
        first_process_nbytes=history.process_nbytes[0],
        own_nbytes=history.own_nbytes,
        devices=tuple(
            TimelineDevice(
                id=device,
                name=history.devices[device].name,
                bytes_in_use=in_use,
                peak_nbytes=peaks[device],
                bytes_limit=history.devices[device].bytes_limit,
            )
            for device, in_use in sorted(history.now.items())
        ),
    )


def _state(history: History, start: RecordStart, read_at: float) -> ProcessState:
    if history.end is not None:
        return history.end.reason
    if is_gone(start):
        return "gone"
    silent = read_at - history.last
    return "running" if silent < max(LEAST_PATIENCE, PATIENCE * start.every) else "not heard from"
