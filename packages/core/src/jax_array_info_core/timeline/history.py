"""The samples of one process in columns, and its marks."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import FileFormatError
from ..growth.snapshot import Site
from ..reports.origin import Origin
from ..reports.record import (
    RecordDevice,
    RecordEnd,
    RecordGroup,
    RecordLine,
    RecordMark,
    RecordOutOfMemory,
    RecordSample,
    RecordStart,
)

Numbers = npt.NDArray[np.int64]
Times = npt.NDArray[np.float64]

_MOST_SAMPLES = 2**18
"""Maximum number of samples: three days at one a second. Of more, every second one is left out."""
_MOST_ENTRIES = 2**23
"""Maximum number of groups in all samples together."""
_MOST_GROUPS = 2**13
"""Maximum number of groups of arrays. Those past it are other arrays."""
_MOST_MARKS = 2**17
_MOST_DEVICES = 2**12
_MOST_ERRORS = 100
_LONGEST_DISORDER = 2.0
"""Seconds by which lines may be out of order. More means that the clock was set back."""
_MOST_ARRAYS = 2**32
_MOST_NBYTES = 2**50
"""Upper bound of the bytes on a device, and of those of an array on it: sums of them fit into 64 bits."""
_MOST_OF_GROUP = 2**46
NO_STEP = -(2**63)
"""Step of a sample before the first one."""


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a program that it named."""

    name: str
    start: float
    end: float
    """Time of its end, of the next mark, or of the end of the record; infinite while it lasts."""


