"""Output of several processes, forwarded line by line until one of them fails."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from typing import IO, NamedTuple

STDOUT, STDERR = 1, 2

_CHUNK = 2**16
_SETTLED = 0.05
"""Seconds until the death of a process is known, which others may write about at once."""
_LONGEST = 2**22
"""Bytes of a line after which it is split."""

_LINE_END = re.compile(rb"\r*\n\r*|\r+(?=[^\r\n])")
_GLOO = re.compile(
    rb"(?:(?:\[Gloo\] Rank | is connected to | peer ranks\. |"
    rb"Expected number of connected peer ranks is : )\d*)+"
)
"""What Gloo, which runs collectives between CPUs, prints for each group of devices. Messages of two threads
may be interleaved."""


class Ended(NamedTuple):
    """The exit of a process."""

    process: int
    code: int
    """Exit code; −n if signal n killed the process."""


Event = Ended | signal.Signals | OSError
"""The exit of a process, a signal to the supervisor, or an error writing the output."""

Events = queue.SimpleQueue[Event]


class Relay:
    """Prefixes each line with its process number. After a failure, forwards only the failed process.

    When a process dies, jax makes the others die too, with long logs and tracebacks.
    """

    def __init__(self, processes: int, events: Events) -> None:
        """Store the number of processes, and the queue for their exits and for write errors."""
        digits = len(str(processes - 1))
        self.prefixes = [f"[{process:>{digits}}] " for process in range(processes)] if processes > 1 else [""]
        self._events = events
        self.running: dict[int, int] = {}
        """The number of each process that has not ended, by its id."""
        self._forwarded: frozenset[int] | None = None
        self._reaping = threading.Lock()
        self._writing = {target: threading.Lock() for target in (STDOUT, STDERR)}
        self._threads: list[threading.Thread] = []

    def forward(self, process: int, stream: IO[bytes] | None, target: int) -> None:
        """Begin to forward what a process writes to a pipe."""
        assert stream is not None
        thread = threading.Thread(target=self._forward, args=(process, stream, target), daemon=True)
        self._threads.append(thread)
        thread.start()

    def forward_only(self, processes: Iterable[int]) -> None:
        """Drop the output of all other processes. Only the first call has an effect."""
        if self._forwarded is None:
            self._forwarded = frozenset(processes)

    def reap(self) -> None:
        """Report the processes that have exited.

        Orphans, whose parent this process is on Linux, are dropped: each would keep its process id.
        """
        with self._reaping, contextlib.suppress(ChildProcessError):
            while (exited := os.waitpid(-1, os.WNOHANG))[0]:
                process = self.running.pop(exited[0], None)
                if process is not None:
                    code = os.waitstatus_to_exitcode(exited[1])
                    if code:
                        self.forward_only([process])
                    self._events.put(Ended(process, code))

    def write(self, process: int, lines: Iterable[bytes], target: int) -> None:
        """Write lines with the prefix of a process. A run of one process has no prefix."""
        prefix = self.prefixes[process].encode()
        data = b"".join(prefix + line + b"\n" for line in lines)
        with self._writing[target]:
            while data:
                data = data[os.write(target, data) :]

    def finish(self, timeout: float | None) -> None:
        """Wait until all output has been forwarded, at most ``timeout`` seconds per stream."""
        for thread in self._threads:
            thread.join(timeout)

    def _forward(self, process: int, stream: IO[bytes], target: int) -> None:
        # Read to the end even if the lines are dropped: a full pipe would block the process.
        for lines in split_lines(iter(lambda: os.read(stream.fileno(), _CHUNK), b"")):
            if target == STDERR:
                time.sleep(_SETTLED)
            self.reap()
            if self._forwarded is None or process in self._forwarded:
                try:
                    self.write(process, [line for line in lines if not _GLOO.fullmatch(line)], target)
                except OSError as error:
                    self.forward_only([])
                    self._events.put(error)


def split_lines(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines of a stream, a list per chunk, without line ends.

    A carriage return also ends a line, so each state of a progress bar is a separate line. Lines of several
    megabytes are split.
    """
    rest = b""
    for chunk in chunks:
        rest += chunk
        if len(rest) > _LONGEST and b"\n" not in chunk:
            yield [rest]
            rest = b""
        elif b"\n" in chunk or b"\r" in rest:
            *lines, rest = _LINE_END.split(rest.lstrip(b"\r"))
            yield lines
    if rest:
        yield [rest.rstrip(b"\r")]
