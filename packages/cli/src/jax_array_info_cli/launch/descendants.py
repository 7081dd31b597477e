"""The processes below this one: found, and ended with all that they have started."""

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
    """Become the parent of every process below this one whose own parent ends, where Linux allows it.

    Without that a program could hide what it starts: a process whose parent is gone belongs to init,
    whatever its group or session.
    """
    if ON_LINUX:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent() -> None:
    """Let Linux kill this process when its parent ends."""
    if ON_LINUX:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def end_descendants(grace: float) -> None:
    """End every process below this one: asked first, killed after so many seconds."""
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, _KILLED_WITHIN)):
        asked: set[int] = set()
        deadline = time.monotonic() + patience
        while (alive := _descendants()) and time.monotonic() < deadline:
            # Again each time: a process that was just asked may have started another one.
            for process in alive - asked:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, number)
            asked |= alive
            time.sleep(_POLL)


def _descendants() -> set[int]:
    """Return the ids of the processes below this one that still run."""
    parents = {process: parent for process, parent, state in _all_processes() if state[0] != "Z"}
    family = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in family} - family:
        family |= more
    return family - {os.getpid()}


def _all_processes() -> Iterator[tuple[int, int, str]]:
    """Yield id, parent and state of each process of the machine."""
    if not ON_LINUX:
        words = ["ps", "-A", "-o", "pid=,ppid=,state="]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as listing:
            for process, parent, state in map(str.split, listing.communicate()[0].splitlines()):
                if int(process) != listing.pid:
                    yield int(process), int(parent), state
        return
    for entry in Path("/proc").glob("[0-9]*/stat"):
        # A process may end between the listing and the reading.
        with contextlib.suppress(OSError):
            # The name, in parentheses, may hold anything: blanks and parentheses too.
            state, parent = entry.read_bytes().decode(errors="replace").rpartition(")")[2].split()[:2]
            yield int(entry.parent.name), int(parent), state
