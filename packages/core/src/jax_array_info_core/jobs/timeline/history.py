"""The record of one run of a process: its samples, marks and errors, within the room of a folder."""

from __future__ import annotations

import contextlib
import math
from array import array
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from ...base.errors import FileFormatError
from ...base.text import clipped
from ...facts.reports.record import (
    RecordCompilation,
    RecordDevice,
    RecordEnd,
    RecordGroup,
    RecordLine,
    RecordMark,
    RecordOutOfMemory,
    RecordSample,
    RecordStall,
    RecordStart,
)
from .marks import Moment, Span, spans_of
from .samples import IN_USE, MOST_OF_GROUP, OTHER, PEAK, Numbers, Samples, Sites, device_key

MOST_NUMBERS = 10**7
"""Maximum number of numbers in samples. Of more, every second sample is left out."""
MOST_OTHERS = 2**22
"""Maximum number of numbers of all else: bytes in marks, sets of devices, and a few for each thing."""
_MOST_GROUPS = 2**13
"""Maximum number of groups of arrays. Those past it are other arrays."""
_MOST_MARKS, _MOST_ERRORS = 2**17, 100
_MOST_RECOMPILATIONS = 1000
_MOST_ARRAYS = 2**32
_MOST_NBYTES = 2**50
"""Upper bound of the bytes on a device, and of those of an array on it: sums of them fit into 64 bits."""
_MOST_AXES = 64
"""Maximum number of axes of an array, as in NumPy."""
_LONGEST_DISORDER = 2.0
"""Seconds by which lines may be out of order. More means that the clock was set back."""
_OF_THING = 4
"""Numbers of a mark, an error and a device, besides the bytes of a mark."""

_Pairs: TypeAlias = tuple[Sequence[int], Sequence[int]]
"""Keys, and as many numbers."""


