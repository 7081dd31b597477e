"""Exits of processes, in the order in which they happened."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import threading
from collections.abc import Callable

from .descendants import ON_LINUX


class Exits:
    """Reports the exit code of each process, first to last.

    On a busy machine several may have exited before anybody looks, and the first failure must be told from
    those that follow from it. On Linux, an edge-triggered epoll keeps the order. Where the system has no
    descriptors of processes, of several that exited at once the first started counts as the first.
    """

    def __init__(self, report: Callable[[int, int], None]) -> None:
        """Take the function that is called once with each process and its exit code."""
        self._report = report
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._owners: dict[int, int] = {}
        self._order = select.epoll() if ON_LINUX else None
        self._lock = threading.Lock()

    def watch(self, process: int, started: subprocess.Popen[bytes]) -> None:
        """Take note of a process that has been started."""
        self._running[process] = started
        if self._order:
            with contextlib.suppress(OSError):  # Linux before 5.3, and sandboxes
                descriptor = os.pidfd_open(started.pid)
                self._owners[descriptor] = process
                self._order.register(descriptor, select.EPOLLIN | select.EPOLLET)

    def catch_up(self) -> None:
        """Report the exits that have happened by now."""
        with self._lock:
            ready = self._order.poll(0) if self._order else []
            others = self._running.keys() - self._owners.values()
            for process in [*(self._owners[descriptor] for descriptor, _ in ready), *sorted(others)]:
                started = self._running.get(process)  # Linux may tell of an exit twice
                if started and (code := started.poll()) is not None:
                    del self._running[process]
                    self._report(process, code)
