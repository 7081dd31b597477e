"""Output of several processes: complete lines, each with the index of its process."""

from __future__ import annotations

import functools
import os
import re
import selectors
from collections.abc import Collection, Iterable, Iterator
from typing import IO

LONGEST = 2**22
"""Maximum bytes of a line. Longer lines are split."""

_CHUNK = 2**16

_OF_GLOO = re.compile(
    rb"(\[Gloo\] Rank \d+ is connected to \d+ peer ranks\. "
    rb"Expected number of connected peer ranks is : \d+)+"
)
"""A line that Gloo, which runs collectives between CPUs, prints for each group of devices."""


class Relay:
    """Forwards what processes write to pipes. A run of one process has no prefix."""

    def __init__(self, processes: int) -> None:
        """Store the number of processes."""
        self._processes = processes
        self._selector = selectors.DefaultSelector()
        self.error: OSError | None = None
        """The first error of writing. What comes after it is dropped."""

    def prefix(self, process: int) -> str:
        """Return the beginning of each line of a process."""
        return f"[{process:>{len(str(self._processes - 1))}}] " if self._processes > 1 else ""

    def add(self, process: int, stream: IO[bytes] | None, target: int) -> None:
        """Begin to forward a pipe of a process to a descriptor."""
        assert stream is not None
        lines = split_lines(iter(functools.partial(os.read, stream.fileno(), _CHUNK), b""))
        self._selector.register(stream, selectors.EVENT_READ, (process, target, lines))

    def wait(self, seconds: float) -> list[selectors.SelectorKey]:
        """Return the pipes that can be read, at the latest after some seconds."""
        return [key for key, _ in self._selector.select(seconds)]

    def forward(self, ready: Iterable[selectors.SelectorKey], heard: Collection[int]) -> None:
        """Read each pipe once, and forward its complete lines if it belongs to one of some processes.

        What the others write is read too, since a full pipe would block them.
        """
        for key in ready:
            process, target, pieces = key.data
            lines = next(pieces, None)
            if lines is None:
                self._selector.unregister(key.fileobj)
            elif process in heard:
                self.write(process, lines, target)

    def write(self, process: int, lines: Iterable[bytes], target: int) -> None:
        """Write lines with the prefix of a process, apart from those of Gloo."""
        prefix = self.prefix(process).encode()
        data = memoryview(b"".join(prefix + line + b"\n" for line in lines if not _OF_GLOO.fullmatch(line)))
        try:
            while data and self.error is None:
                data = data[os.write(target, data) :]
        except OSError as error:
            self.error = error


def split_lines(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines of a stream, a list per chunk, without line ends.

    A carriage return also ends a line, so each state of a progress bar is a separate line; an empty line
    that ends with one is dropped. Lines longer than ``LONGEST`` are split.
    """
    rest = bytearray()
    after_return = False
    for chunk in chunks:
        lines: list[bytes] = []
        for piece in (chunk.removeprefix(b"\n") if after_return else chunk).splitlines(keepends=True):
            rest += piece
            if piece.endswith((b"\r", b"\n")) or len(rest) >= LONGEST:
                if rest != b"\r":
                    lines.append(bytes(rest).rstrip(b"\r\n"))
                rest.clear()
        after_return = chunk.endswith(b"\r")
        yield lines
    if rest:
        yield [bytes(rest)]
