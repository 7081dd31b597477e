"""Identity of a process of this machine, to tell later whether it still runs."""

from __future__ import annotations

import os
import socket
from typing import NamedTuple

from ..compat.launchers import job_of, launcher_rank
from ..reports.record import RecordStart
from ..text import clipped, plain_text


class Identity(NamedTuple):
    """Fields of a ``RecordStart`` that identify a process."""

    host_name: str
    pid: int
    pid_started: int | None
    pid_namespace: str | None
    job: str | None
    rank: int | None


def identity() -> Identity:
    """Return the identity of this process."""
    pid = os.getpid()
    job = job_of()
    return Identity(
        socket.gethostname(),
        pid,
        _started(pid),
        _namespace(),
        None if job is None else clipped(plain_text(job)),
        launcher_rank(),
    )


def is_gone(start: RecordStart) -> bool:
    """Return whether the process of a record is known to run no longer.

    False for a process of another machine or container, which cannot be known.
    """
    if (start.host_name, start.pid_namespace) != (socket.gethostname(), _namespace()) or not start.pid:
        return False
    try:
        os.kill(start.pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False  # it belongs to another user
    return start.pid_started is not None and _started(start.pid) != start.pid_started


def _started(pid: int) -> int | None:
    """Return when a process began, in clock ticks since the machine started; None where that is unknown."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The name of the program is in parentheses, and may contain any character.
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _namespace() -> str | None:
    """Return the name of the namespace of process ids, such as that of a container."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None
