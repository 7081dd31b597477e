"""The report on a memory record, finished or still written."""

from __future__ import annotations

import itertools
import math
import os
import time as clock
from collections.abc import Sequence
from pathlib import Path

from ..errors import FileFormatError, UnsupportedValueError
from ..quantities import format_device_ids
from ..reports.record import RecordStart
from ..reports.timeline import TimelineOutOfMemory, TimelineReport, UnreadRecord
from ..reports.timeline_process import ProcessState, TimelineDevice, TimelineProcess
from ..stored.leaves import Progress
from ..text import printable
from .analysis import DeviceHistory
from .history import NO_STEP, History, SegmentLines, open_mark
from .reading import SUFFIX, SegmentReader, files_of, unread_of
from .running import is_gone

_PATIENCE, _LEAST_PATIENCE = 5, 15.0
"""A process that wrote nothing for so many times the time between samples is not heard from; the least, in
seconds."""
_LONGEST_SKEW = 60.0
"""Seconds by which a process that starts again, on another machine, may seem to start too early."""
_MOST_UNREAD = 100


def timeline_report(
    folder: str | os.PathLike[str],
    *,
    process: int | None = None,
    device: int | None = None,
    last: float | None = None,
    on_progress: Progress | None = None,
) -> TimelineReport:
    """Return the memory of a job over time, from the record that ``record_memory`` writes.

    The record may be finished, or still be written: it is only read, and an incomplete line is left out.
    Files that cannot be read are listed in ``unread``.

    Args:
        folder: Folder of the record.
        process: Index of the process of the timeline. Defaults to the one with the highest peak.
        device: Id of the device of the timeline. Defaults to that of the process with the highest peak.
        last: Number of seconds before the last sample to look at. Defaults to the whole record.
        on_progress: Function that is called with the number of files that were read, and of all files.

    Raises:
        FileFormatError: (a ValueError) If the folder has no record, or none that can be read.
        UnsupportedValueError: (a ValueError) If there is no such process or device in the record.
        ValueError: If ``last`` is not a positive number of seconds.
        OSError: If the folder cannot be read.
    """
    follower = Follower(folder)
    return follower.report(process=process, device=device, last=last, on_progress=on_progress)


