"""A pipe that tells the parent of a process at once when it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource

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
