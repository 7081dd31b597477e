"""Who reads what is alive in this process: one thread at a time."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

_LONGEST_READING = 5.0
_reading = threading.RLock()


def _begin_anew() -> None:
    """Forget who is reading: a fork takes no other thread along."""
    global _reading
    _reading = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Let threads read what is alive one after the other.

    Each reader keeps the arrays or functions that it reads alive for as long as that takes: readers
    that overlap without end would keep all of them for ever. Who waits for long goes on alone.
    """
    reading = _reading
    acquired = reading.acquire(timeout=_LONGEST_READING)
    try:
        yield
    finally:
        if acquired:
            reading.release()
