"""Lock for one thread at a time: to read live arrays, or to let msgspec know a class."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

_T = TypeVar("_T")
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


def prepared(type_: _T) -> _T:
    """Return a type for msgspec, once msgspec knows its fields.

    If two threads decode a class for the first time at once, msgspec 0.22 ends the process with SIGSEGV.
    """
    _prepare(type_)
    return type_


@functools.cache
def _prepare(type_: Any) -> None:
    import msgspec

    with one_at_a_time():
        msgspec.json.Decoder(type_)
