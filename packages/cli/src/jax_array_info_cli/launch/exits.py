"""Exits of processes, in the order in which they happened."""

from __future__ import annotations

import contextlib
import select
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from itertools import takewhile

from .descendants import ON_LINUX

_VERDICT = 5.0
"""Seconds within which a process that has hung up must exit; else it has closed all it had open."""


class Exits:
    """Reports the exit code of each process, first to last.

    When a process dies, others notice it as the system closes its sockets, which is some time before it
    has exited. But each process holds a socket that is closed before any other: it hangs up. On a busy
    machine several may have hung up before anybody looks. On Linux, an edge-triggered epoll keeps their
    order. Elsewhere, of several the first started counts as the first.
    """

    def __init__(self, report: Callable[[int, int], None]) -> None:
        """Take the function that is called once with each process and its exit code."""
        self._report = report
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._owners: dict[int, int] = {}
        self._deadlines: dict[int, float] = {}
        """When each process that has hung up must have exited, first to last."""
        self._hangups = select.epoll() if ON_LINUX else select.poll()
        self._lock = threading.RLock()

    def watch(self, process: int, started: subprocess.Popen[bytes], channel: socket.socket) -> None:
        """Take note of a process that has been started, and of our end of its socket."""
        with self._lock:
            self._running[process] = started
            self._owners[channel.fileno()] = process
            self._hangups.register(
                channel, select.EPOLLRDHUP | select.EPOLLET if ON_LINUX else select.POLLHUP
            )

    def catch_up(self, process: int | None = None) -> None:
        """Wait for the processes that have hung up by now, and report them.

        Args:
            process: Wait for those alone that have hung up before this one.
        """
        with self._lock:
            for descriptor, _ in self._hangups.poll(0):
                self._deadlines.setdefault(self._owners[descriptor], time.monotonic() + _VERDICT)
            earlier = [*takewhile(lambda other: other != process, self._deadlines)]
        for other in earlier:
            self._note(other, max(self._deadlines[other] - time.monotonic(), 0))

    def reap(self) -> None:
        """Report all exits, those too of processes whose socket a fork still holds."""
        with self._lock:
            exited = [process for process, started in self._running.items() if started.poll() is not None]
        for process in exited:
            self.catch_up(process)
            self._note(process, 0)

    def _note(self, process: int, patience: float) -> None:
        """Report a process, unless it has been reported or does not exit within so many seconds."""
        started = self._running.get(process)
        if started is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = started.wait(patience)
            with self._lock:
                if self._running.pop(process, None):
                    self._report(process, code)
