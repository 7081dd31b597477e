"""Warnings of the compiler, alone and in logs."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from ...base.text import ESCAPE_SEQUENCE
from ...geometry.layouts.dtypes import bits_of_name, packed_nbytes
from .messages import ArrayShape, dtype_of
from .oom_logs import WORDS, ErrorScanner, Refusal, positions
from .source import MOST_AXES, Frame, read_array, read_metadata

REMATERIALIZATION = "Involuntary full rematerialization"
"""Words of XLA's warning in all versions."""
DONATION = "Some donated buffers were not usable:"
"""Words of JAX's warning in all versions."""

LONGEST = 1 << 20
"""Characters of a warning that are read: XLA prints the types of all operands."""
_LONGEST_UNREAD = 300

_SHARDINGS = re.compile(r"[.\s]*The compile[rd] (?:was not able to|cannot) go from sharding (?=\{)")
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[{}()]')
_OPERATION = re.compile(
    r" (?:efficiently|without doing a full rematerialization of the tensor)(?: for HLO operation:? )?"
)
# The advice that follows. A log may cut a long line before it.
_ADVICE = re.compile(r"\. (?:You probably want|As the last resort)")
_INSTRUCTION = re.compile(r"(?:ROOT )?%?([^\s=(),{}]+) = ([a-z]\w*\[[^\]]*\](?:\{[^{}]*\})?) [\w-]+(?=\()")

_DONATION_END = re.compile(r"See an explanation|Donation is not implemented|\\n")
# No part is tried again at another place: a name starts where it cannot go on, and has no bracket.
BUFFER_START = r"(?:ShapedArray\()?~?(?<![\w<>])(\w[\w<>]*+)\["
"""Pattern of the beginning of a buffer's type, with its dtype."""
_BUFFER = re.compile(BUFFER_START + r"([^][]*+)\](?:\{[^{}]*+\})*+(?:, *weak_type=True)?(?:\))?")
_MESH_AXES = re.compile(r"@(?:\([^()]*+\)|[^,]*)")
_DIM = re.compile(r" *\d{1,18} *")


class RematerializationWarning(NamedTuple):
    """XLA replicates a value and shards it again, because it has no direct way."""

    before: str
    """Sharding before."""
    after: str
    """Sharding after."""
    name: str | None = None
    """Name of the instruction, without the ``%``; None in logs of JAX before 0.4.31, which do not have it."""
    op_name: str | None = None
    """``op_name`` of its metadata."""
    shape: ArrayShape | None = None
    """Type of its result on one device."""
    frames: tuple[Frame, ...] = ()
    """Its source line, up to JAX 0.7. Later ones have the number of a frame in the program's own table."""


class DonationWarning(NamedTuple):
    """JAX could not use some donated buffers."""

    buffers: tuple[ArrayShape, ...]
    """Types of the buffers on one device. ``nbytes`` is −1 where the size of the dtype is not known."""
    unread: str
    """Text between the buffers that was not understood."""


class UnreadWarning(NamedTuple):
    """A warning in a wording that is not known."""

    text: str


LogWarning = RematerializationWarning | DonationWarning | UnreadWarning
LogFinding = LogWarning | Refusal


def warnings_in(line: str) -> Iterator[LogWarning]:
    """Yield the warnings in a line of a log. Prefixes, colors and other text are ignored.

    >>> [found] = warnings_in("[0] UserWarning: Some donated buffers were not usable: float32[8,64].")
    >>> found.buffers
    (ArrayShape(dtype='float32', dims=(8, 64), nbytes=2048, memory_space=0),)
    """
    starts = [match.start() for match in _WORDS.finditer(line)]
    for start, end in itertools.pairwise([*starts, len(line)]):
        text = ESCAPE_SEQUENCE.sub("", line[start : min(end, start + LONGEST)])
        if '=\\"' in text:
            # A line of JSON.
            text = text.replace('\\"', '"')
        found = (_donation if text.startswith(DONATION) else _rematerialization)(text)
        if found is not None:
            yield found


