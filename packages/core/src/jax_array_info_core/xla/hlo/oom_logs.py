"""XLA's refusals of programs, allocations that failed, and both in logs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ...base.quantities import LARGEST
from ...base.text import ESCAPE_SEQUENCE
from .messages import ArrayShape
from .source import Frame, read_array, read_metadata

SIZE = r"\d{1,19}(?:\.\d{1,15})?(?: ?[KMGTPE]i?B|[KMGTPE]|B)?(?![\w.]?\d)"
"""Pattern of a size in bytes, such as ``15.75G`` or ``1.5GiB``."""
NO_ROOM_AT_COMPILATION = (
    r"\(<needed_nbytes>\) exceeds available HBM \(<available_nbytes>\)",  # libtpu since JAX 0.12
    r"[Rr]an out of memory in memory space hbm\. Used <needed_nbytes> of <available_nbytes> hbm",
)
"""Wordings on a program that does not fit, with names of sizes."""
GIVEN_UP = (
    r"Requires <needed_nbytes>, has <available_nbytes> available",
    r"Allocation \(size=<needed_nbytes>\) would exceed memory \(size=<available_nbytes>\)",
)
"""Wordings on a program that the compiler gives up early."""
FAILED_ALLOCATION = (
    r"ran out of memory trying to allocate .{0,40}\(rounded to <rounded_nbytes>\)",  # the allocator for GPUs
    r"Out of memory (?:while trying to allocate|allocating) <requested_nbytes>",
    r"Failed to allocate request for .{0,40}\(<requested_nbytes>\) on device",
    r"Could not allocate <requested_nbytes> bytes in memory ",
)
"""Wordings on an allocation that failed while a program ran."""
_SIZE = f"({SIZE})"
_UNITS = {unit: 1024**power for power, unit in enumerate("KMGTPE", 1)}


def _compiled(*wordings: str) -> tuple[re.Pattern[str], ...]:
    """Return the patterns of wordings, whose groups are sizes."""
    return tuple(re.compile(re.sub(r"<\w+>", lambda _: _SIZE, wording)) for wording in wordings)


_NEEDED_AND_AVAILABLE = _compiled(
    *NO_ROOM_AT_COMPILATION,
    *GIVEN_UP,
    r"TPU TensorCore Hbm usage: <needed_nbytes>,.{0,200} exceeding available bytes: <available_nbytes>",
)
_REQUESTED = _compiled(
    *FAILED_ALLOCATION,
    r"Attempting to (?:allocate|reserve) <requested_nbytes>[^\d].{0,60}That was not possible",
)
_FREE = re.compile(rf"There are {_SIZE} free|bytes allocatable, {_SIZE} bytes available")
_LIMIT = re.compile(r"\bLimit: +(\d{1,18})$", re.MULTILINE)
_IN_USE = re.compile(r"\bInUse: +(\d{1,18})$", re.MULTILINE)
_TOTAL = re.compile(rf"\btotal allocation: +{_SIZE}")
_MODULE = re.compile(r"\bHLO module: (\S+?)\.?(?= |$)")
_CODE = re.compile(r"^(?:[A-Z_]+: )?(?:E\d{4}: \w+: )?(?:XLA:TPU compile permanent error\. )?")
_ROW = re.compile(rf"^ *\d+\. Size: {_SIZE} *\n((?: {{5,}}\S.*\n?)*)", re.MULTILINE)
_SHAPE_LINE = re.compile(r"^ *Shape: (.*)$", re.MULTILINE)
_ONE_SHAPE = re.compile(r"\[shape = '([^']*)'")


class ListedBuffer(NamedTuple):
    """A buffer of a program that does not fit."""

    nbytes: int
    """Bytes, with padding."""

    shape: ArrayShape
    """Type of the largest value in it."""

    op: str | None = None
    """``op_name`` of the value's operation; of an argument, its path."""

    frames: tuple[Frame, ...] = ()
    """Source lines of the operation, innermost first."""


