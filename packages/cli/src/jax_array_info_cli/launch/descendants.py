"""Termination of all descendants of this process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ON_LINUX = sys.platform == "linux"

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_POLL = 0.001
_KILLED_WITHIN = 10.0
_KERNEL_LISTS_CHILDREN = ON_LINUX and Path("/proc/thread-self/children").exists()


def adopt_orphans() -> None:
    """Become the parent of every orphan below this process (Linux only).

    Otherwise orphans belong to init, and a program could leave processes behind that nothing here finds.
    """
    if ON_LINUX:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent() -> None:
    """Make Linux kill this process when its parent exits."""
    if ON_LINUX:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def end_descendants(grace: float) -> None:
    """Send SIGTERM to every process below this one, and SIGKILL after ``grace`` seconds.

    A process may fork and exit all the time, so that each list of processes is soon out of date. Therefore
    each one is signaled as soon as it is found, and they are listed again until this process has no child.
    """
    for number, timeout in ((signal.SIGTERM, grace), (signal.SIGKILL, _KILLED_WITHIN)):
        signaled: set[int] = set()
        deadline = time.monotonic() + timeout
        while _has_children() and time.monotonic() < deadline:
            signaled = {
                process for process in _descendants() if process in signaled or _send(process, number)
            }
            time.sleep(_POLL)


def _has_children() -> bool:
    """Return whether there are children, exited ones apart. Their exit codes are dropped."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def _send(process: int, number: signal.Signals) -> bool:
    """Send a signal to a process, unless it has exited or belongs to another user, and return True."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)
    return True


def _descendants() -> Iterator[int]:
    """Yield the id of each process below this one, a parent before its children."""
    family = [os.getpid()]
    for process in family:
        for child in _children(process):
            yield child
            family.append(child)


def _children(process: int) -> list[int]:
    """Return the ids of the processes that another one has started or adopted."""
    with contextlib.suppress(OSError):  # the process, or a thread of it, may end meanwhile
        if _KERNEL_LISTS_CHILDREN:
            lists = [path.read_bytes() for path in Path(f"/proc/{process}/task").glob("*/children")]
        else:
            command = ["pgrep", "-P", str(process)]
            lists = [subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout]
        return [int(child) for found in lists for child in found.split()]
    return []