_WORDS = re.compile(f"{REMATERIALIZATION}|{DONATION}")


def _rematerialization(text: str) -> RematerializationWarning | UnreadWarning:
    """Return XLA's warning."""
    shardings = _SHARDINGS.match(text, len(REMATERIALIZATION))
    middle = shardings and _closing(text, shardings.end())
    end = _closing(text, middle + 4) if middle and text.startswith(" to {", middle) else None
    if shardings is None or middle is None or end is None:
        return UnreadWarning(text[:_LONGEST_UNREAD])
    warning = RematerializationWarning(text[shardings.end() : middle], text[middle + 4 : end])
    operation = _OPERATION.match(text, end)
    if operation is None:
        return warning
    advice = _ADVICE.search(text, operation.end())
    # A log may cut a long line before the advice.
    end = advice.start() if advice else len(text.rstrip(". \r\n"))
    return _with_instruction(warning, text[operation.end() : end])


def _with_instruction(warning: RematerializationWarning, text: str) -> RematerializationWarning:
    """Return the warning with the facts of the instruction that a text describes, as far as it goes."""
    instruction = _INSTRUCTION.match(text)
    if instruction is None:
        return warning
    warning = warning._replace(name=instruction[1], shape=read_array(instruction[2]))
    end = _closing(text, instruction.end())
    if end is None:
        return warning
    op_name, frames = read_metadata(text[end:].partition(", metadata={")[2])
    return warning._replace(op_name=op_name, frames=frames)


