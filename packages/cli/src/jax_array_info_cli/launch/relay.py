"""Output of several processes: complete lines, each with the index of its process."""

from __future__ import annotations

import functools
import os
import re
import select
from collections.abc import Collection, Iterable, Iterator

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
        self._poll = select.poll()
        self._pipes: dict[int, tuple[int, int | None, Iterator[list[bytes]]]] = {}
        """Process, target and lines of each pipe."""
        self.error: OSError | None = None
        """The first error of writing. What comes after it is dropped."""

    def prefix(self, process: int) -> str:
        """Return the beginning of each line of a process."""
        return f"[{process:>{len(str(self._processes - 1))}}] " if self._processes > 1 else ""

    def add(self, process: int, pipe: int, target: int | None) -> None:
        """Begin to forward a pipe of a process to a descriptor; None if the pipe is only ever closed."""
        read = functools.partial(os.read, pipe, _CHUNK)
        self._pipes[pipe] = process, target, split_lines(iter(read, b""))
        self._poll.register(pipe, select.POLLIN)

    def ready(self, seconds: float) -> list[int]:
        """Return the pipes that can be read, at the latest after some seconds."""
        return [pipe for pipe, _ in self._poll.poll(seconds * 1000)]

    def hung_up(self) -> list[int]:
        """Return the processes that have closed a pipe, as one that dies does."""
        return [self._pipes[pipe][0] for pipe, event in self._poll.poll(0) if event & select.POLLHUP]

    def forward(self, ready: Iterable[int], heard: Collection[int]) -> None:
        """Read each pipe once, and forward its complete lines if it belongs to one of some processes.

        What the others write is read too, since a full pipe would block them.
        """
        for pipe in ready:
            process, target, pieces = self._pipes[pipe]
            lines = next(pieces, None)
            if lines is None:
                self._poll.unregister(pipe)
            elif process in heard and target is not None:
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
