"""XLA's refusals of programs, allocations that failed, and both in logs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ...base.quantities import LARGEST
from ...base.text import ESCAPE_SEQUENCE
from ..logs.lines import RecordReader
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
        name = _MODULE.search(self.message)
        return name[1] if name else ""


def read_out_of_memory(text: str) -> Refusal | None:
    """Return the refusal in an error message of the compiler; None if it is about something else.

    Messages about other memory than that of the device, such as a kernel's VMEM, are not refusals of the
    program.

    Args:
        text: The whole message.
    """
    sizes = next(filter(None, (pattern.search(text) for pattern in _NEEDED_AND_AVAILABLE)), None)
    if sizes is None:
        return None
    return Refusal(
        message=_message(text),
        required_nbytes=nbytes_of(sizes[1]),
        available_nbytes=nbytes_of(sizes[2]),
        buffers=tuple(_table(text)) or _single(text, sizes[1]),
        is_warning=_USAGE in text.partition("\n")[0],
    )


def read_failed_allocation(text: str) -> Refusal | None:
    """Return the allocation that failed while a program ran, or None if a message is about something else.

    Args:
        text: The whole message, with its tables as libtpu writes them.
    """
    size = next(filter(None, (pattern.search(text) for pattern in _REQUESTED)), None)
    if size is None:
        return None
    free, limit, in_use, total = (pattern.search(text) for pattern in (_FREE, _LIMIT, _IN_USE, _TOTAL))
    free_nbytes = nbytes_of(free[1] or free[2]) if free else None
    if limit and in_use:
        free_nbytes = max(0, int(limit[1]) - int(in_use[1]))
    return Refusal(
        message=_message(text),
        required_nbytes=nbytes_of(total[1]) if total else None,
        available_nbytes=None,
        buffers=tuple(_table(text)),
        requested_nbytes=nbytes_of(size[1]),
        free_nbytes=free_nbytes,
        is_warning=size.re is _REQUESTED[0],
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
        if shape is not None:
            yield ListedBuffer(nbytes_of(row[1]), shape, *read_metadata(row[2]))


def _single(text: str, size: str) -> tuple[ListedBuffer, ...]:
    """Return the array of a message about a single allocation."""
    named = _ONE_SHAPE.search(text)
    shape = read_array(named[1]) if named else None
    return () if shape is None else (ListedBuffer(nbytes_of(size), shape),)


STATUS = b"RESOURCE_EXHAUSTED"
"""Status of these errors in all versions."""
ALLOCATOR = b"ran out of memory trying to allocate"
"""Words of XLA's allocator for GPUs, which warns before the error."""

REPORT = b"XLA:TPU compile permanent error"
"""Words of libtpu before its memory usage report, which is in the log before the error."""
REFUSED = b"Ran out of memory in memory space hbm"
"""Words of libtpu's refusal, which may stand behind words of a program in place of the status."""
_USAGE = "Memory usage report:"

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
_COST = 40
"""Characters that take as long as a line inside an error."""


class _Error:
    """Lines of an error that may go on."""

    __slots__ = ("facts", "head", "idle_count", "number", "refusal")

    def __init__(self, head: bytes, number: int, refusal: Refusal | None) -> None:
        self.head = [head]
        """The first sentence."""
        self.number = number
        """Number of its line."""
        self.refusal = refusal
        """What it says; None as long as it could not be read."""
        self.facts: list[bytes] = []
        """Lines of tables."""
        self.idle_count = 0


