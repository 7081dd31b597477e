"""The processes below this one: found, and ended with all that they have started."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
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


def end_with_parent(parent: int) -> None:
    """Let Linux kill this process when its parent ends; it ends at once where that one is gone already."""
    if ON_LINUX:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


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
                _send(process, number)
            asked |= alive
            time.sleep(_POLL)


def _send(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)


def _descendants() -> set[int]:
    """Return the ids of the processes below this one that still run."""
    children = defaultdict(list)
    for process, parent, state in _all_processes():
        if not state.startswith("Z"):
            children[parent].append(process)
    found: set[int] = set()
    waiting = [os.getpid()]
    while waiting:
        for process in children[waiting.pop()]:
            found.add(process)
            waiting.append(process)
    return found


def _all_processes() -> Iterator[tuple[int, int, str]]:
    """Yield id, parent and state of each process of the machine."""
    if not ON_LINUX:
        with subprocess.Popen(
            ["ps", "-A", "-o", "pid=,ppid=,state="],  # noqa: S607
            stdout=subprocess.PIPE,
            text=True,
        ) as listing:
            rows = [line.split() for line in listing.communicate()[0].splitlines()]
        yield from ((int(row[0]), int(row[1]), row[2]) for row in rows if int(row[0]) != listing.pid)
        return
    for entry in Path("/proc").glob("[0-9]*/stat"):
        # A process may end between the listing and the reading.
        with contextlib.suppress(OSError):
            # The name, in parentheses, may hold anything: blanks and parentheses too.
            state, parent = entry.read_bytes().decode(errors="replace").rpartition(")")[2].split()[:2]
            yield int(entry.parent.name), int(parent), state
