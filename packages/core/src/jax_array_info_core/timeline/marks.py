"""Marks of a record, and the parts of the program between them."""

from __future__ import annotations

from array import array
from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .samples import Places

UNKNOWN = array("q")


class Moment(NamedTuple):
    """A mark with the bytes in use on the devices of its segment."""

    time: float
    name: str
    is_end: bool
    places: Places
    key: float
    """Its time as it was written. With the name, it tells marks apart."""

    begin: float | None = None
    """Key of the begin of the part that ends here."""

    in_use: array[int] = UNKNOWN
    """Bytes in use on each device; empty if they are unknown."""

    peak: array[int] = UNKNOWN
    """Peak of each device; empty if the backend reports none."""


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