class Refusal(NamedTuple):
    """XLA's refusal of a program, or an allocation that failed."""

    message: str
    """First line of the message, without the error's code."""

    required_nbytes: int | None
    """Bytes that the program needs, as far as the message has them."""

    available_nbytes: int | None
    """Bytes that a device has."""

    buffers: tuple[ListedBuffer, ...]
    """The message's table of the largest buffers; empty if it has none."""

    requested_nbytes: int | None = None
    """Bytes of the allocation that failed; None for a program that was refused before it ran."""

    free_nbytes: int | None = None
    """Bytes that were free then."""

    is_warning: bool = False
    """Whether it comes before an error, which may follow: the warning of the allocator for GPUs, which rounds
    the bytes up, or libtpu's memory usage report."""

    @property
    def module(self) -> str:
        """Name of the program; empty if the message has none."""
        found = _MODULE.search(self.message)
        return found[1] if found else ""


def read_out_of_memory(text: str) -> Refusal | None:
    """Return the refusal in an error message of the compiler; None if it is about something else.

    Messages about other memory than that of the device, such as a kernel's VMEM, are not refusals of the
    program.

    Args:
        text: The whole message.
    """
    found = next((match for one in _NEEDED_AND_AVAILABLE if (match := one.search(text))), None)
    if found is None:
        return None
    return Refusal(
        message=_message(text),
        required_nbytes=nbytes_of(found[1]),
        available_nbytes=nbytes_of(found[2]),
        buffers=tuple(_table(text)) or _single(text, found[1]),
        is_warning=_USAGE in text.partition("\n")[0],
    )


def read_failed_allocation(text: str) -> Refusal | None:
    """Return the allocation that failed while a program ran, or None if a message is about something else.

    Args:
        text: The whole message, with its tables as libtpu writes them.
    """
    found = next((match for one in _REQUESTED if (match := one.search(text))), None)
    if found is None:
        return None
    free, limit, in_use, total = (one.search(text) for one in (_FREE, _LIMIT, _IN_USE, _TOTAL))
    free_nbytes = nbytes_of(free[1] or free[2]) if free else None
    if limit and in_use:
        free_nbytes = max(0, int(limit[1]) - int(in_use[1]))
    return Refusal(
        message=_message(text),
        required_nbytes=nbytes_of(total[1]) if total else None,
        available_nbytes=None,
        buffers=tuple(_table(text)),
        requested_nbytes=nbytes_of(found[1]),
        free_nbytes=free_nbytes,
        is_warning=found.re is _REQUESTED[0],
    )


def _message(text: str) -> str:
    """Return the first line of a message, without the error's code."""
    first = next(line for line in text.splitlines() if line.strip())
    return _CODE.sub("", first.partition(_USAGE)[0].strip())


def nbytes_of(size: str) -> int:
    """Return the bytes of a size such as ``15.75G`` or ``1.5GiB``."""
    size = size.rstrip("iB ")
    unit = _UNITS.get(size[-1])
    is_whole = unit is None and size.isdecimal()
    return min(int(size) if is_whole else round(float(size.rstrip("KMGTPE ")) * (unit or 1)), LARGEST)


def _table(text: str) -> Iterator[ListedBuffer]:
    """Yield the rows of a message's table that are arrays."""
    for row in _ROW.finditer(text):
        shape_line = _SHAPE_LINE.search(row[2])
        shape = read_array(shape_line[1]) if shape_line else None
        if shape is None:
            continue
        yield ListedBuffer(nbytes_of(row[1]), shape, *read_metadata(row[2]))


def _single(text: str, size: str) -> tuple[ListedBuffer, ...]:
    """Return the array of a message about a single allocation."""
    found = _ONE_SHAPE.search(text)
    shape = read_array(found[1]) if found else None
    return () if shape is None else (ListedBuffer(nbytes_of(size), shape),)


STATUS = b"RESOURCE_EXHAUSTED"
"""Status of these errors in all versions."""
ALLOCATOR = b"ran out of memory trying to allocate"
"""Words of XLA's allocator for GPUs, which warns before the error."""

REPORT = b"XLA:TPU compile permanent error"
"""Words of libtpu before its memory usage report, which is in the log before the error."""
_USAGE = "Memory usage report:"
WORDS = (STATUS, ALLOCATOR, REPORT)
"""Each error has one of these words."""

