"""The process above a child: it ends the session of the child when the process that asks has ended.

It is a process, not a thread of the child: code in C that keeps Python's lock holds up every thread.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from ...base.memory_folders import remove_memory_folders

SIGNALLED = 128
"""Exit code of a child that a signal ended, less the number of the signal, as shells have it."""
_POLL_MILLISECONDS = 100
_SECONDS = 0.01
_SET_CHILD_SUBREAPER = 36
"""Option of Linux's ``prctl``."""


class _Process(NamedTuple):
    """A process as ``/proc`` lists it."""

    number: int
    name: str
    parent: int
    session: int


def watched(connection: int) -> None:
    """Return in a fork of this process, and watch it here until it ends or a socket is closed.

    This process leads the session, and the fork leads a process group in it. Nothing of the session is left.

    Args:
        connection: The descriptor of the socket to the process that asks.
    """
    worker = os.fork()
    with suppress(OSError):  # both do it, whichever is first
        os.setpgid(worker, worker)
    if worker:
        code = 1
        try:
            code = _watch(worker, connection)
        finally:
            os._exit(code)


def _watch(worker: int, connection: int) -> int:
    """Return the exit code of a child that has ended, or that this process ends."""
    _adopt_orphans()
    events = select.poll()
    events.register(connection, 0)  # only for its end
    status: int | None = None
    while status is None and not events.poll(_POLL_MILLISECONDS):
        status = _reaped(worker)
    while _end_session(worker):  # what ends may start others
        status = _reaped(worker) if status is None else status
        time.sleep(_SECONDS)
    remove_memory_folders(os.getpid())
    if status is None:
        status = os.waitpid(worker, 0)[1]
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else SIGNALLED - code


def _adopt_orphans() -> None:
    """Make this process the parent of processes below it whose parent ends, where Linux can."""
    with suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _reaped(worker: int) -> int | None:
    """Wait for the children that have ended, and return the status of one of them; None if it has not."""
    found = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found = ended[1] if ended[0] == worker else found
    return found


def _end_session(worker: int) -> bool:
    """End the processes of this session except this one, and return whether there were some."""
    others = [one.number for one in _processes() if one.session == os.getpid() != one.number]
    with suppress(OSError):  # where there is no /proc
        os.killpg(worker, signal.SIGKILL)
    ended = 0
    for number in others:
        with suppress(OSError):  # it has ended, or has become another user's
            os.kill(number, signal.SIGKILL)
            ended += 1
    return bool(ended)


def _processes() -> Iterator[_Process]:
    """Yield the processes that run, where there is ``/proc``."""
    for entry in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        with suppress(OSError, ValueError):  # it has ended, or is no process
            with open(f"/proc/{int(entry)}/stat", encoding="utf-8", errors="replace") as file:
                before, _, after = file.read().rpartition(")")
            state, parent, _, session = after.split()[:4]
            if state not in "ZX":
                yield _Process(int(entry), before.partition("(")[2], int(parent), int(session))


def names_outside(watcher: int) -> list[str]:
    """Return the names of processes below a watcher that have left its session, where there is ``/proc``.

    Those of this package end by themselves.
    """
    processes = sorted(_processes(), key=lambda one: one.number)
    below, size = {watcher}, 0
    while size != len(below):  # a child can have a smaller number than its parent
        size = len(below)
        below.update(one.number for one in processes if one.parent in below)
    return [
        one.name
        for one in processes
        if one.number in below and one.session != watcher and not _is_ours(one.number)
    ]


def _is_ours(number: int) -> bool:
    with suppress(OSError), open(f"/proc/{number}/cmdline", "rb") as file:
        return b"jax_array_info_core" in file.read()
    return False
