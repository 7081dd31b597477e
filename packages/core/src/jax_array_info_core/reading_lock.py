"""Lock for reading the live arrays and functions of this process, one thread at a time."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

_LONGEST_READING = 5.0


_locks: dict[int, threading.RLock] = {}
"""Lock by process id: after a fork, a lock held by a thread of the parent would never be released."""


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hold the lock for reading live objects.

    A reader keeps the arrays or functions that it reads alive while it reads. Readers that always overlap
    would keep them alive for ever. A thread that has waited for 5 seconds continues without the lock.
    """
    lock = _locks.setdefault(os.getpid(), threading.RLock())
    acquired = lock.acquire(timeout=_LONGEST_READING)
    try:
        yield
    finally:
        if acquired:
            lock.release()
