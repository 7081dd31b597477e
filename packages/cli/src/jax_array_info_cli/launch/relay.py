"""Output of several processes, passed on line by line until one of them fails."""

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
    """A process has ended."""

    process: int
    code: int
    """Its exit code; −n where signal n killed it."""


Event = Ended | signal.Signals | OSError
"""A process has ended, the supervisor was sent a signal, or the output cannot be written."""

Events = queue.SimpleQueue[Event]


class Relay:
    """Gives each line of each process its prefix, and drops what others say of a failure.

    When a process dies, jax makes the others die as well, with long logs and tracebacks. So before a line is
    passed on, it is known how the processes have ended that died before it was written.
    """

    def __init__(self, processes: int, events: Events) -> None:
        """Take the number of processes, and the queue for their exits and for errors of writing."""
        digits = len(str(processes - 1))
        self._prefixes = (
            [f"[{process:>{digits}}] " for process in range(processes)] if processes > 1 else [""]
        )
        self._events = events
        self.exits = Exits(self._note_exit)
        self._heard: frozenset[int] | None = None
        self._writing = {target: threading.Lock() for target in (STDOUT, STDERR)}
        self._threads: list[threading.Thread] = []

    @property
    def prefix_width(self) -> int:
        """Return how many characters the prefix takes."""
        return len(self._prefixes[0])

    def start(self, process: int, started: subprocess.Popen[bytes], channel: socket.socket) -> None:
        """Take note of a process, and begin to pass on what it writes into pipes."""
        self.exits.watch(process, started, channel)
        for stream, target in ((started.stdout, STDOUT), (started.stderr, STDERR)):
            if stream:
                thread = threading.Thread(target=self._pass_on, args=(process, stream, target), daemon=True)
                self._threads.append(thread)
                thread.start()

    def hear_only(self, processes: Iterable[int]) -> None:
        """Drop what all other processes write, unless it has been decided before who is heard."""
        if self._heard is None:
            self._heard = frozenset(processes)

    def tell(self, process: int, lines: Iterable[bytes], target: int) -> None:
        """Write lines with the prefix of a process, which one that is alone has not."""
        prefix = self._prefixes[process].encode()
        data = b"".join(prefix + line + b"\n" for line in lines)
        with self._writing[target]:
            while data:
                data = data[os.write(target, data) :]

    def finish(self, timeout: float | None) -> None:
        """Wait until all that was written has been passed on."""
        for thread in self._threads:
            thread.join(timeout)

    def _note_exit(self, process: int, code: int) -> None:
        if code:
            self.hear_only([process])
        self._events.put(Ended(process, code))

    def _pass_on(self, process: int, stream: IO[bytes], target: int) -> None:
        clean = GlooFilter().clean if target == STDOUT else bytes
        # A stream is read to its end in any case: a process that writes must not be blocked.
        for lines in split_lines(iter(lambda: os.read(stream.fileno(), _CHUNK), b"")):
            self.exits.catch_up(process)
            if self._heard is None or process in self._heard:
                try:
                    self.tell(process, (line for line in map(clean, lines) if line is not None), target)
                except OSError as error:
                    self.hear_only([])
                    self._events.put(error)