_OF_MEMORY = re.compile(rb"memory|alloc|hbm|permanent error", re.IGNORECASE)
# The number of a process before each of its lines, or its name.
_SENDER = re.compile(
    rb"(?:\x1b\[[\d;]*m)?(?:\([^()\n]{1,100}\)|\[[^][\n]{1,100}\]:?|\d{1,6}:|[\w.-]{1,60} +\|)"
    rb"(?:\x1b\[[\d;]*m)? "
)
_FACT = re.compile(rb"\b(?:Size|Operator|Shape|Subshape|total allocation|Limit|InUse): |\( *\d+%\); +\d")
_TABLE_LINE = re.compile(r"\b(?:(Size)|(Operator)|Shape|Subshape): ")
# Of the memory usage report: cumulative size; size; offset; number of values; types of the values.
_USAGE_ROW = re.compile(r"\( *\d+%\); +([\d.]+[KMGTP]?i?B); +\d+; +\d+; (.*)")
_TYPE = re.compile(r"[a-z]\w*\[[^][]*\]")
_OTHER_MEMORY = re.compile(rb"\bMemory Space: .*\(color=[1-9]")
# The device, the process and fields of JSON: errors are equal apart from them.
_END = re.compile(
    r"""; \(\w+_HBM\d|: while running replica| Scope: |requested by op| \[tf-allocator|"[],}]|["'][)"]*$"""
)
_BEFORE_FREE = " There are "
"""Words before the free bytes."""

_MOST_HEADS = 4
"""Lines over which the first sentence may be wrapped."""
_MOST_FACTS = 10_000
"""Lines of tables after which an error ends."""
_MOST_IDLE = 100
"""Lines without a fact after which an error ends."""
_MOST_OPEN = 64
"""Number of processes whose lines are told apart."""
_LONGEST = 1 << 14
"""Characters of a line that are read: names of operations are long."""
_LONGEST_ERROR = 1 << 18
_ROOM = 1 << 21
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
        self._found: list[Refusal] = []

    def in_lines(self, lines: bytes) -> list[Refusal]:
        """Return the errors that end in whole lines."""
        position = 0
        if self._room < 0:
            self.unlisted_count += sum(map(lines.count, WORDS))
            return self.end()
        starts = sorted(start for words in WORDS for start in positions(lines, words))
        for place, start in enumerate(starts):
            if self._room < 0:
                self.unlisted_count += len(starts) - place
                return self.end()
            if start < position:
                continue
            first = lines.rfind(b"\n", position, start) + 1 or position
            self._go_on(lines, position, first)
            position = lines.find(b"\n", start) + 1 or len(lines)
            self._begin(lines[first:start], lines[start : min(position, start + _LONGEST_ERROR)])
        self._go_on(lines, position, len(lines))
        return self._taken()

    def end(self) -> list[Refusal]:
        """Return the errors that the end of the log ends."""
        for sender in list(self._open):
            self._finish(sender)
        return self._taken()

    def _taken(self) -> list[Refusal]:
        found, self._found = self._found, []
        return found

    def _begin(self, before: bytes, line: bytes) -> None:
        """Open the error that a line begins with; one that is all in one line, as in JSON, ends there."""
        self._room -= _COST
        refusal = self._known.get(line)
        is_error = refusal is not None or (_OF_MEMORY.search(line) and b"is not a failure" not in line)
        is_error = is_error and (not line.startswith(REPORT) or _USAGE.encode() in line)
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
        if _OTHER_MEMORY.search(line):
            self._finish(sender)
            return
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

    def _read(self, data: bytes) -> Refusal | None:
        """Return the facts of an error."""
        if data not in self._known:
            self._room -= len(data) + 5 * _COST
            head, *lines = _text(data).split("\n")
            text = "\n".join((_END.split(head, maxsplit=1)[0].strip(), *map(_fact, lines)))
            found = read_out_of_memory(text) or read_failed_allocation(text)
            if found is not None:
                key = found._replace(message=found.message.partition(_BEFORE_FREE)[0], free_nbytes=None)
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
    if row := _USAGE_ROW.search(line):
        # Tuples, which hold only addresses, come last.
        types = _TYPE.findall(row[2].partition("(")[0])
        return f"1. Size: {row[1]}\n     Shape: {max(types, key=_array_nbytes, default='')}"
    found = _TABLE_LINE.search(line)
    if found is None:
        return line
    name = "1. Size: " if found[1] else "     Operator: " if found[2] else "     Shape: "
    return name + line[found.end() :].strip()


def _array_nbytes(text: str) -> int:
    """Return the bytes of a type; -1 if it is not that of an array."""
    found = read_array(text)
    return -1 if found is None else found.nbytes


def positions(lines: bytes, words: bytes) -> Iterator[int]:
    """Yield the positions of a text."""
    start = lines.find(words)
    while start >= 0:
        yield start
        start = lines.find(words, start + len(words))
