"""A pipe that tells the parent of a process at once when it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import select
import threading

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
    """The parent's ends of the pipes: which of its processes are at their end, in which order."""

    def __init__(self) -> None:
        self._owners: dict[int, int] = {}
        self._open = select.poll()
        self._closed: list[int] = []
        self._lock = threading.Lock()

    def add(self, process: int, descriptor: int) -> None:
        """Begin to watch the lifeline of a process."""
        with self._lock:
            self._owners[descriptor] = process
            self._open.register(descriptor, select.POLLIN)
        threading.Thread(target=self._watch, args=(process, descriptor), daemon=True).start()

    def closed_before(self, process: int) -> tuple[int, ...]:
        """Return the processes that were at their end before this one, first to last."""
        with self._lock:
            # The threads that watch may be late; what this process has just written is not.
            for descriptor, _ in self._open.poll(0):
                self._close(self._owners[descriptor])
            if process in self._closed:
                return tuple(self._closed[: self._closed.index(process)])
            return tuple(self._closed)

    def _watch(self, process: int, descriptor: int) -> None:
        os.read(descriptor, 1)
        with self._lock:
            self._close(process)

    def _close(self, process: int) -> None:
        if process not in self._closed:
            self._closed.append(process)
