"""What processes write, as lines: bytes in, whole lines with a prefix out."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from typing import BinaryIO

_CHUNK = 2**16

_LINE_END = re.compile(rb"\r\n|\r|\n")


def split_lines(stream: BinaryIO) -> Iterator[list[bytes]]:
    r"""Yield the lines of a stream, without their ends, as they come: those of each reading together.

    A carriage return ends a line as well, so that each state of a progress bar is a line of its own;
    what stands between two of them is no line where it is empty.
    """
    rest: list[bytes] = []
    after_return = False
    while chunk := os.read(stream.fileno(), _CHUNK):
        if after_return:
            chunk = chunk.removeprefix(b"\n")
        after_return = chunk.endswith(b"\r")
        lines: list[bytes] = []
        start = 0
        for end in _LINE_END.finditer(chunk):
            rest.append(chunk[start : end.start()])
            line = b"".join(rest)
            rest.clear()
            start = end.end()
            if line or end[0] != b"\r":
                lines.append(line)
        rest.append(chunk[start:])
        if lines:
            yield lines
    if last := b"".join(rest):
        yield [last]


_GLOO_BEGINNING = b"[Gloo] Rank "
_GLOO_PIECES = re.compile(
    rb"(?:(?:\[Gloo\] Rank | is connected to | peer ranks\. |"
    rb"Expected number of connected peer ranks is : )\d*)+"
)


class GlooFilter:
    """Takes Gloo's messages out of a process' stdout.

    Gloo, which carries collectives between CPUs, says there for each group of devices ``[Gloo] Rank 0
    is connected to 1 peer ranks. Expected number of connected peer ranks is : 1``. It writes that in
    eight pieces, from several threads at once, so pieces of one message stand inside another one.
    """

    def __init__(self) -> None:
        self._unfinished = 0

    def clean(self, line: bytes) -> bytes | None:
        """Return what is the program's of a line, None where all of it is Gloo's."""
        self._unfinished += line.count(_GLOO_BEGINNING)
        if not self._unfinished:
            return line
        others = _GLOO_PIECES.sub(b"", line)
        if others and not others.isdigit():
            # The end of this line is the program's, unless the whole message was in it.
            if line.startswith(others) and others != line:
                self._unfinished -= 1
            return others
        self._unfinished -= 1
        return None


class Relay:
    """Passes on what processes write, line by line, each with the prefix of its process."""

    def __init__(self, processes: int, when_closed: Callable[[], None]) -> None:
        """Take note of how many processes there are, and what to call when nobody reads any more."""
        self._digits = len(str(processes - 1))
        self._when_closed = when_closed
        self._locks = {1: threading.Lock(), 2: threading.Lock()}
        self._heard: frozenset[int] | None = None
        self._threads: list[threading.Thread] = []

    @property
    def prefix_width(self) -> int:
        """Return how many characters the prefix takes."""
        return self._digits + 3

    def start(self, process: int, stream: BinaryIO, target: int) -> None:
        """Begin to pass a stream on to a file descriptor, in a thread."""
        thread = threading.Thread(target=self._pass_on, args=(process, stream, target), daemon=True)
        self._threads.append(thread)
        thread.start()

    def hear_only(self, *processes: int) -> None:
        """Drop what all other processes write from now on."""
        self._heard = frozenset(processes)

    def finish(self, timeout: float | None) -> None:
        """Wait until all that was written has been passed on."""
        for thread in self._threads:
            thread.join(timeout)

    def _pass_on(self, process: int, stream: BinaryIO, target: int) -> None:
        prefix = f"[{process:>{self._digits}}] ".encode()
        clean = GlooFilter().clean if target == 1 else bytes
        for lines in split_lines(stream):
            # Streams are read to their end in any case: who writes must not be blocked.
            if self._heard is not None and process not in self._heard:
                continue
            kept = [line for line in map(clean, lines) if line is not None]
            try:
                with self._locks[target]:
                    _write(target, b"".join(prefix + line + b"\n" for line in kept))
            except OSError:
                self._heard = frozenset()
                self._when_closed()


def _write(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]