class ErrorReader(RecordReader):
    """Reads the out-of-memory errors in the lines of a log.

    Their tables follow in the next lines, with or without the prefix of the first one, and between lines of
    other processes.
    """

    words = (STATUS, ALLOCATOR, REPORT, REFUSED)

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[bytes, Refusal | None] = {}
        self._first: dict[Refusal, Refusal] = {}
        """The first of the errors that differ only in the free bytes, which each device has."""
        self.open: dict[bytes, _Error] = {}
        """Errors that may go on, by what stands before the lines of their process."""
        self._ended: dict[int, Refusal] = {}
        """Errors that have come to an end, by the number of their first line."""

    def end(self) -> dict[int, Refusal]:
        """Return the errors of a log that has come to its end, by the number of their first line."""
        self._finish_all()
        ended, self._ended = self._ended, {}
        return ended

    def _finish_all(self) -> None:
        for sender in list(self.open):
            self._finish(sender)

    def _begin(self, line: bytes, number: int) -> None:
        """Open the error that a line begins with; one that is all in one line, as in JSON, ends there."""
        start = min((line.index(word) for word in self.words if word in line), default=-1)
        is_wrapped = (
            line.startswith(REFUSED, start) and self.open and self.open[self._owner(line)].refusal is None
        )
        if self._room < 0:
            self._count(line)
        elif start >= 0 and not is_wrapped:
            self._start(line[:start], line[start : start + _LONGEST_ERROR], number)
        elif self.open:
            self._go_on(line)

    def _go_on(self, line: bytes) -> None:
        """Add a line to the error that it belongs to."""
        self._add(self._owner(line), line)

    def _owner(self, line: bytes) -> bytes:
        """Return the sender of the open error that a line belongs to."""
        sender = _sender(line)
        # Without a prefix of their own, lines belong to the last error.
        return sender if sender and sender in self.open else next(reversed(self.open))

    def _start(self, before: bytes, line: bytes, number: int) -> None:
        """Open an error: one of its lines has the beginning."""
        self._room -= _COST
        refusal = self._known.get(line)
        is_error = refusal is not None or (_OF_MEMORY.search(line) and b"is not a failure" not in line)
        is_error = is_error and (not line.startswith(REPORT) or _USAGE.encode() in line)
        # ``jai-cli run`` repeats the error.
        if not is_error or before.endswith(b"live arrays at "):
            return
        sender = _sender(before)
        self._finish(sender)
        if len(self.open) == _MOST_OPEN:
            self._finish(next(iter(self.open)))
        if refusal is not None:
            self.open[sender] = _Error(line, number, refusal)
            return
        head, *parts = _unescaped(line.rstrip())
        refusal = self._read(head)
        self.open[sender] = _Error(head, number, refusal)
        if refusal is not None and not parts:
            self._known[line] = refusal
        for part in parts:
            self._add(sender, part)
        if parts:
            self._finish(sender)

    def _add(self, sender: bytes, line: bytes) -> None:
        """Add a line to the open error of a process."""
        error = self.open.get(sender)
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
        error = self.open.pop(sender, None)
        if error is None:
            return
        refusal = error.refusal
        if refusal is not None and error.facts:
            refusal = self._read(b"\n".join((b" ".join(error.head), *error.facts))) or refusal
        if refusal is not None:
            self._ended[error.number] = refusal

    def _read(self, data: bytes) -> Refusal | None:
        """Return the facts of an error."""
        if data not in self._known:
            self._room -= len(data) + 5 * _COST
            head, *lines = _text(data).split("\n")
            text = "\n".join((_END.split(head, maxsplit=1)[0].strip(), *map(_fact, lines)))
            refusal = read_out_of_memory(text) or read_failed_allocation(text)
            if refusal is not None:
                key = refusal._replace(message=refusal.message.partition(_BEFORE_FREE)[0], free_nbytes=None)
                if key not in self._first or self._first[key].free_nbytes is None:
                    self._first[key] = refusal
                refusal = self._first[key]
            self._known[data] = refusal
        return self._known[data]


def _text(data: bytes) -> str:
    """Return the text of lines, without colors."""
    return ESCAPE_SEQUENCE.sub("", data.decode("utf-8", "replace"))


def _sender(line: bytes) -> bytes:
    """Return what stands before each line of a process."""
    prefix = _SENDER.match(line)
    return prefix[0] if prefix else b""


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
    name = _TABLE_LINE.search(line)
    if name is None:
        return line
    start = "1. Size: " if name[1] else "     Operator: " if name[2] else "     Shape: "
    return start + line[name.end() :].strip()


def _array_nbytes(text: str) -> int:
    """Return the bytes of a type; -1 if it is not that of an array."""
    shape = read_array(text)
    return -1 if shape is None else shape.nbytes
