"""XLA's warning of an involuntary full rematerialization, and JAX's of unusable donated buffers."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

from ..layouts.dtypes import bits_of_name, packed_nbytes
from .attributes import read_attributes, read_fields
from .frames import FrameTables, frames_of
from .module import ArrayShape, Frame
from .shapes import MOST_AXES, dtype_of, read_type

REMATERIALIZATION = "Involuntary full rematerialization"
"""Words of XLA's warning in all versions."""
DONATION = "Some donated buffers were not usable:"
"""Words of JAX's warning in all versions."""

LONGEST = 1 << 20
"""Characters of a warning that are read: XLA prints the types of all operands."""
_LONGEST_UNREAD = 300

ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-_]")
"""Colors in a log."""
_SHARDINGS = re.compile(r"[.\s]*The compile[rd] (?:was not able to|cannot) go from sharding (?=\{)")
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[{}()]')
_OPERATION = re.compile(
    r" (?:efficiently|without doing a full rematerialization of the tensor)(?: for HLO operation:? )?"
)
# The advice that follows. A log may cut a long line before it.
_ADVICE = re.compile(r"\. (?:You probably want|As the last resort)")
_INSTRUCTION = re.compile(r"(?:ROOT )?%?([^\s=(),{}]+) = ([a-z]\w*\[[^\]]*\](?:\{[^{}]*\})?) [\w-]+(?=\()")
_FRAME = re.compile(r"stack_frame_id=(\d{1,9})(?=[ }])")

_DONATION_END = re.compile(r"See an explanation|Donation is not implemented|\\n")
# No part is tried again at another place: a name starts where it cannot go on, and has no bracket.
BUFFER_START = r"(?:ShapedArray\()?~?(?<![\w<>])(\w[\w<>]*+)\["
"""Pattern of the beginning of a buffer's type, with its dtype."""
_BUFFER = re.compile(BUFFER_START + r"([^][]*+)\](?:\{[^{}]*+\})*+(?:, *weak_type=True)?(?:\))?")
_MESH_AXES = re.compile(r"@(?:\([^()]*+\)|[^,]*)")
_DIM = re.compile(r" *\d{1,19} *")


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
    """Its source line, up to JAX 0.7."""
    frame_id: int | None = None
    """Number of its innermost frame in the program's table, since JAX 0.8."""


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
    if shardings is None:
        return UnreadWarning(text[:_LONGEST_UNREAD])
    middle = _closing(text, shardings.end())
    if middle is None or not text.startswith(" to {", middle):
        return UnreadWarning(text[:_LONGEST_UNREAD])
    end = _closing(text, middle + 4)
    if end is None:
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
    type_ = read_type(instruction[2])
    warning = warning._replace(name=instruction[1], shape=type_.shapes[0] if type_ else None)
    end = _closing(text, instruction.end())
    if end is None:
        return warning
    attributes, _ = read_attributes(text[end:])
    metadata = attributes.get("metadata", "")
    fields = read_fields(metadata)
    frame = _FRAME.search(metadata)
    return warning._replace(
        op_name=fields.get("op_name") or None,
        frames=frames_of(fields, FrameTables()),
        frame_id=int(frame[1]) if frame else None,
    )


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
