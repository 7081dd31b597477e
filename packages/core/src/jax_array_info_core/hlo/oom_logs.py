"""Out-of-memory errors in logs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..text import ESCAPE_SEQUENCE
from .oom_tables import MOST_BUFFERS, Refusal, read_failed_allocation, read_out_of_memory

STATUS = b"RESOURCE_EXHAUSTED"
"""Status of these errors in all versions."""
ALLOCATOR = b"ran out of memory trying to allocate"
"""Words of XLA's allocator for GPUs, which warns before the error."""

_OF_MEMORY = re.compile(rb"memory|alloc|hbm|permanent error", re.IGNORECASE)
# The number of a process before each of its lines, or its name.
_SENDER = re.compile(
    rb"(?:\x1b\[[\d;]*m)?(?:\([^()\n]{1,100}\)|\[[^][\n]{1,100}\]:?|\d{1,6}:|[\w.-]{1,60} +\|)"
    rb"(?:\x1b\[[\d;]*m)? "
)
_FACT = re.compile(rb"\b(?:Size|Operator|Shape|Subshape|total allocation|Limit|InUse): ")
_TABLE_LINE = re.compile(r"\b(?:(Size)|(Operator)|Shape|Subshape): ")
# The device, the process and fields of JSON: errors are equal apart from them.
_END = re.compile(
    r"""; \(\w+_HBM\d|: while running replica| Scope: |requested by op| \[tf-allocator|"[],}]|["'][)"]*$"""
)
_FREE = " There are "
"""Words before the free bytes."""

_MOST_HEADS = 4
"""Lines over which the first sentence may be wrapped."""
_MOST_FACTS = 6 * MOST_BUFFERS
_MOST_IDLE = 100
"""Lines without a fact after which an error ends."""
_MOST_OPEN = 64
"""Number of processes whose lines are told apart."""
_LONGEST = 1 << 14
"""Characters of a line that are read: names of operations are long."""
_LONGEST_ERROR = 1 << 18
_LONGEST_UNREAD = 300
_ROOM = 1 << 24
"""Characters of the errors that are read. Further ones are only counted."""
_COST = 40
"""Characters that take as long as a line inside an error."""


class _Error:
    """Lines of an error that may go on."""

    __slots__ = ("facts", "head", "idle_count", "refusal")

    def __init__(self, head: bytes, refusal: Refusal | None) -> None:
        self.head = [head]
        """The first sentence."""
        self.refusal = refusal
        """What it says; None as long as it could not be read."""
        self.facts: list[bytes] = []
        """Lines of tables."""
        self.idle_count = 0