class Room:
    """Room for the histories of all runs of a folder together."""

    def __init__(self) -> None:
        self.histories: list[History] = []
        self.numbers = 0
        """Numbers in samples."""
        self.others = 0
        self._most = MOST_NUMBERS

    def take(self, count: int) -> None:
        """Take room for numbers that are not in samples.

        Raises:
            FileFormatError: If there is none.
        """
        if self.others + count > MOST_OTHERS:
            raise FileFormatError(f"more than {MOST_OTHERS:,} numbers of marks and devices in the folder")
        self.others += count

    def add_numbers(self, count: int) -> None:
        """Count numbers of samples, and thin all histories if there are too many."""
        self.numbers += count
        if self.numbers > self._most:
            for history in self.histories:
                history.thin()
            # One sample of each run stays.
            self._most = max(MOST_NUMBERS, self.numbers * 3 // 2)


@dataclass(slots=True)
class Numbering:
    """What the numbers in the lines of a segment mean in its run."""

    places: tuple[int, ...]
    """Places of its devices."""

    keys: tuple[array[int], ...]
    """Keys of the bytes in use, the peak and the bytes of other arrays of each device."""

    groups: dict[int, int] = field(default_factory=dict)
    """Numbers of its groups, by id."""

    others: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Sets of devices of the groups past the limit, and the bytes of one of their arrays, by id."""

    def check(self, *rows: Sequence[int]) -> None:
        """Check bytes on each device, which may be unknown."""
        count = len(self.places)
        for row in filter(None, rows):
            if len(row) != count:
                raise FileFormatError(f"numbers for {len(row)} of {count} devices")
            if max(row) > _MOST_NBYTES:
                raise FileFormatError("more bytes than a device can have")

    def apart(self, sample: RecordSample) -> tuple[_Pairs, _Pairs]:
        """Return the counts of a sample by group, and the bytes of its other groups by set of devices."""
        if not self.others:
            return (sample.groups, sample.counts), ((), ())
        counts, nbytes = {}, Counter[int]()
        for group, count in zip(sample.groups, sample.counts, strict=True):
            if group in self.others:
                devices, each = self.others[group]
                nbytes[devices] = min(nbytes[devices] + count * each, MOST_OF_GROUP)
            else:
                counts[group] = count
        return (tuple(counts), tuple(counts.values())), (tuple(nbytes), tuple(nbytes.values()))


class History:
    """The record of a run, line by line. Segments of a process that was restarted are joined.

    Args:
        room: Room of all runs of the folder.
    """

    def __init__(self, room: Room) -> None:
        room.histories.append(self)
        self._room = room
        self.starts: list[RecordStart] = []
        """First lines of its recorders, not of their further segments."""
        self.end: RecordEnd | None = None
        """Last line of the last recorder; None while it runs, and if it was killed."""
        self.errors: deque[RecordOutOfMemory] = deque(maxlen=_MOST_ERRORS)
        self.recompilations: deque[RecordCompilation] = deque(maxlen=_MOST_RECOMPILATIONS)
        self.stall: RecordStall | None = None
        """Stall that has not ended; None if the step moves."""
        self.devices: dict[int, RecordDevice] = {}
        """Devices by id."""
        self.samples = Samples()
        """The samples that are kept."""
        self.is_thinned = False
        """Whether samples were left out because there were too many to hold."""
        self.first = 0.0
        """Time of the first sample."""
        self.last = 0.0
        """Time of the last line."""
        self.step: int | None = None
        self.sample_count = 0
        self.process_nbytes: tuple[int | None, int | None] = None, None
        """Bytes of the process in the first sample of its last recorder that has them, and in the last."""
        self.own_nbytes: int | None = None
        self._marks: list[Moment] = []
        self._groups: dict[RecordGroup, int] = {}
        self._sets: dict[tuple[int, ...], int] = {(): 0}
        """Numbers of sets of devices: most groups have one of a few."""
        self._places: dict[int, int] = {}
        self._peaks: list[int] = []
        """Peak of each device, but for those in the samples that are kept."""
        self._now: tuple[tuple[int, ...], Sequence[int]] = (), ()
        self._has_new_recorder = False
        self._set_back = 0.0
        self.kept_from = -math.inf
        """Time before which samples are left out."""

    def begin(self, start: RecordStart) -> Numbering:
        """Begin a segment.

        Raises:
            FileFormatError: If two of its devices have the same id.
        """
        devices = {device.id: device for device in start.devices}
        if len(devices) < len(start.devices):
            raise FileFormatError("two devices with the same id")
        if not self.starts or self.starts[-1].recorder != start.recorder:
            self._set_back = max(self.last - start.time, 0.0)  # of a machine whose clock is behind
            self.starts.append(replace(start, time=self.last) if self._set_back else start)
            self.end = self.stall = None
            self.process_nbytes = None, None
            self._has_new_recorder = True
        self.last = max(self.last, start.time + self._set_back)
        self.devices |= devices
        places = tuple(self._places.setdefault(one, len(self._places)) for one in devices)
        keys = (array("i", (device_key(kind, one) for one in places)) for kind in (IN_USE, PEAK, OTHER))
        self._peaks += [0] * (len(self._places) - len(self._peaks))
        return Numbering(places, tuple(keys))

    def add(self, line: RecordLine, segment: Numbering) -> None:
        """Add a line of a segment.

        Raises:
            FileFormatError: If it does not fit the lines before it, or there is no room for it.
        """
        match line:
            case RecordSample():
                self._add_sample(line, segment)
            case RecordMark():
                segment.check(line.in_use, line.peak)
                if len(self._marks) == _MOST_MARKS:
                    raise FileFormatError(f"more than {_MOST_MARKS:,} marks")
                self._room.take(_OF_THING + len(line.in_use) + len(line.peak))
                for row in (line.in_use, line.peak):
                    for place, nbytes in zip(segment.places, row, strict=False):  # which may be unknown
                        self._peaks[place] = max(self._peaks[place], nbytes)
                self._marks.append(Moment.of(line, self._time_of(line), segment.places))
            case RecordGroup():
                self._add_group(line, segment)
            case RecordOutOfMemory():
                self._room.take(_OF_THING)
                self.errors.append(replace(line, time=self._time_of(line), message=clipped(line.message)))
            case RecordCompilation():
                self._room.take(_OF_THING)
                function, reason = clipped(line.function), clipped(line.reason)
                line = replace(line, time=self._time_of(line), function=function, reason=reason)
                self.recompilations.append(line)
            case RecordStall():
                time = self._time_of(line)
                since = min(line.since + self._set_back, time)
                self.stall = None if line.is_over else replace(line, time=time, since=since)
            case RecordEnd():
                self.end = replace(line, time=self._time_of(line), message=clipped(line.message))
            case RecordStart():
                raise FileFormatError("a second start")

    def _time_of(
        self,
        line: RecordSample | RecordMark | RecordOutOfMemory | RecordStall | RecordCompilation | RecordEnd,
    ) -> float:
        """Return the time of the next line, later by as much as the clock of the machine was set back."""
        if line.time + self._set_back < self.last - _LONGEST_DISORDER:
            self._set_back = self.last - line.time
        time = line.time + self._set_back
        self.last = max(self.last, time)
        return time

    def _add_group(self, group: RecordGroup, segment: Numbering) -> None:
        if max(group.devices, default=-1) >= len(segment.places):
            raise FileFormatError("a group on a device that does not exist")
        if group.shard_nbytes > _MOST_NBYTES:
            raise FileFormatError("more bytes than a device can have")
        if len(group.shape) > _MOST_AXES:
            raise FileFormatError(f"more than {_MOST_AXES} axes")
        devices = tuple(segment.places[one] for one in group.devices)
        if devices not in self._sets:
            with contextlib.suppress(FileFormatError):  # without room, its bytes are in no arrays
                self._room.take(len(devices))
                self._sets[devices] = len(self._sets)
        number = self._sets.get(devices, 0)
        plain = replace(group, id=0, devices=(number,))
        if plain in self._groups or len(self._groups) < _MOST_GROUPS:
            segment.groups[group.id] = self._groups.setdefault(plain, len(self._groups))
        else:
            segment.others[group.id] = number, group.shard_nbytes

    def _add_sample(self, sample: RecordSample, segment: Numbering) -> None:
        if not sample.in_use and segment.places:
            raise FileFormatError(f"numbers for 0 of {len(segment.places)} devices")
        rows = sample.in_use, sample.peak, sample.other_nbytes
        segment.check(*rows)
        if len(sample.groups) != len(sample.counts):
            raise FileFormatError("lists of different lengths")
        if sample.counts and max(sample.counts) >= _MOST_ARRAYS:
            raise FileFormatError("more arrays than a process can have")
        counts, others = segment.apart(sample)
        try:
            groups = [*map(segment.groups.__getitem__, counts[0])]
        except KeyError:
            raise FileFormatError("a group without its line") from None
        time = self._time_of(sample)
        self.first = self.first if self.sample_count else time
        self.step = self.step if sample.step is None else sample.step
        if self.stall is not None and self.stall.step != sample.step:
            self.stall = None
        self.sample_count += 1
        first, _ = self.process_nbytes
        self.process_nbytes = sample.process_nbytes if first is None else first, sample.process_nbytes
        self.own_nbytes = sample.own_nbytes
        self._now = segment.places, sample.in_use
        numbers = self.samples.add(
            time,
            sample.step,
            is_begin=self._has_new_recorder,
            fullest=max(sample.in_use, default=0),
            nbytes=(*zip(segment.keys, rows, strict=True), others),
            counts=(groups, counts[1]),
        )
        self._has_new_recorder = False
        self._room.add_numbers(numbers)

    def thin(self) -> None:
        """Leave out every second sample."""
        if len(self.samples) > 1:
            self._before_samples_go()
            self.samples.thin()
            self._room.numbers += self.samples.numbers
            self.is_thinned = True

    def forget_before(self, time: float) -> None:
        """Leave out the samples before a time, and the marks; at infinity all samples."""
        if time < math.inf:
            self.kept_from = time
        self._before_samples_go()
        self.samples.keep_from(time)
        self._room.numbers += self.samples.numbers

    def _before_samples_go(self) -> None:
        self._peaks = [*self.peaks.values()]
        self._room.numbers -= self.samples.numbers

    @property
    def peaks(self) -> dict[int, int]:
        """The peak of each device by id: of the backend, else of any line."""
        found = np.maximum(self._peaks, self.samples.peaks(len(self._places)))
        return dict(zip(self._places, found.tolist(), strict=True))

    @property
    def now(self) -> dict[int, int]:
        """The bytes in use on the devices of the last sample, by id."""
        ids = [*self._places]
        return {ids[place]: use for place, use in zip(*self._now, strict=True)}

    def column(self, kind: int, device: int) -> Numbers:
        """Return the bytes of a device in each sample; 0 where the sample has none."""
        return self.samples.column(kind, self._places[device])

    def sites(self, device: int) -> Sites:
        """Return the allocation sites with arrays on a device."""
        place = self._places[device]
        sets = {number for devices, number in self._sets.items() if place in devices}
        return Sites([*self._groups], place, sets)

    def place(self, device: int) -> int:
        """Return the place of a device."""
        return self._places[device]

    def spans(self) -> list[Span]:
        """Return the marked parts of the program, by their start."""
        restarts = [start.time for start in self.starts[1:]]
        spans = spans_of(self._marks, [*restarts, math.inf if self.end is None else self.last])
        return [span for span in spans if span.end >= self.kept_from]
