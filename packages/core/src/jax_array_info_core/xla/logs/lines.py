"""Lines of logs: prefixes of schedulers, loggers and ranks, the text after them; records of several lines."""

from __future__ import annotations

import functools
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence, Sized
from datetime import date
from typing import NamedTuple

from ...base.text import ESCAPE_SEQUENCE

POD_HASH = r"(?:-[b-df-hj-np-tv-xz\d]{5})?"
"""End of the name of a pod of an indexed Kubernetes job after its rank: digits and letters without vowels."""
_RANK = (
    r"\[(?:rank|worker|process)?[ =]?(?P<a>\d{1,6})\]:? "
    r"|(?P<b>\d{1,6}): "
    r"|(?:[\w.-]{0,60}[\w.-])?(?<![a-z])(?:worker|task|rank|host|node|process|proc|pod|train|r)[-_:]?"
    r"(?P<c>\d{1,6})(?::|\]:?| \|) "
    r"|\[?(?:[\w.-]{1,60}[-/])?(?:worker|task|rank|host|node|process|pod)[-_ =](?P<d>\d{1,6})\]:? "
    r"|\[\d,(?P<e>\d{1,6})\]<std(?:out|err)>: ?"
    r"|\[default(?P<f>\d{1,6})\]: ?"
    r"|[\w.-]{1,60}-(?P<g>\d{1,6}) {1,20}\| "
    rf"|\[pod/[\w.-]{{0,60}}?-(?P<h>\d{{1,6}}){POD_HASH}/[\w.-]{{1,60}}\] "
)
_TAG = re.compile(r"\[\d,\d{1,6}\]<std(?:out|err)>: ?")
"""Prefix that mpirun also writes inside of lines, wherever a process flushed its output."""
RANK = re.compile(_RANK)
"""Prefix with the rank of a line."""
_WORKER = re.compile(
    r"\((?:[\w.:/-]{1,60} )?pid=\d{1,9}[^)\n]{0,60}\) "
    r"|\d{4}-\d\d-\d\dT[\d:.]{8,20}(?:Z|[+-]\d\d:\d\d) std(?:out|err) [FP] "
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,60} [\w./-]{1,60}\[\d{1,9}\]: "
)
"""Prefix without a rank: of a worker, such as ``(EngineCore_DP0 pid=26077)``, of a container, of syslog."""
HEADER = re.compile(
    r"(?P<a>[IWEF])\d{4} \d\d:\d\d:\d\d(?:\.\d{1,9})?\s{1,8}\d{1,12}\s[^\s:\]]{1,200}:\d{1,7}\] ?"
    r"|(?P<f>[IWEF])\d{4} \d\d:\d\d:\d\d(?:\.\d{1,9})?\s{1,8}[^\s:\]]{1,200}:\d{1,7}\] ?"
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{1,9}: (?P<b>[IWEF]) [^\s:\]]{1,200}:\d{1,7}\] ?"
    r"|\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?[ :,-]{1,3}"
    r"(?:\[?(?P<c>DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b\]?:?\s{0,8})?"
    r"|(?P<d>DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL):?[ :]"
    r"(?:\d{1,4}-\d\d(?:-\d\d)? \d\d:\d\d:\d\d(?:[.,]\d{1,9})? )?"
    r"(?:\[[\w./-]{1,100}(?::\d{1,7})?\] ?)?"
    r"|\[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]? (?:\[?(?P<e>DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL)\b\]?:? )?"
)
LEVELS = (b"E0000 00:", b"F0000 00:", b": E ", b": F ", b"ERROR", b"CRITICAL", b"FATAL")
"""Words of headers of errors, with zeros for digits."""
MARGIN = re.compile(r" {2,60}[|+] (?=\S| {2})")
"""Margin of the lines of an exception group."""
_TIME = re.compile(r"(?<![<\d:\[])\d\d:\d\d:\d\d(?![<\d:])|(?<=\[)\d\d:\d\d:\d\d(?=(?:[.,]\d{1,9})?\])")
"""Time of day, but not that of a progress bar, such as ``[00:10<01:30]``."""
_DATE = re.compile(r"\d{4}-(\d\d)-(\d\d)[T ]$|(?:^|[^\w])[IWEF](\d\d)(\d\d) $")
TRACEBACK = "Traceback (most recent call last):"
"""First line of a traceback."""
_KEYS = ("textPayload", "message", "msg", "log", "text")
_TEXT = re.compile(r'"(?:textPayload|message|msg|log|text)" ?: ?"((?:[^"\\]|\\.){0,20000})')
DAY = 86_400
YEAR = 366 * DAY


class Line(NamedTuple):
    """A line of a log."""

    text: str
    """Text without the prefixes."""
    level: str = ""
    """``I``, ``W``, ``E`` or ``F``; empty if it has none."""
    rank: str | None = None
    """Rank in its prefix."""