class History:
    """The record of a process, line by line. Segments of a process that was restarted are joined."""

    def __init__(self) -> None:
        self.starts: list[RecordStart] = []
        """First lines of its recorders, not of their further segments."""
        self.end: RecordEnd | None = None
        """Last line of the last recorder; None while it runs, and if it was killed."""
        self.errors: list[RecordOutOfMemory] = []
        self.devices: dict[int, RecordDevice] = {}
        """Devices by id. Their places are the columns of the bytes in use."""
        self.peaks: dict[int, int] = {}
        """Peak of each device: of the backend, else of any sample."""
        self.now: dict[int, int] = {}
        """Bytes in use of each device in the last sample."""
        self.first = 0.0
        """Time of the first sample."""
        self.last = 0.0
        """Time of the last line."""
        self.step: int | None = None
        self.sample_count = 0
        self._marks: list[RecordMark] = []
        self._groups: dict[RecordGroup, int] = {}
        self._new_recorder = False
        self._set_back = 0.0
        self._time = array("d")
        self._step = array("q")
        self._begins = array("b")
        self._use: list[array[int]] = []
        self._peak: list[array[int]] = []
        self._other: list[array[int]] = []
        self._stop = array("q")
        self._ids = array("I")
        self._counts = array("I")

    def time_of(self, line: RecordSample | RecordMark | RecordOutOfMemory | RecordEnd) -> float:
        """Return the time of a line, later by as much as the clock of the machine was set back."""
        if line.time + self._set_back < self.last - _LONGEST_DISORDER:
            self._set_back = self.last - line.time
        return line.time + self._set_back

    def segment(self, start: RecordStart) -> SegmentLines:
        """Begin a segment, and return what takes its lines.

        Raises:
            FileFormatError: If it has more devices than can be read.
        """
        if len(self.devices.keys() | {device.id for device in start.devices}) > _MOST_DEVICES:
            raise FileFormatError(f"more than {_MOST_DEVICES:,} devices")
        if not self.starts or self.starts[-1].started != start.started:
            self._set_back = max(self.last - start.time, 0.0)  # of a machine whose clock is behind
            self.starts.append(replace(start, time=start.time + self._set_back))
            self.end = None
            self._new_recorder = True
        for device in start.devices:
            if device.id not in self.devices:
                for column in (self._use, self._peak, self._other):
                    column.append(array("q", bytes(8 * len(self._time))))
            self.devices[device.id] = device
        places = {device: place for place, device in enumerate(self.devices)}
        self.last = max(self.last, start.time + self._set_back)
        return SegmentLines(self, [places[device.id] for device in start.devices])

    def add(self, line: RecordMark | RecordOutOfMemory | RecordEnd) -> None:
        """Add a mark, an error or the end."""
        line = replace(line, time=self.time_of(line))
        self.last = max(self.last, line.time)
        if isinstance(line, RecordEnd):
            self.end = line
        elif isinstance(line, RecordOutOfMemory):
            self.errors = [*self.errors, line][-_MOST_ERRORS:]
        elif len(self._marks) == _MOST_MARKS:
            raise FileFormatError(f"more than {_MOST_MARKS:,} marks")
        else:
            self._marks.append(line)

    def group(self, group: RecordGroup) -> int | None:
        """Return the number of a group of arrays in all segments; None if there are too many.

        Its devices are columns.
        """
        plain = replace(group, id=0)
        if plain not in self._groups and len(self._groups) == _MOST_GROUPS:
            return None
        return self._groups.setdefault(plain, len(self._groups))

    def add_sample(self, sample: RecordSample, columns: Sequence[int], groups: Sequence[int]) -> None:
        """Add a sample.

        Args:
            sample: The sample.
            columns: Column of each of its devices.
            groups: Numbers of its groups.
        """
        time = self.time_of(sample)
        self.last = max(self.last, time)
        self.first = self.first if self.sample_count else time
        self.step = self.step if sample.step is None else sample.step
        self.sample_count += 1
        self._time.append(max(time, self._time[-1] if self._time else 0.0))
        self._step.append(NO_STEP if sample.step is None else sample.step)
        self._begins.append(self._new_recorder)
        self._new_recorder = False
        for values in (*self._use, *self._peak, *self._other):
            values.append(0)
        ids = [*self.devices]
        self.now = {ids[column]: use for column, use in zip(columns, sample.in_use, strict=True)}
        for number, column in enumerate(columns):
            use = sample.in_use[number]
            peak = sample.peak[number] if sample.peak else 0
            self._use[column][-1], self._peak[column][-1] = use, peak
            if sample.other_nbytes:
                self._other[column][-1] = sample.other_nbytes[number]
            self.peaks[ids[column]] = max(self.peaks.get(ids[column], 0), peak, use)
        self._ids.extend(groups)
        self._counts.extend(sample.counts)
        self._stop.append(len(self._ids))
        if len(self._time) > _MOST_SAMPLES or len(self._ids) > _MOST_ENTRIES:
            fuller = _fuller_of_two([np.frombuffer(one, np.int64) for one in self._use])
            # Without the first sample of a recorder, a peak after it has no begin.
            self._keep(np.union1d(fuller, self.begins))

    def forget_before(self, time: float) -> None:
        """Leave out the samples before a time."""
        if self._time and self._time[0] < time:
            self._keep(np.flatnonzero(np.frombuffer(self._time) >= time))

    def _keep(self, kept: Numbers) -> None:
        """Leave out all samples but some."""
        rows = self._rows(kept)
        begins = np.maximum.reduceat(np.frombuffer(self._begins, np.int8), kept) if len(kept) else []
        self._begins = array("b", list(begins))
        self._ids = array("I", np.frombuffer(self._ids, np.uint32)[rows.entries].tobytes())
        self._counts = array("I", np.frombuffer(self._counts, np.uint32)[rows.entries].tobytes())
        self._stop = array("q", rows.stops.tobytes())
        self._time = array("d", np.frombuffer(self._time)[kept].tobytes())
        self._step = array("q", np.frombuffer(self._step, np.int64)[kept].tobytes())
        for columns in (self._use, self._peak, self._other):
            columns[:] = [array("q", np.frombuffer(one, np.int64)[kept].tobytes()) for one in columns]

    def _rows(self, kept: Numbers) -> _Rows:
        stops = np.frombuffer(self._stop, np.int64)
        starts = np.concatenate([[0], stops[:-1]]).astype(np.int64) if len(stops) else stops
        lengths = (stops - starts)[kept]
        ends = np.cumsum(lengths)
        entries = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(
            starts[kept] - (ends - lengths), lengths
        )
        return _Rows(entries, ends)

    @property
    def peak(self) -> int:
        """The highest peak of a device."""
        return max(self.peaks.values(), default=0)

    @property
    def times(self) -> Times:
        """Times of the samples, ascending."""
        return np.array(self._time)

    @property
    def steps(self) -> Numbers:
        """Last step before each sample; ``NO_STEP`` before the first."""
        return np.array(self._step, np.int64)

    @property
    def begins(self) -> Numbers:
        """Indices of the first samples of recorders."""
        return np.flatnonzero(np.array(self._begins, bool))

    def in_use(self, device: int) -> Numbers:
        """Return the bytes in use on a device in each sample."""
        return np.array(self._use[[*self.devices].index(device)], np.int64)

    def reported_peaks(self, device: int) -> Numbers:
        """Return the peak that the backend reported in each sample; 0 where it reported none."""
        return np.array(self._peak[[*self.devices].index(device)], np.int64)

    def arrays(self, device: int, samples: Numbers | None = None) -> ArraysOfDevice:
        """Return the live arrays on a device.

        Args:
            device: Id of the device.
            samples: Indices of the samples; None for all.
        """
        place = [*self.devices].index(device)
        ids, counts = np.frombuffer(self._ids, np.uint32), np.frombuffer(self._counts, np.uint32)
        stops, others = np.frombuffer(self._stop, np.int64), np.frombuffer(self._other[place], np.int64)
        if samples is not None:
            rows = self._rows(samples)
            ids, counts, stops, others = ids[rows.entries], counts[rows.entries], rows.stops, others[samples]
        at = np.repeat(np.arange(len(stops), dtype=np.uint32), np.diff(stops, prepend=0))
        order = np.argsort(ids, kind="stable")
        found, starts = np.unique(ids[order], return_index=True)
        bounds = [*starts.tolist(), len(order)]
        return ArraysOfDevice(
            groups=[*self._groups],
            place=place,
            entries={
                group: slice(*bounds[number : number + 2]) for number, group in enumerate(found.tolist())
            },
            counts=counts[order],
            at=at[order],
            length=len(stops),
            other_nbytes=others.copy(),
        )

    def spans(self) -> list[Span]:
        """Return the marked parts of the program, by their start.

        A mark that has an end line lasts until there. Any other lasts until the next such mark, the end of
        the mark around it, or the end of its recorder.
        """
        marks = sorted(self._marks, key=lambda mark: mark.time)
        end_of: dict[int, float] = {}
        open_by_name: dict[str, list[int]] = {}
        for number, mark in enumerate(marks):
            if not mark.is_end:
                open_by_name.setdefault(mark.name, []).append(number)
            elif begun := open_by_name.get(mark.name):
                end_of[begun.pop()] = mark.time
        restarts = [start.time for start in self.starts[1:]]
        limits = np.array([*restarts, math.inf if self.end is None else self.last])
        ends: dict[int, float] = {}
        around: list[float] = []  # ends of the blocks that are open, ascending
        plain: int | None = None
        for number, mark in enumerate(marks):
            if mark.is_end:
                continue
            del around[: bisect_right(around, mark.time)]
            if number in end_of:
                insort(around, end_of[number])
                ends[number] = end_of[number]
                continue
            if plain is not None:
                ends[plain] = min(ends[plain], mark.time)
            place = int(np.searchsorted(limits, mark.time, "right"))
            last = float(limits[place]) if place < len(limits) else mark.time
            ends[number] = min([last, *around[:1]])
            plain = number
        return [Span(marks[number].name, marks[number].time, end) for number, end in ends.items()]


