"""Readers of records of several lines in a log, in bounded memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence, Sized

_ROOM = 1 << 21
"""Characters that are read of the records that differ. Further ones are only counted."""


class RecordReader(ABC):
    """Reads records of several lines, whose first one has one of its words, in bounded memory."""

    words: tuple[bytes, ...]
    """Words of first lines."""
    open: Sized
    """What is known of records that may go on; empty if the next line belongs to none."""

    def __init__(self) -> None:
        self.unlisted_count = 0
        """Number of records that were only counted: too many differ."""
        self._room = _ROOM

    def read(self, lines: Sequence[bytes], places: Iterable[int], first: int) -> None:
        """Read the next lines.

        Args:
            lines: The lines.
            places: Places of those that may begin a record, in order.
            first: Number of the first line.
        """
        if self._room < 0:  # a flood takes no time
            self._count(b"\n".join(map(lines.__getitem__, places)))
            self._finish_all()
            return
        position = 0
        for place in (*places, len(lines)):
            while self.open and position < place:
                self._go_on(lines[position])
                position += 1
            if place < len(lines):
                self._begin(lines[place], first + place)
            position = place + 1

    def _count(self, text: bytes) -> None:
        """Count the records in a text that is not read."""
        self.unlisted_count += sum(map(text.count, self.words))

    @abstractmethod
    def _begin(self, line: bytes, number: int) -> None:
        """Read the first line of a record."""

    @abstractmethod
    def _go_on(self, line: bytes) -> None:
        """Read a line after it."""

    @abstractmethod
    def _finish_all(self) -> None:
        """Let all records end."""
