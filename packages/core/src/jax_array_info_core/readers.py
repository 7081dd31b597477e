"""Who reads what is alive in this process: one thread at a time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

_reading = threading.RLock()
_LONGEST_READING = 5.0


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Let threads read what is alive one after the other.

    Each reader keeps the arrays or functions that it reads alive for as long as that takes: readers
    that overlap without end would keep all of them for ever. Who waits in vain (for a thread that a
    fork has not taken along) goes on alone.
    """
    acquired = _reading.acquire(timeout=_LONGEST_READING)
    try:
        yield
    finally:
        if acquired:
            _reading.release()
