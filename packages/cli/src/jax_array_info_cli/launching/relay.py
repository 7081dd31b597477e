"""Passes on what several processes write, line by line, until one of them fails."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import IO

from .lifeline import Lifelines
from .lines import GlooFilter, split_lines

STDOUT, STDERR = 1, 2

_CHUNK = 2**16

_VERDICT = 5.0
"""Seconds within which a process whose lifeline is closed must end; else it has closed all it had open."""


class Relay:
    """Gives each line of each process its prefix, and drops what others say of a failure.

    When a process dies, jax makes the others die as well, with long logs and tracebacks. They notice
    it when the system closes its sockets, which is some time before the parent is told that the process
    has ended; but each process has a lifeline, a pipe that is closed before any socket. So what a
    process writes while another one's lifeline is closed waits until it is known how that one ended.
    """

    def __init__(self, processes: int, when_closed: Callable[[OSError], None]) -> None:
        """Take note of how many processes there are, and of what to call when it cannot write."""
        digits = len(str(processes - 1))
        self._prefixes = (
            [f"[{process:>{digits}}] " for process in range(processes)] if processes > 1 else [""]
        )
        self._when_closed = when_closed
        self._writing = {target: threading.Lock() for target in (STDOUT, STDERR)}
        self._heard: frozenset[int] | None = None
        self._ended = [threading.Event() for _ in range(processes)]
        self._lifelines = Lifelines()
        self._threads: list[threading.Thread] = []

    @property
    def prefix_width(self) -> int:
        """Return how many characters the prefix takes."""
        return len(self._prefixes[0])

    def start(self, process: int, stdout: IO[bytes], stderr: IO[bytes], lifeline: int) -> None:
        """Begin to pass on what a process writes, in threads."""
        self._lifelines.add(process, lifeline)
        for stream, target in ((stdout, STDOUT), (stderr, STDERR)):
            thread = threading.Thread(target=self._pass_on, args=(process, stream, target), daemon=True)
            self._threads.append(thread)
            thread.start()

    def wait_for_earlier(self, process: int) -> None:
        """Wait until it is known how those have ended who were at their end before this process."""
        for other in self._lifelines.closed_before(process):
            if not self._ended[other].wait(_VERDICT):
                self._ended[other].set()

    def end(self, process: int, *, failed: bool) -> None:
        """Take note of how a process has ended: after a failure none of the others is heard."""
        if failed and self._heard is None:
            self.hear_only(process)
        self._ended[process].set()

    def hear_only(self, *processes: int) -> None:
        """Drop what all other processes write from now on."""
        self._heard = frozenset(processes)

    def tell(self, process: int, lines: Iterable[bytes], target: int) -> None:
        """Write lines with the prefix of a process, which one that is alone has not."""
        prefix = self._prefixes[process].encode()
        with self._writing[target]:
            _write(target, b"".join(prefix + line + b"\n" for line in lines))

    def finish(self, timeout: float | None) -> None:
        """Wait until all that was written has been passed on."""
        for thread in self._threads:
            thread.join(timeout)

    def _pass_on(self, process: int, stream: IO[bytes], target: int) -> None:
        clean = GlooFilter().clean if target == STDOUT else bytes
        for lines in split_lines(iter(lambda: os.read(stream.fileno(), _CHUNK), b"")):
            self.wait_for_earlier(process)
            # Streams are read to their end in any case: who writes must not be blocked.
            if self._heard is not None and process not in self._heard:
                continue
            try:
                self.tell(process, (line for line in map(clean, lines) if line is not None), target)
            except OSError as error:
                self.hear_only()
                self._when_closed(error)


def _write(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]