@functools.lru_cache(maxsize=1024)
def read_line(raw: bytes) -> Line:
    """Return a line without colors, prefixes and what a progress bar overwrote.

    >>> read_line(b"[3]: E0502 08:11:41.1 1201 client.cc:1] INTERNAL: lost")
    Line(text='INTERNAL: lost', level='E', rank='3')
    """
    text = ESCAPE_SEQUENCE.sub("", raw.decode("utf-8", "replace")).rstrip()
    if "\r" in text:
        text = next((part for part in reversed(text.split("\r")) if part.strip()), "")
    if text.startswith("{"):
        text = _payload(text)
    if tag := _TAG.match(text):
        text = tag[0] + text[tag.end() :].replace(tag[0].rstrip(), "")
    start, level, rank = text_start(text)
    return Line(text[start:], level, rank)


def text_start(text: str) -> tuple[int, str, str | None]:
    """Return where the text of a line begins after its prefixes, its level and its rank."""
    start, level, rank = 0, "", None
    for _ in range(4):
        if match := RANK.match(text, start):
            rank = rank or next(filter(None, match.groups()))
        elif (match := _WORKER.match(text, start) or MARGIN.match(text, start)) is None and (
            match := HEADER.match(text, start)
        ):
            level = next(filter(None, match.groups()), level)[:1] or level
            level = {"C": "E", "D": "I"}.get(level, level)
        if not match or not match[0]:
            break
        start = match.end()
    return start, level, rank


def _payload(text: str) -> str:
    """Return the text in a line of JSON, with the tracebacks in other fields; the line if it has none."""
    try:
        fields = json.loads(text)
    except ValueError:
        match = _TEXT.search(text)  # a line that is cut
        return _unescaped(match[1]) if match else text
    except RecursionError:
        return text
    texts = [fields[key] for key in _KEYS if isinstance(fields.get(key), str)][:1]
    others = [value for value in fields.values() if isinstance(value, str) and value not in texts]
    return "\n".join([*texts, *(value for value in others if TRACEBACK in value)] or [text]).rstrip()


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda escape: {"n": "\n", "t": "\t"}.get(escape[1], escape[1]), text)


def time_place(line: str) -> int:
    """Return the position of the time of day in a line; -1 if it has none."""
    match = _TIME.search(line, 0, 300 if line.startswith("{") else 80)
    return match.start() if match else -1


def seconds_at(line: bytes, place: int) -> int:
    """Return the time in a line in seconds: without its year if it has a date, since midnight otherwise.

    Args:
        line: The line.
        place: Position of the time of day.
    """
    return _day(line[max(0, place - 12) : place]) * DAY + _second(line[place : place + 8])


@functools.lru_cache(maxsize=256)
def _day(before: bytes) -> int:
    """Return the number of the day that stands before a time; 0 without one."""
    match = _DATE.search(before.decode("ascii", "replace"))
    if match is None:
        return 0
    try:
        # Loggers of one process write dates with and without the year.
        return date(2001, int(match[1] or match[3]), int(match[2] or match[4])).toordinal()
    except ValueError:
        return 0


@functools.lru_cache(maxsize=4096)
def _second(clock: bytes) -> int:
    """Return the second of the day of a time such as ``12:18:30``."""
    return int(clock[:2]) * 3600 + int(clock[3:5]) * 60 + int(clock[6:8])


_ROOM = 1 << 21
"""Characters that are read of the records that differ. Further ones are only counted."""


class RecordReader(ABC):
    """Reads records of several lines, whose first one has one of its words, in bounded memory."""

    words: tuple[bytes, ...]
    """Words of first lines."""
    open: Sized
    """What is known of records that may go on; empty if the next line belongs to none."""

    def __init__(self) -> None:
        self.unlisted_count = 0
        """Number of records that were only counted: too many differ."""
        self._room = _ROOM

    def read(self, lines: Sequence[bytes], places: Iterable[int], first: int) -> None:
        """Read the next lines.

        Args:
            lines: The lines.
            places: Places of those that may begin a record, in order.
            first: Number of the first line.
        """
        if self._room < 0:  # a flood takes no time
            self._count(b"\n".join(map(lines.__getitem__, places)))
            self._finish_all()
            return
        position = 0
        for place in (*places, len(lines)):
            while self.open and position < place:
                self._go_on(lines[position])
                position += 1
            if place < len(lines):
                self._begin(lines[place], first + place)
            position = place + 1

    def _count(self, text: bytes) -> None:
        """Count the records in a text that is not read."""
        self.unlisted_count += sum(map(text.count, self.words))

    @abstractmethod
    def _begin(self, line: bytes, number: int) -> None:
        """Read the first line of a record."""

    @abstractmethod
    def _go_on(self, line: bytes) -> None:
        """Read a line after it."""

    @abstractmethod
    def _finish_all(self) -> None:
        """Let all records end."""
