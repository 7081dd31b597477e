"""The number of messages in protobuf data, counted before they are parsed.

An empty message takes two bytes in a file and fifty in memory, so a small file may take all memory there
is. The wire format is https://protobuf.dev/programming-guides/encoding: a message is a sequence of
fields, each with a tag (number and wire type) and a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    tags = {
        number << 3 | 2
        for fields in kinds.values()
        for number, kind in fields.items()
        if _is_object(kind, declarations)
    }
    possible = len(data) - len(data.translate(None, bytes(tags | {tag | 128 for tag in tags})))
    if possible <= most and len(data) <= NUMBERS_PER_MESSAGE * most:
        return False  # without a look at each field
    try:
        _Count(data, kinds, most).add(message, 0, len(data))
    except _ExceededError:
        return True
    except IndexError:
        return False
    return False


def _is_object(kind: str, messages: Mapping[str, object]) -> bool:
    """Return whether a value of a type is an object of its own: a message or a text."""
    return kind.removeprefix("repeated ") in {*messages, "bytes"}


class _ExceededError(Exception):
    """There is more than was allowed."""


class _Count:
    """Counts down what a message has in it."""

    def __init__(self, data: bytes, kinds: Mapping[str, Mapping[int, str]], most: int) -> None:
        self._data = data
        self._kinds = kinds
        self._objects = most
        self._numbers = NUMBERS_PER_MESSAGE * most

    def add(self, message: str, position: int, end: int) -> None:
        """Count the fields of a message, which ends at some position."""
        fields = self._kinds[message]
        while position < end:
            tag, position = self._varint(position)
            self._spend(numbers=1)
            match tag & 7:
                case 0:
                    _, position = self._varint(position)
                case 1:
                    position += 8
                case 5:
                    position += 4
                case 2:
                    length, start = self._varint(position)
                    position = start + length
                    if position > end:
                        raise IndexError
                    self._add_value(fields.get(tag >> 3, ""), start, position)

    def _add_value(self, kind: str, start: int, end: int) -> None:
        """Count a value that has a length."""
        if _is_object(kind, self._kinds):
            self._spend(objects=1)
        element = kind.removeprefix("repeated ")
        if element in self._kinds:
            self.add(element, start, end)
        elif element not in ("", "bytes"):
            # Packed numbers: each has one byte that no other follows.
            self._spend(numbers=len(self._data[start:end].translate(None, _CONTINUED)))

    def _varint(self, position: int) -> tuple[int, int]:
        """Return a number of any length, and where it ends."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self._data[position]
            position += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, position
        raise IndexError  # no number has more than ten bytes

    def _spend(self, *, objects: int = 0, numbers: int = 0) -> None:
        self._objects -= objects
        self._numbers -= numbers
        if min(self._objects, self._numbers) < 0:
            raise _ExceededError
