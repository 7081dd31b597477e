"""The number of messages in protobuf data, counted before parsing.

An empty message takes two bytes in a file and fifty in memory, so parsing a small file could use up the host
memory. The wire format is https://protobuf.dev/programming-guides/encoding: a message is a sequence of
fields, each with a tag (number and wire type) and a value.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

NUMBERS_PER_MESSAGE = 8
"""The limit of numbers per message, on average: tags and elements of packed fields."""

_CONTINUED = bytes(range(128, 256))
"""The bytes of a varint that are not its last."""

Declarations = Mapping[str, Sequence[tuple[str, int, str]]]
"""Name, number and type of the fields of each message. The parser keeps all other fields as bytes."""


def exceeds(data: bytes, declarations: Declarations, message: str, most: int) -> bool:
    """Return whether a message contains more than ``most`` messages and strings, or 8 times as many numbers.

    Damaged data are counted up to the damage; the parser rejects them.

    Args:
        data: The encoded message.
        declarations: The message types that are parsed.
        message: The name of the message's type.
        most: The limit of messages and strings.
    """
    field_types = {
        name: {number: field_type for _, number, field_type in fields}
        for name, fields in declarations.items()
    }
    objects = {*declarations, "bytes"}
    fields = [item for of_message in field_types.values() for item in of_message.items()]
    tags = {number << 3 | 2 for number, field_type in fields if _element(field_type) in objects}
    possible = len(data) - len(data.translate(None, bytes(tags | {tag | 128 for tag in tags})))
    if possible <= most and len(data) <= NUMBERS_PER_MESSAGE * most:
        return False  # an upper bound, without reading each field
    found, numbers = 0, 0
    with contextlib.suppress(IndexError):
        for element, count in _values(data, field_types, message, 0, len(data)):
            found += element in objects
            numbers += count
            if found > most or numbers > NUMBERS_PER_MESSAGE * most:
                return True
    return False


def _element(field_type: str) -> str:
    """Return the type of each value of a field, which may be repeated."""
    return field_type.removeprefix("repeated ")


def _values(
    data: bytes, field_types: Mapping[str, Mapping[int, str]], message: str, position: int, end: int
) -> Iterator[tuple[str, int]]:
    """Yield ``(type, count of numbers)`` for each field of a message and of the messages in it.

    Raises:
        IndexError: The data are damaged.
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
                element = _element(field_types[message].get(tag >> 3, ""))
                # Packed numbers: each one has exactly one last byte.
                is_packed = element not in ("", "bytes", *field_types)
                yield element, len(data[start:position].translate(None, _CONTINUED)) if is_packed else 0
                if element in field_types:
                    yield from _values(data, field_types, element, start, position)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a number of any length, and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise IndexError  # a varint has at most ten bytes
