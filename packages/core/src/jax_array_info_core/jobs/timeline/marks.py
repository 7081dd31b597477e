"""Marks of a record, the parts of the program between them, and the bytes of these on one device.

A part is charged with what its own marks and the samples in it show: arrays that were allocated between a
sample and its begin are not its own.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...base.text import clipped
from ...facts.reports.record import RecordMark
from .samples import Numbers, Times

_MOST_AROUND = 1000
"""Number of parts around a moment that are looked at."""


class Moment(NamedTuple):
    """A mark with the bytes in use on the devices of its segment."""

    time: float
    name: str
    is_end: bool
    places: tuple[int, ...]
    key: float
    """Its time as it was written. With the name, it tells marks apart."""

    begin: float | None = None
    """Key of the begin of the part that ends here."""

    in_use: tuple[int, ...] = ()
    """Bytes in use on each device; empty if they are unknown."""

    peak: tuple[int, ...] = ()
    """Peak of each device; empty if the backend reports none."""

    @staticmethod
    def of(mark: RecordMark, time: float, places: tuple[int, ...]) -> Moment:
        """Return a mark of a record, with its time and the places of its devices in the run."""
        name = clipped(mark.name)
        return Moment(time, name, mark.is_end, places, mark.time, mark.begin, mark.in_use, mark.peak)


class Span(NamedTuple):
    """A part of a program that it named."""

    name: str
    start: float
    end: float
    """Time of its end, of the next mark, or of the end of the record; infinite while it lasts."""

    begin: Moment
    finish: Moment | None
    """The mark that ended it; None if the record or the process did."""


def spans_of(moments: Iterable[Moment], limits: Sequence[float]) -> list[Span]:
    """Return the marked parts of the program, by their start.

    A mark that has an end line lasts until there. Any other lasts until the next such mark, the end of the
    mark around it, or the end of its recorder.

    Args:
        moments: The marks.
        limits: Times at which recorders ended; infinite for one that did not.
    """
    marks = sorted(moments, key=lambda mark: mark.time)
    finish_of = _finishes(marks)
    ends: dict[int, tuple[float, Moment | None]] = {}
    around: list[tuple[float, int]] = []  # ends of the blocks that are open, ascending, and their numbers
    plain: int | None = None
    for number, mark in enumerate(marks):
        if mark.is_end:
            continue
        del around[: bisect_right(around, (mark.time, len(marks)))]
        if plain is not None and number not in finish_of and mark.time < ends[plain][0]:
            ends[plain] = mark.time, mark
        if number in finish_of:
            end = max(finish_of[number].time, mark.time)  # the clock may have been set back
            insort(around, (end, number))
            ends[number] = end, finish_of[number]
            continue
        place = bisect_right(limits, mark.time)
        last = limits[place] if place < len(limits) else mark.time
        block = around[0] if around else None
        ends[number] = (block[0], finish_of[block[1]]) if block and block[0] <= last else (last, None)
        plain = number
    found = ((marks[number], *end) for number, end in ends.items())
    return [Span(begin.name, begin.time, end, begin, finish) for begin, end, finish in found]


def _finishes(marks: Sequence[Moment]) -> dict[int, Moment]:
    """Return the ends of parts by the number of their begin.

    An end that names no begin is that of the last part of its name.
    """
    found: dict[int, Moment] = {}
    begins = {(mark.name, mark.key): number for number, mark in enumerate(marks) if not mark.is_end}
    open_by_name: dict[str, list[int]] = {}
    for number, mark in enumerate(marks):
        if not mark.is_end:
            open_by_name.setdefault(mark.name, []).append(number)
        elif mark.begin is None:
            if begun := open_by_name.get(mark.name):
                found[begun.pop()] = mark
        elif (mark.name, mark.begin) in begins:
            found[begins[mark.name, mark.begin]] = mark
    return found


class OpenMarks:
    """The mark in which each moment is: of those around it, the one that began last.

    Args:
        spans: The marked parts of the program, by their start.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        self._times = sorted({time for span in spans for time in (span.start, span.end)})
        self._names: list[str | None] = []
        around: list[Span] = []
        place = 0
        for time in self._times:
            while place < len(spans) and spans[place].start <= time:
                around.append(spans[place])
                place += 1
            while around and around[-1].end <= time:
                around.pop()
            self._names.append(around[-1].name if around else None)

    def at(self, time: float) -> str | None:
        """Return the mark of a moment; None if it is in none."""
        place = bisect_right(self._times, time)
        return self._names[place - 1] if place else None


class Visit(NamedTuple):
    """One marked part of the program."""

    span: Span
    first: int
    """The first sample in it."""

    stop: int
    """The sample after its last one; that is the first, if it has none."""

    begin: int | None
    """Bytes in use at its begin; None if they are unknown."""

    finish: int | None
    """Bytes in use at its end; None if they are unknown, and while it lasts."""

    peak: int | None
    """The most bytes in use that were seen in it."""

    added: int | None
    """By how many bytes the use rose above that at its begin. Without a sample, only a new peak of the
    backend tells."""

    @property
    def change(self) -> int | None:
        """Bytes in use at its end above those at its begin; None if they are unknown, and while it lasts."""
        return None if self.begin is None or self.finish is None else self.finish - self.begin

    @property
    def is_over(self) -> bool:
        """Whether the program has left it, other than by its death."""
        return self.span.finish is not None or self.finish is not None


