"""The record of one run of a process: its samples, marks and errors."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..errors import FileFormatError
from ..reports.record import (
    RecordDevice,
    RecordEnd,
    RecordGroup,
    RecordMark,
    RecordOutOfMemory,
    RecordSample,
    RecordStart,
)
from ..text import clipped
from .marks import UNKNOWN, Moment, Span, spans_of
from .samples import IN_USE, PEAK, Numbers, Places, Samples, Sites

_MOST_SAMPLES = 2**18
"""Maximum number of samples: three days at one a second. Of more, every second one is left out."""
_MOST_GROUPS = 2**13
"""Maximum number of groups of arrays. Those past it are other arrays."""
_MOST_SET_DEVICES = 2**20
"""Maximum number of devices in all sets of devices of groups. Those past it have no bytes."""
_MOST_MARKS = 2**17
_MOST_LINES = 2**19
"""Maximum number of marks and errors of all runs together."""
_MOST_MARK_NUMBERS = 2**21
"""Maximum number of bytes in marks, on each device. The others are unknown."""
_MOST_DEVICES = 2**12
_MOST_ERRORS = 100
_LONGEST_DISORDER = 2.0
"""Seconds by which lines may be out of order. More means that the clock was set back."""


@dataclass(slots=True)
class Held:
    """What the histories of all runs hold together."""

    numbers: int = 0
    """Numbers in samples."""

    lines: int = 0
    """Marks and errors."""

    mark_numbers: int = 0
    """Bytes in marks, on each device."""

    set_devices: int = 0
    """Devices in sets of devices."""


class History:
    """The record of a run, line by line. Segments of a process that was restarted are joined.

    Args:
        held: What all runs hold together.
    """

    __slots__ = (
        "_groups",
        "_marks",
        "_new_recorder",
        "_now",
        "_peaks",
        "_places",
        "_segment_places",
        "_set_back",
        "_set_places",
        "_sets",
        "devices",
        "end",
        "errors",
        "first",
        "held",
        "is_thinned",
        "kept_from",
        "last",
        "sample_count",
        "samples",
        "starts",
        "step",
    )

    def __init__(self, held: Held) -> None:
        self.held = held
        self.starts: list[RecordStart] = []
        """First lines of its recorders, not of their further segments."""
        self.end: RecordEnd | None = None
        """Last line of the last recorder; None while it runs, and if it was killed."""
        self.errors: list[RecordOutOfMemory] = []
        self.devices: dict[int, RecordDevice] = {}
        """Devices by id."""
        self.samples: Samples | None = None
        """The samples that are kept; None before the first, and once they are forgotten."""
        self.is_thinned = False
        """Whether samples were left out because there were too many to hold."""
        self.first = 0.0
        """Time of the first sample."""
        self.last = 0.0
        """Time of the last line."""
        self.step: int | None = None
        self.sample_count = 0
        self._marks: list[Moment] = []
        self._groups: dict[RecordGroup, int] = {}
        self._places: dict[int, int] = {}
        self._segment_places: dict[tuple[int, ...], Places] = {}
        """Places of the devices of segments: one object for the same ones."""
        self._sets: dict[tuple[int, ...], int] = {}
        """Numbers of sets of devices: most groups have one of a few."""
        self._set_places: list[Places] = []
        self._peaks = np.zeros(0, np.int64)
        """Peaks of the samples that were left out, and of marks."""
        self._now: tuple[Places, Sequence[int]] = (np.zeros(0, np.intp), ())
        self._new_recorder = False
        self._set_back = 0.0
        self.kept_from = -math.inf
        """Time before which samples are left out."""

    def _time_of(self, line: RecordSample | RecordMark | RecordOutOfMemory | RecordEnd) -> float:
        """Return the time of the next line, later by as much as the clock of the machine was set back."""
        if line.time + self._set_back < self.last - _LONGEST_DISORDER:
            self._set_back = self.last - line.time
        time = line.time + self._set_back
        self.last = max(self.last, time)
        return time

    def segment(self, start: RecordStart) -> Places:
        """Begin a segment, and return the places of its devices.

        Raises:
            FileFormatError: If it has more devices than can be read.
        """
        new = {device.id for device in start.devices if device.id not in self._places}
        if len(self._places) + len(new) > _MOST_DEVICES:
            raise FileFormatError(f"more than {_MOST_DEVICES:,} devices")
        if not self.starts or self.starts[-1].recorder != start.recorder:
            self._set_back = max(self.last - start.time, 0.0)  # of a machine whose clock is behind
            self.starts.append(replace(start, time=self.last) if self._set_back else start)
            self.end = None
            self._new_recorder = True
        for device in start.devices:
            self._places.setdefault(device.id, len(self._places))
            self.devices[device.id] = device
        self.last = max(self.last, start.time + self._set_back)
        key = tuple(self._places[device.id] for device in start.devices)
        return self._segment_places.setdefault(key, np.array(key, np.intp))

    def add(self, line: RecordOutOfMemory | RecordEnd) -> None:
        """Add an error or the end."""
        time = self._time_of(line)
        line = replace(line, time=time, message=clipped(line.message))
        if isinstance(line, RecordEnd):
            self.end = line
            return
        self._check_count()
        self.errors.append(line)
        if len(self.errors) > _MOST_ERRORS:
            del self.errors[0]
        else:
            self.held.lines += 1

    def add_mark(self, mark: RecordMark, places: Places) -> None:
        """Add a mark, with its bytes by place unless there are too many.

        Args:
            mark: The mark.
            places: Places of the devices of its segment.
        """
        time = self._time_of(mark)
        self._check_count()
        if len(self._marks) == _MOST_MARKS:
            raise FileFormatError(f"more than {_MOST_MARKS:,} marks")
        rows = UNKNOWN, UNKNOWN
        if mark.in_use or mark.peak:
            rows = self._rows_of(mark, places)
        name = clipped(mark.name)
        self._marks.append(Moment(time, name, mark.is_end, places, mark.time, mark.begin, *rows))
        self.held.lines += 1

    def _check_count(self) -> None:
        if self.held.lines == _MOST_LINES:
            raise FileFormatError(f"more than {_MOST_LINES:,} marks and errors in the folder")

    def _rows_of(self, mark: RecordMark, places: Places) -> tuple[array[int], array[int]]:
        """Return the bytes in use and the peaks of a mark by place."""
        rows = array("q", mark.in_use), array("q", mark.peak)
        if len(self._peaks) < len(self._places):
            self._peaks = self.peak_of_places
        for row in filter(None, rows):
            np.maximum.at(self._peaks, places, np.frombuffer(row, np.int64))
        self.held.mark_numbers += sum(map(len, rows))
        if self.held.mark_numbers > _MOST_MARK_NUMBERS:
            self.is_thinned = True
            return UNKNOWN, UNKNOWN
        return rows

    def group(self, group: RecordGroup, places: Places) -> tuple[int | None, int | None]:
        """Return the number of a group of arrays in all segments, and of its set of devices.

        Each is None if there are too many.

        Args:
            group: The group.
            places: Places of the devices of its segment.
        """
        devices = tuple(places[list(group.devices)].tolist())
        if devices not in self._sets and self.held.set_devices + len(devices) <= _MOST_SET_DEVICES:
            self.held.set_devices += len(devices)
            self._sets[devices] = len(self._sets)
            self._set_places.append(np.array(devices, np.intp))
        number = self._sets.get(devices)
        plain = replace(group, id=0, devices=() if number is None else (number,))
        if plain not in self._groups and len(self._groups) == _MOST_GROUPS:
            return None, number
        return self._groups.setdefault(plain, len(self._groups)), number

    def nbytes_on_devices(self, nbytes_of: Mapping[int | None, int], most: int) -> Numbers:
        """Return the bytes on each device, at most a number, from those on sets of devices."""
        found = np.zeros(len(self._places), np.int64)
        for number, nbytes in nbytes_of.items():
            if number is not None:
                places = self._set_places[number]
                found[places] = np.minimum(found[places] + min(nbytes, most), most)
        return found

    def add_sample(
        self,
        sample: RecordSample,
        places: Places,
        others: Sequence[int],
        groups: Iterable[int],
        counts: Sequence[int],
    ) -> None:
        """Add a sample.

        Args:
            sample: The sample.
            places: Places of its devices.
            others: Bytes of its other arrays on each of them; empty if there are none.
            groups: Numbers of its groups.
            counts: Number of arrays of each group.
        """
        time = self._time_of(sample)
        self.first = self.first if self.sample_count else time
        self.step = self.step if sample.step is None else sample.step
        self.sample_count += 1
        self._now = places, sample.in_use
        if self.samples is None:
            self.samples = Samples()
        rows = sample.in_use, sample.peak, others
        self.held.numbers += self.samples.add(
            time, sample.step, self._new_recorder, places, rows, groups, counts
        )
        self._new_recorder = False
        if len(self.samples) > _MOST_SAMPLES:
            self.thin()

    def thin(self) -> None:
        """Leave out every second sample."""
        if self.samples is not None and len(self.samples) > 1:
            self._before_samples_go()
            self.samples.thin()
            self.held.numbers += self.samples.numbers
            self.is_thinned = True

    def forget_before(self, time: float) -> None:
        """Leave out the samples before a time, and the marks; at infinity all samples."""
        if time < math.inf:
            self.kept_from = time
        if self.samples is not None:
            self._before_samples_go()
            if time == math.inf:
                self.samples = None
            else:
                self.samples.keep_from(time)
                self.held.numbers += self.samples.numbers

    def _before_samples_go(self) -> None:
        """Note the peaks of the samples."""
        assert self.samples is not None
        self._peaks = self.peak_of_places
        self.held.numbers -= self.samples.numbers

    @property
    def peak_of_places(self) -> Numbers:
        """The peak of each device: of the backend, else of any sample."""
        found = np.zeros(len(self._places), np.int64)
        found[: len(self._peaks)] = self._peaks
        if self.samples is not None:
            self.samples.raise_peaks(found)
        return found

    @property
    def peak(self) -> int:
        """The highest peak of a device."""
        return max(self.peak_of_places.tolist(), default=0)

    @property
    def now(self) -> dict[int, tuple[RecordDevice, int, int]]:
        """The devices of the last sample by id, with their bytes in use and peak."""
        ids, peaks = [*self._places], self.peak_of_places.tolist()
        pairs = zip(self._now[0].tolist(), self._now[1], strict=True)
        return {ids[place]: (self.devices[ids[place]], use, peaks[place]) for place, use in pairs}

    def in_use(self, device: int) -> Numbers:
        """Return the bytes in use on a device in each sample."""
        return self.kept.column(IN_USE, self._places[device])

    def reported_peaks(self, device: int) -> Numbers:
        """Return the peak that the backend reported in each sample; 0 where it reported none."""
        return self.kept.column(PEAK, self._places[device])

    @property
    def kept(self) -> Samples:
        """The samples that are kept, which may be none."""
        return self.samples or Samples()

    def sites(self, device: int) -> Sites:
        """Return the allocation sites with arrays on a device."""
        place = self._places[device]
        sets = {number for devices, number in self._sets.items() if place in devices}
        return Sites([*self._groups], place, sets)

    def place(self, device: int) -> int:
        """Return the place of a device in the columns."""
        return self._places[device]

    def spans(self) -> list[Span]:
        """Return the marked parts of the program, by their start."""
        restarts = [start.time for start in self.starts[1:]]
        spans = spans_of(self._marks, [*restarts, math.inf if self.end is None else self.last])
        return [span for span in spans if span.end >= self.kept_from]