class SegmentLines:
    """The lines of one segment, on their way into a history.

    Args:
        history: The history of the process.
        columns: Column of each device of the segment.
    """

    def __init__(self, history: History, columns: Sequence[int]) -> None:
        self._history, self._columns = history, columns
        self._numbers: dict[int, int] = {}
        self._unnumbered: dict[int, RecordGroup] = {}

    def add(self, line: RecordLine) -> None:
        """Add a line.

        Raises:
            FileFormatError: If it does not fit the lines before it.
        """
        match line:
            case RecordSample():
                self._check(line)
                sample = self._numbered(line)
                self._history.add_sample(
                    sample, self._columns, [self._numbers[group] for group in sample.groups]
                )
            case RecordGroup():
                self._add_group(line)
            case RecordStart():
                raise FileFormatError("a second start")
            case _:
                self._history.add(line)

    def _add_group(self, group: RecordGroup) -> None:
        if any(place >= len(self._columns) for place in group.devices):
            raise FileFormatError("a group on a device that does not exist")
        if group.shard_nbytes > _MOST_NBYTES:
            raise FileFormatError("more bytes than a device can have")
        columns = tuple(self._columns[place] for place in group.devices)
        number = self._history.group(replace(group, devices=columns))
        if number is None:
            self._unnumbered[group.id] = group
        else:
            self._numbers[group.id] = number

    def _numbered(self, sample: RecordSample) -> RecordSample:
        """Return a sample with the groups past the limit among its other arrays."""
        if not self._unnumbered:
            return sample
        others = [*(sample.other_nbytes or [0] * len(self._columns))]
        kept: dict[int, int] = {}
        for group, count in zip(sample.groups, sample.counts, strict=True):
            if group in self._numbers:
                kept[group] = count
                continue
            for place in self._unnumbered[group].devices:
                others[place] += count * self._unnumbered[group].shard_nbytes
        return replace(
            sample,
            groups=tuple(kept),
            counts=tuple(kept.values()),
            other_nbytes=tuple(min(nbytes, _MOST_NBYTES) for nbytes in others),
        )

    def _check(self, sample: RecordSample) -> None:
        width = len(self._columns)
        if len(sample.in_use) != width or {len(sample.peak), len(sample.other_nbytes)} - {0, width}:
            raise FileFormatError(f"numbers for {len(sample.in_use)} of {width} devices")
        if len(sample.groups) != len(sample.counts):
            raise FileFormatError("lists of different lengths")
        if max(*sample.in_use, *sample.peak, *sample.other_nbytes, 0, 0) > _MOST_NBYTES:
            raise FileFormatError("more bytes than a device can have")
        if max(*sample.counts, 0, 0) >= _MOST_ARRAYS:
            raise FileFormatError("more arrays than a process can have")
        if not all(group in self._numbers or group in self._unnumbered for group in sample.groups):
            raise FileFormatError("a group without its line")


