"""Warnings in a log that is read piece by piece."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .warnings import (
    DONATION,
    ESCAPE_SEQUENCE,
    LONGEST,
    REMATERIALIZATION,
    LogWarning,
    UnreadWarning,
    warnings_in,
)

_LONGEST_LINE = 2 * LONGEST
_MOST_WRAPPED = {DONATION: 1000, REMATERIALIZATION: 10}
"""Lines over which a warning may be wrapped."""

_WORDS = (REMATERIALIZATION.encode(), DONATION.encode())
_EITHER = re.compile(b"|".join(map(re.escape, _WORDS)))
_EACH = re.compile(f"(?={REMATERIALIZATION}|{DONATION})")
_NEW_LINE = re.compile(r"\S{0,20} ?(?:[IWEF]\d{4} \d\d:|\d{4}-\d\d-\d\d[ T]\d\d:)")
_LIST_GOES_ON = re.compile(r"(?:,|usable:|\[[^\]]*|\([^)]*)\Z")
_IN_BRACKETS = re.compile(r"\[[^\]]*\Z")
_BUFFER = re.compile(r"(?:ShapedArray\()?~?[A-Za-z]\w*(?:<\w+>)?\[")


class LogScanner:
    """Finds the warnings in a log of any length, in bounded memory."""

    def __init__(self) -> None:
        self.line_count = 0
        """Number of lines so far."""
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
        starts = iter(sorted(start for words in _WORDS for start in _positions(lines, words)))
        position = 0
        while position < len(lines):
            if not self._open:
                position = next((start for start in starts if start >= position), len(lines))
                if position == len(lines):
                    return
            end = lines.index(b"\n", position) + 1
            line = lines[position : min(end, position + _LONGEST_LINE)].decode("utf-8", "replace")
            # The bracket of a color is not one of a buffer.
            text = ESCAPE_SEQUENCE.sub("", line).rstrip()
            if not self._open:
                *earlier, last = _EACH.split(text)[1:]
                for one in earlier:
                    yield from warnings_in(one)
                self._open = [last]
            elif self._goes_on_with(text):
                self._open.append(self._without_prefix(text))
            else:
                yield from self._finish()
                continue  # with the same line
            position = end
            if not self._is_open():
                yield from self._finish()

    def _is_open(self) -> bool:
        """Return whether the rest of the warning may be in the next line."""
        first = self._open[0]
        if first.startswith(DONATION):
            return _LIST_GOES_ON.search(self._open[-1]) is not None
        return isinstance(self._read(), UnreadWarning)

    def _goes_on_with(self, line: str) -> bool:
        """Return whether a line goes on with the open warning."""
        is_donation = self._open[0].startswith(DONATION)
        if len(self._open) >= _MOST_WRAPPED[DONATION if is_donation else REMATERIALIZATION]:
            return False
        if _EACH.search(line) or (_NEW_LINE.match(line) and not is_donation):
            return False
        return not is_donation or "]" in line or _BUFFER.search(line) is not None

    def _without_prefix(self, line: str) -> str:
        """Return a line without what stands before its first buffer, such as the name of a process."""
        if not self._open[0].startswith(DONATION) or _IN_BRACKETS.search(self._open[-1]):
            return line
        buffer = _BUFFER.search(line)
        return line[buffer.start() :] if buffer else line

    def _read(self) -> LogWarning | None:
        """Return the open warning: the lines were divided between words, or within them."""
        found: LogWarning | None = None
        for text in ("".join(self._open), " ".join(self._open), self._open[0]):
            found = next(warnings_in(text), None)
            if not isinstance(found, UnreadWarning):
                break
        return found

    def _finish(self) -> Iterator[LogWarning]:
        """Yield the open warning."""
        if self._open:
            found = self._read()
            self._open = []
            if found is not None:
                yield found


def _positions(lines: bytes, words: bytes) -> Iterator[int]:
    """Yield the positions of a text."""
    start = lines.find(words)
    while start >= 0:
        yield start
        start = lines.find(words, start + len(words))
