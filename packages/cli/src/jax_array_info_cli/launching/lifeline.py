"""A pipe that tells the parent of a process at once when it ends."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import resource
import select
import threading

from .descendants import ON_LINUX

_HIGHEST = 2**16


class Lifeline:
    """The end of the pipe that the process holds: closed when it ends, however it does."""

    def __init__(self, descriptor: int) -> None:
        """Take the pipe's end to where it is closed first, and where programs that are started lack it.

        Linux closes what a dead process had open from the highest descriptor down.
        """
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = min(limit, _HIGHEST) if limit > 0 else _HIGHEST
        self._descriptor = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, highest - 1)
        os.close(descriptor)

    def announce_end(self) -> None:
        """Tell the parent that the process is about to end, for the case that a fork of it lives on."""
        with contextlib.suppress(OSError):
            os.write(self._descriptor, b".")


class Lifelines:
    """The parent's ends of the pipes: which of its processes are at their end, in which order.

    The order is the one in which Linux closed them: an edge-triggered epoll keeps it until it is
    asked, however late that is. Elsewhere, of several that end at once, the first started counts as
    the first.
    """

    def __init__(self) -> None:
        self._owners: dict[int, int] = {}
        self._open = select.epoll() if ON_LINUX else select.poll()
        self._events = select.EPOLLIN | select.EPOLLET if ON_LINUX else select.POLLIN
        self._closed: list[int] = []
        self._lock = threading.Lock()

    def add(self, process: int, descriptor: int) -> None:
        """Begin to watch the lifeline of a process."""
        with self._lock:
            self._owners[descriptor] = process
            self._open.register(descriptor, self._events)

    def closed_before(self, process: int) -> tuple[int, ...]:
        """Return the processes that were at their end before this one, first to last."""
        with self._lock:
            for descriptor, _ in self._open.poll(0):
                if self._owners[descriptor] not in self._closed:
                    self._closed.append(self._owners[descriptor])
            return tuple(itertools.takewhile(lambda other: other != process, self._closed))