class Visits:
    """The marked parts of the program.

    Args:
        spans: The parts, by their start.
        place: Place of the device.
        times: Times of the samples.
        use: Bytes in use on the device in each of them.
        peaks: Peak of the device in each of them, as the backend reports it; 0 where it reports none.
        end: Time at which the record ended, with a last sample; None if it did not.
        since: Time before which samples were left out.
    """

    def __init__(
        self,
        spans: Sequence[Span],
        place: int,
        times: Times,
        use: Numbers,
        peaks: Numbers,
        end: float | None,
        since: float,
    ) -> None:
        self._spans, self._place, self._times, self._use, self._peaks = spans, place, times, use, peaks
        self._end, self._since = end, since
        self._starts = np.array([span.start for span in spans])
        self._ends = np.array([span.end for span in spans])

    def _in_use(self, mark: Moment | None) -> int | None:
        """Return the bytes in use at a mark; None if they are unknown."""
        return None if mark is None else self._on_device(mark, mark.in_use)

    def _peak(self, mark: Moment | None) -> int | None:
        """Return the backend's peak at a mark; None if it is unknown."""
        return None if mark is None else self._on_device(mark, mark.peak)

    def _on_device(self, mark: Moment, row: Sequence[int]) -> int | None:
        return row[mark.places.index(self._place)] if row and self._place in mark.places else None

    def __iter__(self) -> Iterator[Visit]:
        firsts = np.searchsorted(self._times, self._starts).tolist()
        stops = np.searchsorted(self._times, self._ends).tolist()
        for span, first, stop in zip(self._spans, firsts, stops, strict=True):
            is_until_end = span.finish is None and span.end == self._end
            yield self._visit(span, first, len(self._times) if is_until_end else stop, is_until_end)

    def _visit(self, span: Span, first: int, stop: int, is_until_end: bool) -> Visit:
        begin, finish = self._in_use(span.begin), self._in_use(span.finish)
        before, after = self._peak(span.begin), self._peak(span.finish)
        seen = [one for one in (begin, finish) if one is not None]
        if stop > first:
            seen.append(int(np.max(self._use[first:stop])))
            after = after or int(self._peaks[stop - 1])
            if is_until_end:
                finish = int(self._use[stop - 1])  # the sample that ends the record
        is_known = stop > first
        if before is not None and after is not None and after > before:
            seen.append(after)
            is_known = True
        peak = None if span.start < self._since else max(seen, default=None)
        added = peak - begin if is_known and peak is not None and begin is not None else None
        return Visit(span, first, stop, begin, finish, peak, added)

    def of_rise(self, sample: int, rise: int) -> str | None:
        """Return the part in which the use rose after a sample; None if that is unknown, or it was in none.

        It is around both samples, or its own bytes have at least half of the rise.

        Args:
            sample: The sample before.
            rise: Bytes by which the use rose until the next one.
        """
        since, time = self._times[sample], self._times[sample + 1]
        for span in self._between(since, time):
            low, high = int(self._use[sample]), int(self._use[sample + 1])
            begin = low if span.start <= since else self._in_use(span.begin)
            finish = high if span.end >= time else self._in_use(span.finish)
            if begin is not None and finish is not None and 2 * (finish - begin) >= rise:
                return span.name
        return None

    def of_peak(self, sample: int, peak: int) -> str | None:
        """Return the part in which the backend's peak rose before a sample; None if that is unknown.

        Args:
            sample: The sample after.
            peak: The new peak.
        """
        since, time = self._times[sample - 1], self._times[sample]
        for span in self._between(since, time):
            before = 0 if span.start <= since else self._peak(span.begin)
            after = peak if span.end >= time else self._peak(span.finish)
            if before is not None and before < peak == after:
                return span.name
        return None

    def _between(self, since: float, time: float) -> Iterator[Span]:
        """Yield the parts that have some of the time between two moments, the last first."""
        found = np.flatnonzero((self._starts < time) & (self._ends > since))[-_MOST_AROUND:]
        return (self._spans[number] for number in reversed(found.tolist()))

    def fullest_mark(self) -> tuple[int, float, str | None] | None:
        """Return the most bytes in use at a begin or end of a part, with the time, and the name at an end."""
        found = [
            # The bytes at its begin are from before.
            (use, mark.time, None if mark is span.begin else span.name)
            for span in self._spans
            for mark in (span.begin, span.finish)
            if mark is not None and (use := self._in_use(mark)) is not None
        ]
        return max(found, key=lambda one: one[0], default=None)


def kept_nbytes(visits: Sequence[Visit]) -> int | None:
    """Return the bytes at the ends of some parts above those at their begins, in all; None if unknown.

    Parts that overlap, such as those of threads, are one.

    Args:
        visits: The parts, by their start.
    """
    kept = [
        None if begin.begin is None or finish.finish is None else finish.finish - begin.begin
        for begin, finish in _joined(visits)
        if finish.is_over
    ]
    return None if not kept or None in kept else sum(filter(None, kept))


def _joined(visits: Sequence[Visit]) -> Iterator[tuple[Visit, Visit]]:
    """Yield the first and the last part of each group of parts that overlap."""
    first = last = None
    for visit in visits:
        if first is None or last is None or visit.span.start >= last.span.end:
            if first is not None and last is not None:
                yield first, last
            first = last = visit
        elif visit.span.end > last.span.end:
            last = visit
    if first is not None and last is not None:
        yield first, last


def most_added(visits: Sequence[Visit]) -> Visit | None:
    """Return the part that added the most; None if it is unknown which did."""
    known = [visit for visit in visits if visit.added is not None]
    most = max(known, key=lambda visit: visit.added or 0, default=None)
    if most is None or any(
        (visit.change or 0) > (most.added or 0) for visit in visits if visit.added is None
    ):
        return None
    return most
