"""Warnings in a log that is read piece by piece."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from .warnings import (
    BUFFER_START,
    DONATION,
    ESCAPE_SEQUENCE,
    LONGEST,
    REMATERIALIZATION,
    DonationWarning,
    LogWarning,
    UnreadWarning,
    warnings_in,
)

_LONGEST_LINE = 2 * LONGEST
_MOST_WRAPPED = {DONATION: 1000, REMATERIALIZATION: 10}
"""Lines over which a warning may be wrapped."""
_ROOM = 1 << 23
"""Characters that are read of the warnings that differ. Others are only counted."""
_COST = 200
"""Characters that take as long as a line, a warning or four buffers."""

_WORDS = (REMATERIALIZATION.encode(), DONATION.encode())
_EITHER = re.compile(b"|".join(map(re.escape, _WORDS)))
_END = re.compile(rb"\. (?:You probably want|As the last resort)|See an explanation|Donation is not|\\n")
"""Text after a warning, which may differ where the warning is the same."""
_NEW_LINE = re.compile(r"\S{0,20} ?(?:[IWEF]\d{4} \d\d:|\d{4}-\d\d-\d\d[ T]\d\d:)")
_BUFFER = re.compile(BUFFER_START)


class LogScanner:
    """Finds the warnings in a log of any length, in bounded memory and in time linear in its length."""

    def __init__(self) -> None:
        self.line_count = 0
        """Number of lines so far."""
        self.unlisted_count = 0
        """Number of warnings that were only counted: too many differ."""
        self._known: dict[bytes, list[LogWarning]] = {}
        """Warnings in each line that has been read."""
        self._room = _ROOM
        self._rest = b""
        self._is_clipped = False
        self._open: list[str] = []
        """Lines of a warning that may go on."""

    def feed(self, data: bytes) -> Iterator[LogWarning]:
        """Yield the warnings that end in the next piece of the log."""
        self.line_count += data.count(b"\n")
        end = data.rfind(b"\n") + 1
        if end:
            lines = self._rest + data[:end]
            self._rest, self._is_clipped = b"", False
            yield from self._in_lines(lines)
        self._keep(data[end:])

    def end(self) -> Iterator[LogWarning]:
        """Yield the warnings at the end of the log."""
        if self._rest:
            self.line_count += 1
            yield from self._in_lines(self._rest + b"\n")
        yield from self._finish()

    def _keep(self, data: bytes) -> None:
        """Keep the beginning of a line; of a very long one, the part that may be a warning."""
        if self._is_clipped:
            return
        self._rest += data
        if len(self._rest) > _LONGEST_LINE:
            words = _EITHER.search(self._rest)
            start = len(self._rest) - 64 if words is None else words.start()
            self._rest = self._rest[start : start + _LONGEST_LINE]
            self._is_clipped = len(self._rest) == _LONGEST_LINE

    def _in_lines(self, lines: bytes) -> Iterator[LogWarning]:
        """Yield the warnings in whole lines."""
        # To search for one text after the other is much faster than for either.
        starts = sorted(start for words in _WORDS for start in _positions(lines, words))
        for start, following in itertools.pairwise([-1, *starts, len(lines)]):
            position = 0
            if start >= 0:
                yield from self._finish()
                position = lines.find(b"\n", start, following) + 1 or following
                yield from self._begin(lines[start : min(position, start + _LONGEST_LINE)])
            while self._open and (end := lines.find(b"\n", position, following) + 1):
                yield from self._go_on(lines[position : min(end, position + _LONGEST_LINE)])
                position = end

    def _begin(self, line: bytes) -> list[LogWarning]:
        """Return the warning that a line begins with; none if it may go on in the next line."""
        line = _END.split(line, maxsplit=1)[0]
        if line in self._known:
            return self._known[line]
        if self._room < 0:
            self.unlisted_count += 1
            return []
        self._open = [self._text(line)]
        if self._is_open():
            return []
        return self._known.setdefault(line, self._finish())

    def _go_on(self, line: bytes) -> list[LogWarning]:
        """Return the open warning if a line is its last, or does not belong to it."""
        text = self._text(line)
        if not self._goes_on_with(text):
            return self._finish()
        self._open.append(self._without_prefix(text))
        return [] if self._is_open() else self._finish()

    def _text(self, line: bytes) -> str:
        """Return the text of a line."""
        self._room -= len(line) + _COST
        # The bracket of a color is not one of a buffer.
        return ESCAPE_SEQUENCE.sub("", line.decode("utf-8", "replace")).rstrip()

    def _is_open(self) -> bool:
        """Return whether the rest of the warning may be in the next line."""
        first = self._open[0]
        if first.startswith(DONATION):
            last = self._open[-1]
            return last.endswith((",", "usable:")) or _is_within(last, "[]") or _is_within(last, "()")
        return isinstance(self._read_open()[0], UnreadWarning)

    def _goes_on_with(self, line: str) -> bool:
        """Return whether a line goes on with the open warning."""
        is_donation = self._open[0].startswith(DONATION)
        if len(self._open) >= _MOST_WRAPPED[DONATION if is_donation else REMATERIALIZATION]:
            return False
        if sum(map(len, self._open)) + len(line) > LONGEST:
            return False
        if _NEW_LINE.match(line) and not is_donation:
            return False
        return not is_donation or "]" in line or _BUFFER.search(line) is not None

    def _without_prefix(self, line: str) -> str:
        """Return a line without what stands before its first buffer, such as the name of a process."""
        if not self._open[0].startswith(DONATION) or _is_within(self._open[-1], "[]"):
            return line
        buffer = _BUFFER.search(line)
        return line[buffer.start() :] if buffer else line

    def _read_open(self) -> list[LogWarning]:
        """Return the open warning: the lines were divided between words, or within them."""
        found: list[LogWarning] = []
        for text in dict.fromkeys(("".join(self._open), " ".join(self._open), self._open[0])):
            found = self._read(text)
            if not found or not isinstance(found[0], UnreadWarning):
                break
        return found

    def _read(self, text: str) -> list[LogWarning]:
        """Return the warning in a text."""
        found = list(warnings_in(text))
        buffers = sum(len(one.buffers) for one in found if isinstance(one, DonationWarning))
        self._room -= len(text) + _COST + buffers * _COST // 4
        return found

    def _finish(self) -> list[LogWarning]:
        """Return the open warning."""
        found = self._read_open() if self._open else []
        self._open = []
        return found


def _is_within(text: str, brackets: str) -> bool:
    """Return whether a text ends within brackets."""
    return text.rfind(brackets[0]) > text.rfind(brackets[1])


def _positions(lines: bytes, words: bytes) -> Iterator[int]:
    """Yield the positions of a text."""
    start = lines.find(words)
    while start >= 0:
        yield start
        start = lines.find(words, start + len(words))