class Follower:
    """A record that is read while it is written. Each report reads only what is new.

    Args:
        folder: Folder of the record.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._segments: dict[Path, SegmentReader] = {}
        self._histories: dict[int, History] = {}
        self._lines: dict[Path, SegmentLines] = {}

    def report(
        self,
        *,
        process: int | None = None,
        device: int | None = None,
        last: float | None = None,
        on_progress: Progress | None = None,
    ) -> TimelineReport:
        """Return the report, as ``timeline_report`` does.

        With ``last``, samples before this time are forgotten, also for later reports.
        """
        if last is not None and not last > 0:
            raise ValueError(f"last must be a positive number of seconds, got {last!r}")

        self._read(process, last, on_progress)
        read_at = clock.time()
        histories = {index: one for index, one in sorted(self._histories.items()) if one.sample_count}
        unread = self._unread()
        if not histories:
            raise FileFormatError(_nothing(self._folder, len(self._segments), unread))
        processes = tuple(_process(index, one, read_at) for index, one in histories.items())
        chosen = _chosen(processes, process, device)
        found = DeviceHistory(histories[chosen[0]], chosen[1])
        points = found.points()
        return TimelineReport(
            folder=str(self._folder),
            processes=processes,
            process_count=max(one.starts[-1].process_count for one in histories.values()),
            process=chosen[0],
            device=chosen[1],
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
                    process=index,
                    time=error.time,
                    message=error.message,
                    requested_nbytes=error.requested_nbytes,
                    step=error.step,
                    mark=open_mark(spans, error.time),
                )
                for index, one in histories.items()
                for spans in [one.spans()]
                for error in one.errors
            ),
            unread=unread,
            read_at=read_at,
        )

    def _read(self, process: int | None, last: float | None, on_progress: Progress | None) -> None:
        """Read the new lines of all segments, those of a process in the order of their start.

        Without ``last``, only the samples of the process are kept, or of the one with the highest peak.
        """
        for path in files_of(self._folder):
            if path not in self._segments:
                self._segments[path] = SegmentReader(path)
        opened = [(one.start, one) for one in self._segments.values() if one.open_start() and one.start]
        opened.sort(key=lambda pair: (pair[0].process, pair[0].started, pair[0].segment))
        kept: History | None = None
        for number, (start, segment) in enumerate(opened):
            if on_progress is not None:
                on_progress(number, len(opened))
            self._read_segment(start, segment)
            history = self._histories.get(start.process)
            is_last = number + 1 == len(opened) or opened[number + 1][0].process != start.process
            if history is not None and is_last:
                if last is not None:
                    history.forget_before(history.last - last)
                elif process not in (None, start.process) or (kept and kept.peak >= history.peak):
                    history.forget_before(math.inf)
                else:
                    if kept is not None:
                        kept.forget_before(math.inf)
                    kept = history

    def _read_segment(self, start: RecordStart, segment: SegmentReader) -> None:
        lines = self._lines.get(segment.path)
        if lines is None:
            history = self._histories.setdefault(start.process, History())
            other = history.starts[-1] if history.starts else start
            if start.started != other.started and start.time < history.last - _LONGEST_SKEW:
                segment.problem = (
                    f"written at the same time as another record of process {start.process}, by process id "
                    f"{other.pid} on {printable(other.host_name)}: use one folder for each job"
                )
                return
            try:
                lines = self._lines[segment.path] = history.segment(start)
            except FileFormatError as error:
                segment.problem = str(error)
                return
        for line in segment.new_lines():
            try:
                lines.add(line)
            except FileFormatError as error:
                segment.leave_out(str(error))

    def _unread(self) -> tuple[UnreadRecord, ...]:
        reasons = ((path.name, unread_of(segment)) for path, segment in sorted(self._segments.items()))
        found = (UnreadRecord(name=name, reason=reason) for name, reason in reasons if reason)
        return tuple(itertools.islice(found, _MOST_UNREAD))


def _nothing(folder: Path, count: int, unread: Sequence[UnreadRecord]) -> str:
    """Return the message for a folder without samples."""
    if unread:
        first = unread[0]
        return f"none of {count} files could be read; {printable(first.name)}: {first.reason}"
    return f"no memory record (files that end in {SUFFIX}): write one with record_memory({str(folder)!r})"


def _chosen(processes: Sequence[TimelineProcess], process: int | None, device: int | None) -> tuple[int, int]:
    """Return the process and the device of the timeline.

    Raises:
        UnsupportedValueError: If there is none with this index or id.
    """
    found = [one for one in processes if process in (None, one.process)]
    if not found:
        known = format_device_ids([one.process for one in processes])
        raise UnsupportedValueError(f"process={process!r} is not in the record: it has {known}")
    pairs = [(one, of) for one in found for of in one.devices if device in (None, of.id)]
    if not pairs:
        known = format_device_ids([of.id for one in found for of in one.devices]) or "none"
        raise UnsupportedValueError(f"device={device!r} is not in the record: it has {known}")
    one, of = max(pairs, key=lambda pair: pair[1].peak_nbytes)
    return one.process, of.id


def _process(index: int, history: History, read_at: float) -> TimelineProcess:
    start = history.starts[-1]
    end = history.end
    return TimelineProcess(
        process=index,
        host_name=start.host_name,
        pid=start.pid,
        platform=start.platform,
        start=history.first,
        end=history.last,
        every=start.every,
        state=_state(history, start, read_at),
        message=end.message if end else "",
        restarts=len(history.starts) - 1,
        sample_count=history.sample_count,
        step=history.step,
        mark=open_mark(history.spans(), history.last),
        in_use_source=start.in_use_source,
        devices=tuple(
            TimelineDevice(
                id=device.id,
                name=device.name,
                bytes_in_use=history.now[device.id],
                peak_nbytes=history.peaks[device.id],
                bytes_limit=device.bytes_limit,
            )
            for device in sorted(history.devices.values(), key=lambda device: device.id)
            if device.id in history.now
        ),
    )


def _state(history: History, start: RecordStart, read_at: float) -> ProcessState:
    if history.end is not None:
        return history.end.reason
    if is_gone(start):
        return "gone"
    silent = read_at - history.last
    return "running" if silent < max(_LEAST_PATIENCE, _PATIENCE * start.every) else "not heard from"
