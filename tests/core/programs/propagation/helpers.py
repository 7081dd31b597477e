"""Helper processes, as the system sees them."""

import sys
import time
from pathlib import Path

import pytest

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def worker_of(helper):
    """Return the number of the process that runs the passes, once it is there."""
    for _ in range(1000):
        for stat in Path("/proc").glob("[0-9]*/stat"):
            if _fields(stat)[1:2] == [str(helper.watcher)]:
                return int(stat.parent.name)
        time.sleep(0.01)
    raise AssertionError("no worker")


def has_ended(process):
    """Return whether a process ends within a time that a busy machine needs."""
    for _ in range(3000):
        if _fields(Path(f"/proc/{process}/stat"))[:1] in ([], ["Z"], ["X"]):
            return True
        time.sleep(0.01)
    return False


def _fields(stat):
    """Return the state and the parent of a process, and more; nothing if it is gone."""
    try:
        return stat.read_text().rpartition(")")[2].split()
    except OSError:
        return []