class ErrorScanner:
    """Finds the out-of-memory errors in the lines of a log, in bounded memory.

    Their tables follow in the next lines, with or without the prefix of the first one, and between lines of
    other processes.
    """

    def __init__(self) -> None:
        self.unlisted_count = 0
        """Number of errors that were only counted: too many differ."""
        self._known: dict[bytes, Refusal | None] = {}
        self._first: dict[Refusal, Refusal] = {}
        """The first of the errors that differ only in the free bytes, which each device has."""
        self._room = _ROOM
        self._open: dict[bytes, _Error] = {}
        """Errors that may go on, by what stands before the lines of their process."""
        self._found: list[Refusal | str] = []

    def in_lines(self, lines: bytes) -> list[Refusal | str]:
        """Return the errors that end in whole lines; the first line of one that could not be read."""
        position = 0
        for start in sorted([*positions(lines, STATUS), *positions(lines, ALLOCATOR)]):
            if start < position:
                continue
            first = lines.rfind(b"\n", position, start) + 1 or position
            self._go_on(lines, position, first)
            position = lines.find(b"\n", start) + 1 or len(lines)
            self._begin(lines[first:start], lines[start : min(position, start + _LONGEST_ERROR)])
        self._go_on(lines, position, len(lines))
        return self._taken()

    def end(self) -> list[Refusal | str]:
        """Return the errors that the end of the log ends."""
        for sender in list(self._open):
            self._finish(sender)
        return self._taken()

    def _taken(self) -> list[Refusal | str]:
        found, self._found = self._found, []
        return found

    def _begin(self, before: bytes, line: bytes) -> None:
        """Open the error that a line begins with; one that is all in one line, as in JSON, ends there."""
        if self._room < 0:
            self.unlisted_count += _OF_MEMORY.search(line) is not None
            return
        refusal = self._known.get(line)
        is_error = refusal is not None or (_OF_MEMORY.search(line) and b"is not a failure" not in line)
        # ``jai-cli run`` repeats the error.
        if not is_error or before.endswith(b"live arrays at "):
            return
        sender = _sender(before)
        self._finish(sender)
        if len(self._open) == _MOST_OPEN:
            self._finish(next(iter(self._open)))
        if refusal is not None:
            self._open[sender] = _Error(line, refusal)
            return
        head, *rest = _unescaped(line.rstrip())
        refusal = self._read(head)
        self._open[sender] = _Error(head, refusal)
        if refusal is not None and not rest:
            self._known[line] = refusal
        for part in rest:
            self._add(sender, part)
        if rest:
            self._finish(sender)

    def _go_on(self, lines: bytes, start: int, end: int) -> None:
        """Add lines to the errors that may go on."""
        while self._open and start < end:
            stop = lines.find(b"\n", start, end) + 1 or end
            line = lines[start:stop]
            sender = _sender(line)
            # Without a prefix of their own, lines belong to the last error.
            self._add(sender if sender and sender in self._open else next(reversed(self._open)), line)
            start = stop

    def _add(self, sender: bytes, line: bytes) -> None:
        """Add a line to the open error of a process."""
        error = self._open.get(sender)
        if error is None:
            return
        self._room -= _COST
        # The allocator lists all its chunks, with their sizes, before its statistics.
        is_chunk = b"_allocator.cc" in line
        if not is_chunk and _FACT.search(line):
            error.facts.append(line[:_LONGEST].rstrip())
            error.idle_count = 0
            self._room -= len(error.facts[-1])
        elif not is_chunk:
            error.idle_count += 1
        if error.refusal is None and len(error.head) < _MOST_HEADS:
            error.head.append(line.removeprefix(sender)[:_LONGEST].strip())
            error.refusal = self._read(b" ".join(error.head))
        if error.idle_count == _MOST_IDLE or len(error.facts) == _MOST_FACTS or self._room < 0:
            self._finish(sender)

    def _finish(self, sender: bytes) -> None:
        """Close the open error of a process."""
        error = self._open.pop(sender, None)
        if error is None:
            return
        found = error.refusal
        if found is not None:
            if error.facts:
                found = self._read(b"\n".join((b" ".join(error.head), *error.facts))) or found
            self._found.append(found)
        elif error.head[0].startswith(STATUS):
            self._found.append(_text(error.head[0][:_LONGEST_UNREAD]))

    def _read(self, data: bytes) -> Refusal | None:
        """Return the facts of an error."""
        if data not in self._known:
            self._room -= len(data) + 5 * _COST
            head, *lines = _text(data).split("\n")
            text = "\n".join((_END.split(head, maxsplit=1)[0].strip(), *map(_fact, lines)))
            found = read_out_of_memory(text) or read_failed_allocation(text)
            if found is not None:
                key = found._replace(message=found.message.partition(_FREE)[0], free_nbytes=None)
                if key not in self._first or self._first[key].free_nbytes is None:
                    self._first[key] = found
                found = self._first[key]
            self._known[data] = found
        return self._known[data]


def _text(data: bytes) -> str:
    """Return the text of lines, without colors."""
    return ESCAPE_SEQUENCE.sub("", data.decode("utf-8", "replace"))


def _sender(line: bytes) -> bytes:
    """Return what stands before each line of a process."""
    found = _SENDER.match(line)
    return found[0] if found else b""


def _unescaped(line: bytes) -> list[bytes]:
    """Return the line of an error; its lines if it is one string, as in JSON."""
    if b"\\n" not in line:
        return [line]
    return line.replace(b"\\n", b"\n").replace(b"\\t", b"\t").replace(b'\\"', b'"').split(b"\n")


def _fact(line: str) -> str:
    """Return a line of a table as libtpu writes it, without its prefix."""
    found = _TABLE_LINE.search(line)
    if found is None:
        return line
    name = "1. Size: " if found[1] else "     Operator: " if found[2] else "     Shape: "
    return name + line[found.end() :].strip()


def positions(lines: bytes, words: bytes) -> Iterator[int]:
    """Yield the positions of a text."""
    start = lines.find(words)
    while start >= 0:
        yield start
        start = lines.find(words, start + len(words))