class _Rows(NamedTuple):
    entries: Numbers
    stops: Numbers


def _fuller_of_two(columns: Sequence[Numbers]) -> Numbers:
    """Return the index of the sample with more bytes on its fullest device of each two neighbors."""
    use: Numbers = np.max(columns, axis=0)
    even = use[: len(use) // 2 * 2].reshape(-1, 2)
    kept = np.arange(0, even.size, 2) + (even[:, 1] > even[:, 0])
    return np.append(kept, len(use) - 1) if len(use) % 2 else kept


@dataclass(slots=True)
class ArraysOfDevice:
    """Live arrays on one device in some samples: one entry for each group in each sample, by group."""

    groups: Sequence[RecordGroup]
    place: int
    """Column of the device."""

    entries: dict[int, slice]
    """Entries of each group."""

    counts: npt.NDArray[np.uint32]
    """Number of arrays of each entry."""

    at: npt.NDArray[np.uint32]
    """Sample of each entry."""

    length: int
    """Number of samples."""

    other_nbytes: Numbers
    """Bytes of the arrays without a group in each sample."""

    def numbers_by_site(self) -> Iterator[tuple[Site, Numbers, Numbers]]:
        """Yield each site with the number of its arrays and their bytes in each sample.

        Sites of the same line follow each other.
        """
        lines: dict[Origin | None, dict[str, list[int]]] = {}
        for group in self.entries:
            found = self.groups[group]
            if self.place not in found.devices:
                continue
            lines.setdefault(found.origin, {}).setdefault(found.type, []).append(group)
        sites = ((Site(line, of), groups) for line, types in lines.items() for of, groups in types.items())
        for site, members in sites:
            counts, nbytes = np.zeros(self.length, np.int64), np.zeros(self.length, np.int64)
            for group in members:
                found, entries = self.groups[group], self.entries[group]
                number = self.counts[entries].astype(np.int64)
                most = _MOST_OF_GROUP // max(found.shard_nbytes, 1)
                counts[self.at[entries]] += number
                nbytes[self.at[entries]] += np.minimum(number, most) * found.shard_nbytes
            yield site, counts, nbytes

    def total_nbytes(self) -> Numbers:
        """Return the bytes of all arrays in each sample."""
        total = self.other_nbytes.copy()
        for _, _, nbytes in self.numbers_by_site():
            total += nbytes
        return total


def open_mark(spans: Sequence[Span], time: float) -> str | None:
    """Return the mark in which a moment is: the one that began last; None if it is in none."""
    inside = [span for span in spans if span.start <= time < span.end]
    return max(inside, key=lambda span: span.start).name if inside else None
