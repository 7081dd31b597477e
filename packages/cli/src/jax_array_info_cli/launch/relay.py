"""Output of several processes, forwarded line by line until one of them fails."""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import threading
from collections.abc import Iterable
from typing import IO, NamedTuple

from .exits import Exits
from .lines import GlooFilter, split_lines

STDOUT, STDERR = 1, 2

_CHUNK = 2**16


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

    When a process dies, jax makes the others die too, with long logs and tracebacks. Before a line is
    forwarded, the exits of all processes that died before it was written are therefore collected.
    """

    def __init__(self, processes: int, events: Events) -> None:
        """Store the number of processes, and the queue for their exits and for write errors."""
        digits = len(str(processes - 1))
        self._prefixes = (
            [f"[{process:>{digits}}] " for process in range(processes)] if processes > 1 else [""]
        )
        self._events = events
        self.exits = Exits(self._note_exit)
        self._forwarded: frozenset[int] | None = None
        self._writing = {target: threading.Lock() for target in (STDOUT, STDERR)}
        self._threads: list[threading.Thread] = []

    @property
    def prefix_width(self) -> int:
        """Return the length of the prefix in characters."""
        return len(self._prefixes[0])

    def start(self, process: int, started: subprocess.Popen[bytes], channel: socket.socket) -> None:
        """Watch a process, and begin to forward the output that it writes to pipes."""
        self.exits.watch(process, started, channel)
        for stream, target in ((started.stdout, STDOUT), (started.stderr, STDERR)):
            if stream:
                thread = threading.Thread(target=self._forward, args=(process, stream, target), daemon=True)
                self._threads.append(thread)
                thread.start()

    def forward_only(self, processes: Iterable[int]) -> None:
        """Drop the output of all other processes. Only the first call has an effect."""
        if self._forwarded is None:
            self._forwarded = frozenset(processes)

    def write(self, process: int, lines: Iterable[bytes], target: int) -> None:
        """Write lines with the prefix of a process. A run of one process has no prefix."""
        prefix = self._prefixes[process].encode()
        data = b"".join(prefix + line + b"\n" for line in lines)
        with self._writing[target]:
            while data:
                data = data[os.write(target, data) :]

    def finish(self, timeout: float | None) -> None:
        """Wait until all output has been forwarded, at most ``timeout`` seconds per stream."""
        for thread in self._threads:
            thread.join(timeout)

    def _note_exit(self, process: int, code: int) -> None:
        if code:
            self.forward_only([process])
        self._events.put(Ended(process, code))

    def _forward(self, process: int, stream: IO[bytes], target: int) -> None:
        clean = GlooFilter().clean if target == STDOUT else bytes
        # Read to the end even if the lines are dropped: a full pipe would block the process.
        for lines in split_lines(iter(lambda: os.read(stream.fileno(), _CHUNK), b"")):
            self.exits.catch_up(process)
            if self._forwarded is None or process in self._forwarded:
                try:
                    self.write(process, (line for line in map(clean, lines) if line is not None), target)
                except OSError as error:
                    self.forward_only([])
                    self._events.put(error)
