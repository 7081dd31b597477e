"""The exits of processes, in chronological order."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from itertools import takewhile

from .descendants import ON_LINUX

_EXIT_TIMEOUT = 5.0
"""Seconds to wait for a process that has hung up: if it lives on, it has closed its descriptors itself."""


class Exits:
    """Reports the exit code of each process, first to last.

    When a process dies, the system closes its sockets some time before the process has exited, and the
    other processes notice that. Each process holds a socket that is closed before all its others; the
    hang-up of that socket gives the order of deaths. On a busy machine, several sockets may hang up between
    two polls: on Linux, an edge-triggered epoll keeps their order; elsewhere, they are reported in the order
    of their start.
    """

    def __init__(self, report: Callable[[int, int], None]) -> None:
        """Store the callback, which is called once with each process and its exit code."""
        self._report = report
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._owners: dict[int, int] = {}
        self._deadlines: dict[int, float] = {}
        """Time by which each process that has hung up must exit, in the order of hang-ups."""
        self._hangups = select.epoll() if ON_LINUX else select.poll()
        self._lock = threading.RLock()

    def watch(self, process: int, started: subprocess.Popen[bytes], channel: socket.socket) -> None:
        """Add a started process and the supervisor's end of its socket."""
        with self._lock:
            self._running[process] = started
            self._owners[channel.fileno()] = process
            self._hangups.register(
                channel, select.EPOLLRDHUP | select.EPOLLET if ON_LINUX else select.POLLHUP
            )

    def catch_up(self, process: int | None = None) -> None:
        """Wait for the processes that have hung up so far, and report them.

        Args:
            process: Only wait for processes that hung up before this one.
        """
        with self._lock:
            for descriptor, _ in self._hangups.poll(0):
                self._deadlines.setdefault(self._owners[descriptor], time.monotonic() + _EXIT_TIMEOUT)
            earlier = [*takewhile(lambda other: other != process, self._deadlines)]
        for other in earlier:
            self._note(other, max(self._deadlines[other] - time.monotonic(), 0))

    def reap(self) -> None:
        """Report all exits, including processes whose socket is still open in a fork.

        Orphans, whose parent this process is on Linux, are dropped: each would keep its process id.
        """
        with self._lock:
            exited = [process for process, started in self._running.items() if started.poll() is not None]
        for process in exited:
            self.catch_up(process)
            self._note(process, 0)
        with contextlib.suppress(ChildProcessError):
            while ON_LINUX and (dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)):
                if dead.si_pid in [started.pid for started in self._running.values()]:
                    break
                os.waitpid(dead.si_pid, 0)

    def _note(self, process: int, timeout: float) -> None:
        """Report a process that exits within ``timeout`` seconds, unless it has been reported before."""
        started = self._running.get(process)
        if started is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = started.wait(timeout)
            with self._lock:
                if self._running.pop(process, None):
                    self._report(process, code)
