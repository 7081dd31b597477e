"""The number of messages in protobuf data, counted before they are parsed.

An empty message takes two bytes in a file and fifty in memory, so a small file may take all memory there
is. The wire format is https://protobuf.dev/programming-guides/encoding: a message is a sequence of
fields, each with a tag (number and wire type) and a value.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

NUMBERS_PER_MESSAGE = 8
"""How many fields and elements of packed fields there may be, on average, for each message."""

_CONTINUED = bytes(range(128, 256))
"""The bytes of a varint that more bytes follow."""

Declarations = Mapping[str, Sequence[tuple[str, int, str]]]
"""Name, number and type of the fields of each message; all other fields stay bytes when they are parsed."""


def exceeds(data: bytes, declarations: Declarations, message: str, most: int) -> bool:
    """Return whether a message has more than so many messages and texts in it, or 8 times as many numbers.

    Damaged data count up to the damage: the parser refuses them.

    Args:
        data: The message.
        declarations: The messages that are parsed.
        message: Which of them it is.
        most: How many messages and texts it may have.
    """
    kinds = {name: {number: kind for _, number, kind in fields} for name, fields in declarations.items()}
    objects = {*declarations, "bytes"}
    fields = [item for of_message in kinds.values() for item in of_message.items()]
    tags = {number << 3 | 2 for number, kind in fields if _element(kind) in objects}
    possible = len(data) - len(data.translate(None, bytes(tags | {tag | 128 for tag in tags})))
    if possible <= most and len(data) <= NUMBERS_PER_MESSAGE * most:
        return False  # without a look at each field
    found, numbers = 0, 0
    with contextlib.suppress(IndexError):
        for element, count in _values(data, kinds, message, 0, len(data)):
            found += element in objects
            numbers += count
            if found > most or numbers > NUMBERS_PER_MESSAGE * most:
                return True
    return False


def _element(kind: str) -> str:
    """Return the type of each value of a field that may be repeated."""
    return kind.removeprefix("repeated ")


def _values(
    data: bytes, kinds: Mapping[str, Mapping[int, str]], message: str, position: int, end: int
) -> Iterator[tuple[str, int]]:
    """Yield the type and the count of numbers of each field of a message, and of the messages in it.

    Raises:
        IndexError: the data are damaged.
    """
    while position < end:
        tag, position = _varint(data, position)
        yield "", 1
        match tag & 7:
            case 0:
                _, position = _varint(data, position)
            case 1:
                position += 8
            case 5:
                position += 4
            case 2:
                length, start = _varint(data, position)
                position = start + length
                if position > end:
                    raise IndexError
                element = _element(kinds[message].get(tag >> 3, ""))
                # Packed numbers: each has one byte that no other follows.
                is_packed = element not in ("", "bytes", *kinds)
                yield element, len(data[start:position].translate(None, _CONTINUED)) if is_packed else 0
                if element in kinds:
                    yield from _values(data, kinds, element, start, position)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a number of any length, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise IndexError  # no number has more than ten bytes