def _closing(text: str, start: int) -> int | None:
    """Return the position after the bracket that closes the one at ``start``; None without one."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        depth += (token[0] in "{(") - (token[0] in "})")
        if depth == 0:
            return token.end()
    return None


def _donation(text: str) -> DonationWarning | None:
    """Return JAX's warning; None for the line of JAX's source that Python prints below it."""
    rest = text[len(DONATION) :]
    if rest.lstrip(" ")[:1] in ("", '"', "'"):
        return None
    text = _DONATION_END.split(rest, maxsplit=1)[0]
    buffers: list[ArrayShape] = []
    unread, position = [], 0
    for match in _BUFFER.finditer(text):
        if (buffer := _buffer(*match.groups())) is not None:
            buffers.append(buffer)
            unread.append(text[position : match.start()])
            position = match.end()
    unread = [part.strip(" ,.\r\n\t") for part in (*unread, text[position:])]
    return DonationWarning(tuple(buffers), ", ".join(filter(None, unread))[:_LONGEST_UNREAD])


@functools.lru_cache(maxsize=1024)
def _buffer(name: str, dims: str) -> ArrayShape | None:
    """Return the type of a buffer; None for a shape that is not known."""
    dims = _MESH_AXES.sub("", dims)
    parts = dims.split(",") if dims.strip() else []
    if len(parts) > MOST_AXES or not all(map(_DIM.fullmatch, parts)):
        return None
    # Very old versions write XLA's types, such as f32[8,64]{1,0}.
    dtype = name if bits_of_name(name) is not None else dtype_of(name) or name
    shape = tuple(map(int, parts))
    nbytes = packed_nbytes(shape, bits_of_name(dtype))
    return ArrayShape(dtype, shape, -1 if nbytes is None else nbytes)


_LONGEST_LINE = 2 * LONGEST
_MOST_WRAPPED = {DONATION: 1000, REMATERIALIZATION: 10}
"""Lines over which a warning may be wrapped."""
_ROOM = 1 << 21
"""Characters that are read of the warnings that differ. Others are only counted."""
_KNOWN_COST = 25
_COST = 200
"""Characters that take as long as a line, a warning or four buffers."""

_LOG_WORDS = (REMATERIALIZATION.encode(), DONATION.encode())
_ANY = re.compile(b"|".join(map(re.escape, (*_LOG_WORDS, *WORDS))))
_END = re.compile(rb"\. (?:You probably want|As the last resort)|See an explanation|Donation is not|\\n")
"""Text after a warning, which may differ where the warning is the same."""
_NEW_LINE = re.compile(r"\S{0,20} ?(?:[IWEF]\d{4} \d\d:|\d{4}-\d\d-\d\d[ T]\d\d:)")
_LOG_BUFFER = re.compile(BUFFER_START)


class LogScanner:
    """Finds warnings and errors in a log of any length, in bounded memory and time linear in its length."""

    def __init__(self) -> None:
        self.line_count = 0
        """Number of lines so far."""
        self._unlisted_count = 0
        self._errors = ErrorScanner()
        self._known: dict[bytes, list[LogWarning]] = {}
        """Warnings in each line that has been read."""
        self._room = _ROOM
        self._rest = b""
        self._is_clipped = False
        self._open: list[str] = []
        """Lines of a warning that may go on."""

    @property
    def unlisted_count(self) -> int:
        """Number of warnings and errors that were only counted: too many differ."""
        return self._unlisted_count + self._errors.unlisted_count

    def feed(self, data: bytes) -> Iterator[LogFinding]:
        """Yield the warnings and errors that end in the next piece of the log."""
        self.line_count += data.count(b"\n")
        end = data.rfind(b"\n") + 1
        if end:
            lines = self._rest + data[:end]
            self._rest, self._is_clipped = b"", False
            yield from self._found_in(lines)
        self._keep(data[end:])

    def end(self) -> Iterator[LogFinding]:
        """Yield the warnings and errors at the end of the log."""
        if self._rest:
            self.line_count += 1
            yield from self._found_in(self._rest + b"\n")
        yield from self._finish()
        yield from self._errors.end()

    def _found_in(self, lines: bytes) -> Iterator[LogFinding]:
        """Yield the warnings and errors in whole lines."""
        yield from self._in_lines(lines)
        yield from self._errors.in_lines(lines)

    def _keep(self, data: bytes) -> None:
        """Keep the beginning of a line; of a very long one, the part that may be a warning or an error."""
        if self._is_clipped:
            return
        self._rest += data
        if len(self._rest) > _LONGEST_LINE:
            words = _ANY.search(self._rest)
            start = len(self._rest) - 64 if words is None else words.start()
            self._rest = self._rest[start : start + _LONGEST_LINE]
            self._is_clipped = len(self._rest) == _LONGEST_LINE

    def _in_lines(self, lines: bytes) -> Iterator[LogWarning]:
        """Yield the warnings in whole lines."""
        if self._room < 0:
            self._unlisted_count += sum(map(lines.count, _LOG_WORDS))
            yield from self._finish()
            return
        # To search for one text after the other is much faster than for either.
        starts = sorted(start for words in _LOG_WORDS for start in positions(lines, words))
        for place, (start, following) in enumerate(itertools.pairwise([-1, *starts, len(lines)])):
            position = 0
            if self._room < 0:
                self._unlisted_count += len(starts) - max(place - 1, 0)
                yield from self._finish()
                return
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
            self._room -= _KNOWN_COST
            return self._known[line]
        self._open = [self._line_text(line)]
        if self._is_open():
            return []
        return self._known.setdefault(line, self._finish())

    def _go_on(self, line: bytes) -> list[LogWarning]:
        """Return the open warning if a line is its last, or does not belong to it."""
        text = self._line_text(line)
        if not self._goes_on_with(text):
            return self._finish()
        self._open.append(self._without_prefix(text))
        return [] if self._is_open() else self._finish()

    def _line_text(self, line: bytes) -> str:
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
        most = _MOST_WRAPPED[DONATION if is_donation else REMATERIALIZATION]
        if len(self._open) >= most or sum(map(len, self._open)) + len(line) > LONGEST:
            return False
        if is_donation:
            return "]" in line or _LOG_BUFFER.search(line) is not None
        return _NEW_LINE.match(line) is None

    def _without_prefix(self, line: str) -> str:
        """Return a line without what stands before its first buffer, such as the name of a process."""
        if not self._open[0].startswith(DONATION) or _is_within(self._open[-1], "[]"):
            return line
        buffer = _LOG_BUFFER.search(line)
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
