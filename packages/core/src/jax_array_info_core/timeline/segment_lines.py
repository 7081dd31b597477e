"""The lines of one segment, on their way into a history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ..errors import FileFormatError
from ..reports.record import (
    RecordEnd,
    RecordGroup,
    RecordLine,
    RecordMark,
    RecordOutOfMemory,
    RecordSample,
    RecordStart,
)
from .history import History

_MOST_ARRAYS = 2**32
_MOST_NBYTES = 2**50
"""Upper bound of the bytes on a device, and of those of an array on it: sums of them fit into 64 bits."""
_MOST_AXES = 64
"""Maximum number of axes of an array, as in NumPy."""


class SegmentLines:
    """A segment that is read into a history.

    Args:
        history: The history of the run.
        start: First line of the segment.

    Raises:
        FileFormatError: If the segment has more devices than can be read.
    """

    __slots__ = ("_history", "_numbers", "_places", "_unnamed")

    def __init__(self, history: History, start: RecordStart) -> None:
        self._history = history
        self._places = history.segment(start)
        self._numbers: dict[int, int] = {}
        """Numbers of its groups, by id."""
        self._unnamed: dict[int, tuple[int, int | None]] = {}
        """Bytes and set of devices of the groups that are other arrays, by id."""

    def add(self, line: RecordLine) -> None:
        """Add a line.

        Raises:
            FileFormatError: If it does not fit the lines before it.
        """
        match line:
            case RecordSample():
                self._check(line)
                groups, counts, others = line.groups, line.counts, line.other_nbytes
                if self._unnamed:
                    groups, counts, others = self._named(line)
                numbers = map(self._numbers.__getitem__, groups)
                self._history.add_sample(line, self._places, others, numbers, counts)
            case RecordMark():
                self._check_row(line.in_use)
                self._check_row(line.peak)
                self._history.add_mark(line, self._places)
            case RecordGroup():
                self._add_group(line)
            case RecordOutOfMemory() | RecordEnd():
                self._history.add(line)
            case RecordStart():
                raise FileFormatError("a second start")

    def _add_group(self, group: RecordGroup) -> None:
        if max(group.devices, default=-1) >= len(self._places):
            raise FileFormatError("a group on a device that does not exist")
        if group.shard_nbytes > _MOST_NBYTES:
            raise FileFormatError("more bytes than a device can have")
        if len(group.shape) > _MOST_AXES:
            raise FileFormatError(f"more than {_MOST_AXES} axes")
        number, devices = self._history.group(group, self._places)
        if number is None:
            self._unnamed[group.id] = group.shard_nbytes, devices
        else:
            self._numbers[group.id] = number

    def _named(self, sample: RecordSample) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Return groups, counts and other bytes of a sample: groups past the limit are other arrays."""
        kept: dict[int, int] = {}
        nbytes_of: Counter[int | None] = Counter()
        for group, count in zip(sample.groups, sample.counts, strict=True):
            if group in self._numbers:
                kept[group] = count
            else:
                nbytes, devices = self._unnamed[group]
                nbytes_of[devices] += count * nbytes
        others = self._history.nbytes_on_devices(nbytes_of, _MOST_NBYTES)[self._places]
        if sample.other_nbytes:
            others = np.minimum(others + sample.other_nbytes, _MOST_NBYTES)
        return tuple(kept), tuple(kept.values()), tuple(others.tolist())

    def _check_row(self, row: Sequence[int]) -> None:
        """Check bytes on each device, which may be unknown."""
        if not row:
            return
        if len(row) != len(self._places):
            raise FileFormatError(f"numbers for {len(row)} of {len(self._places)} devices")
        if max(row) > _MOST_NBYTES:
            raise FileFormatError("more bytes than a device can have")

    def _check(self, sample: RecordSample) -> None:
        if not sample.in_use and len(self._places):
            raise FileFormatError(f"numbers for 0 of {len(self._places)} devices")
        for row in (sample.in_use, sample.peak, sample.other_nbytes):
            self._check_row(row)
        if not sample.groups and not sample.counts:
            return
        if len(sample.groups) != len(sample.counts):
            raise FileFormatError("lists of different lengths")
        if max(sample.counts) >= _MOST_ARRAYS:
            raise FileFormatError("more arrays than a process can have")
        unknown = [group for group in sample.groups if group not in self._numbers]
        if unknown and not all(group in self._unnamed for group in unknown):
            raise FileFormatError("a group without its line")
