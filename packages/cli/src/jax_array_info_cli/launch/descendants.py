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

_POLL = 0.02
_KILLED_WITHIN = 10.0


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
    """Send SIGTERM to every process below this one, and SIGKILL after ``grace`` seconds."""
    for number, timeout in ((signal.SIGTERM, grace), (signal.SIGKILL, _KILLED_WITHIN)):
        signaled: set[int] = set()
        deadline = time.monotonic() + timeout
        while (alive := _descendants()) and time.monotonic() < deadline:
            # List them again each time: a process may have started another since.
            for process in alive - signaled:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, number)
            signaled |= alive
            time.sleep(_POLL)


def _descendants() -> set[int]:
    """Return the ids of the running processes below this one."""
    parents = {process: parent for process, parent, state in _all_processes() if state[0] != "Z"}
    family = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in family} - family:
        family |= more
    return family - {os.getpid()}


def _all_processes() -> Iterator[tuple[int, int, str]]:
    """Yield id, parent id and state of each process on the machine."""
    if not ON_LINUX:
        command = ["ps", "-A", "-o", "pid=,ppid=,state="]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listing:
            for process, parent, state in map(str.split, listing.communicate()[0].splitlines()):
                if int(process) != listing.pid:
                    yield int(process), int(parent), state
        return
    for entry in Path("/proc").glob("[0-9]*/stat"):
        # A process may exit between the listing and the reading.
        with contextlib.suppress(OSError):
            # The name is in parentheses and may itself contain spaces and parentheses.
            state, parent = entry.read_bytes().decode(errors="replace").rpartition(")")[2].split()[:2]
            yield int(entry.parent.name), int(parent), state
