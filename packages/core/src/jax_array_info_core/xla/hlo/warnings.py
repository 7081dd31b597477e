"""Warnings of the compiler, alone and in logs."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from ...base.text import ESCAPE_SEQUENCE
from ...geometry.layouts.dtypes import bits_of_name, packed_nbytes
from ..logs.lines import RecordReader
from .messages import ArrayShape, dtype_of
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


def warnings_in(line: str) -> Iterator[LogWarning]:
    """Yield the warnings in a line of a log. Prefixes, colors and other text are ignored.

    >>> [warning] = warnings_in("[0] UserWarning: Some donated buffers were not usable: float32[8,64].")
    >>> warning.buffers
    (ArrayShape(dtype='float32', dims=(8, 64), nbytes=2048, memory_space=0),)
    """
    starts = [match.start() for match in _WORDS.finditer(line)]
    for start, end in itertools.pairwise([*starts, len(line)]):
        text = ESCAPE_SEQUENCE.sub("", line[start : min(end, start + LONGEST)])
        if '=\\"' in text:
            # A line of JSON.
            text = text.replace('\\"', '"')
        warning = (_donation if text.startswith(DONATION) else _rematerialization)(text)
        if warning is not None:
            yield warning


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
    text = text[len(DONATION) :]
    if text.lstrip(" ")[:1] in ("", '"', "'"):
        return None
    text = _DONATION_END.split(text, maxsplit=1)[0]
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
_KNOWN_COST = 25
_COST = 200
"""Characters that take as long as a line, a warning or four buffers."""

_END = re.compile(rb"\. (?:You probably want|As the last resort)|See an explanation|Donation is not|\\n")
"""Text after a warning, which may differ where the warning is the same."""
_NEW_LINE = re.compile(r"\S{0,20} ?(?:[IWEF]\d{4} \d\d:|\d{4}-\d\d-\d\d[ T]\d\d:)")
_LOG_BUFFER = re.compile(BUFFER_START)


class WarningReader(RecordReader):
    """Reads the warnings in the lines of a log, in time linear in its length."""

    words = (REMATERIALIZATION.encode(), DONATION.encode())

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[bytes, list[LogWarning]] = {}
        """Warnings in each line that has been read."""
        self.open: list[str] = []
        """Lines of a warning that may go on."""
        self._ended: list[LogWarning] = []

    def _begin(self, line: bytes, number: int) -> None:
        """Read the warnings in a line."""
        # To search for one text after the other is much faster than for either.
        starts = sorted(start for word in self.words for start in _positions(line, word))
        if not starts and self.open:
            self._go_on(line)
        for start, following in itertools.pairwise([*starts, len(line)]):
            self._finish_all()
            if self._room < 0:
                self.unlisted_count += 1
            else:
                self._start(line[start : min(following, start + _LONGEST_LINE)])

    def end(self) -> list[LogWarning]:
        """Return the warnings of a log that has come to its end."""
        self._finish_all()
        ended, self._ended = self._ended, []
        return ended

    def _start(self, line: bytes) -> None:
        """Read the warning that a line begins with, unless it may go on in the next line."""
        line = _END.split(line, maxsplit=1)[0]
        if line in self._known:
            self._room -= _KNOWN_COST
            self._ended += self._known[line]
            return
        self.open = [self._line_text(line)]
        if not self._is_unfinished():
            self._known[line] = self._finish()

    def _go_on(self, line: bytes) -> None:
        """Read a line after the first of a warning, which may be its last, or not belong to it."""
        text = self._line_text(line[:_LONGEST_LINE])
        is_part = self._goes_on_with(text)
        if is_part:
            self.open.append(self._without_prefix(text))
        if not is_part or not self._is_unfinished():
            self._finish()

    def _line_text(self, line: bytes) -> str:
        """Return the text of a line."""
        self._room -= len(line) + _COST
        # The bracket of a color is not one of a buffer.
        return ESCAPE_SEQUENCE.sub("", line.decode("utf-8", "replace")).rstrip()

    def _is_unfinished(self) -> bool:
        """Return whether more of the warning may be in the next line."""
        if self.open[0].startswith(DONATION):
            last = self.open[-1]
            return last.endswith((",", "usable:")) or _is_within(last, "[]") or _is_within(last, "()")
        return isinstance(self._read_open()[0], UnreadWarning)

    def _goes_on_with(self, line: str) -> bool:
        """Return whether a line goes on with the open warning."""
        is_donation = self.open[0].startswith(DONATION)
        most = _MOST_WRAPPED[DONATION if is_donation else REMATERIALIZATION]
        if len(self.open) >= most or sum(map(len, self.open)) + len(line) > LONGEST:
            return False
        if is_donation:
            return "]" in line or _LOG_BUFFER.search(line) is not None
        return _NEW_LINE.match(line) is None

    def _without_prefix(self, line: str) -> str:
        """Return a line without what stands before its first buffer, such as the name of a process."""
        if not self.open[0].startswith(DONATION) or _is_within(self.open[-1], "[]"):
            return line
        buffer = _LOG_BUFFER.search(line)
        return line[buffer.start() :] if buffer else line

    def _read_open(self) -> list[LogWarning]:
        """Return the open warning: the lines were divided between words, or within them."""
        warnings: list[LogWarning] = []
        for text in dict.fromkeys(("".join(self.open), " ".join(self.open), self.open[0])):
            warnings = self._read(text)
            if not warnings or not isinstance(warnings[0], UnreadWarning):
                break
        return warnings

    def _read(self, text: str) -> list[LogWarning]:
        """Return the warning in a text."""
        warnings = list(warnings_in(text))
        buffers = sum(len(warning.buffers) for warning in warnings if isinstance(warning, DonationWarning))
        self._room -= len(text) + _COST + buffers * _COST // 4
        return warnings

    def _finish_all(self) -> None:
        if self.open:
            self._finish()

    def _finish(self) -> list[LogWarning]:
        """Read the open warning, and return it."""
        warnings = self._read_open()
        self._ended += warnings
        self.open = []
        return warnings


def _is_within(text: str, brackets: str) -> bool:
    """Return whether a text ends within brackets."""
    return text.rfind(brackets[0]) > text.rfind(brackets[1])


def _positions(line: bytes, word: bytes) -> Iterator[int]:
    """Yield the positions of a text."""
    start = line.find(word)
    while start >= 0:
        yield start
        start = line.find(word, start + len(word))
