"""A lock that lets one thread at a time read what is alive in this process."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

_LONGEST_READING = 5.0


_locks: dict[int, threading.RLock] = {}
"""The lock of each process: after a fork, no thread of the parent's gives its own back."""


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Let threads read what is alive one after the other.

    Each reader keeps the arrays or functions that it reads alive for as long as that takes: readers
    that overlap without end would keep all of them for ever. Who waits for long goes on alone.
    """
    lock = _locks.setdefault(os.getpid(), threading.RLock())
    acquired = lock.acquire(timeout=_LONGEST_READING)
    try:
        yield
    finally:
        if acquired:
            lock.release()
