"""Output of several processes: complete lines, each with the index of its process."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import select
import signal
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
"""Signals that may end a wait of this command."""

LONGEST = 2**22
"""Maximum bytes of a line. Longer lines are split."""

_CHUNK = 2**16
_FULLEST = 2**20
"""Maximum bytes in a pipe, unless root has set more."""

_OF_GLOO = re.compile(
    rb"(\[Gloo\] Rank \d+ is connected to \d+ peer ranks\. "
    rb"Expected number of connected peer ranks is : \d+)+"
)
"""A line that Gloo, which runs collectives between CPUs, prints for each group of devices."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let signals through that are blocked otherwise.

    Their handler raises an exception. Within any other code, this would lose lines, or the end of a process.
    """
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


class Relay:
    """Forwards what processes write to pipes. A run of one process has no prefix."""

    def __init__(self, processes: int) -> None:
        """Store the number of processes."""
        self._processes = processes
        self._poll = select.poll()
        self._pipes: dict[int, tuple[int, int | None, Iterator[list[bytes]]]] = {}
        """Process, target and lines of each pipe that is open."""
        self._unwritten: dict[int, bytearray] = defaultdict(bytearray)
        self.error: OSError | None = None
        """The first error of writing. What comes after it is dropped."""

    def prefix(self, process: int) -> str:
        """Return the beginning of each line of a process."""
        return f"[{process:>{len(str(self._processes - 1))}}] " if self._processes > 1 else ""

    def add(self, process: int, pipe: int, target: int | None) -> None:
        """Begin to forward a pipe of a process to a descriptor; None if the pipe is only ever closed."""
        read = functools.partial(_read, pipe)
        self._pipes[pipe] = process, target, split_lines(iter(read, b""))
        self._poll.register(pipe, select.POLLIN)

    def ready(self, seconds: float) -> list[int]:
        """Return the pipes that can be read, at the latest after some seconds."""
        with interruptible():
            return [pipe for pipe, _ in self._poll.poll(seconds * 1000)]

    def hung_up(self) -> list[int]:
        """Return the processes that have closed the pipe without a target, as one that dies does."""
        closed = (self._pipes[pipe] for pipe, event in self._poll.poll(0) if event & select.POLLHUP)
        return [process for process, target, _ in closed if target is None]

    def forward(self, ready: Iterable[int], heard: Collection[int]) -> None:
        """Read each pipe once, and forward its complete lines if it belongs to one of some processes.

        What the others write is read too, since a full pipe would block them.
        """
        for pipe in ready:
            process, target, pieces = self._pipes[pipe]
            lines = next(pieces, None)
            if lines is None:
                self._poll.unregister(pipe)
                del self._pipes[pipe]
            elif process in heard and target is not None:
                self.write(process, lines, target)

    def finish(self, heard: Collection[int]) -> None:
        """Forward what is left in the pipes, up to lines without end, even if a daemon keeps them open."""
        for process in heard:
            for target in self._unwritten:
                self.write(process, (), target)  # what an interrupted wait has left
        for pipe in self._pipes:
            os.set_blocking(pipe, False)
        for _ in range(_FULLEST // _CHUNK + 2):
            self.forward([*self._pipes], heard)

    def write(self, process: int, lines: Iterable[bytes], target: int) -> None:
        """Write lines with the prefix of a process, apart from those of Gloo."""
        prefix = self.prefix(process).encode()
        data = self._unwritten[target]
        data += b"".join(prefix + line + b"\n" for line in lines if not _OF_GLOO.fullmatch(line))
        try:
            while data and self.error is None:
                with interruptible():
                    select.select([], [target], [])
                del data[: os.write(target, data[: select.PIPE_BUF])]  # does not wait
        except OSError as error:
            self.error = error


def _read(pipe: int) -> bytes:
    """Read from a pipe; nothing if it does not block and is empty."""
    with contextlib.suppress(BlockingIOError):
        return os.read(pipe, _CHUNK)
    return b""


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
