"""Pauses of Python's garbage collector."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Return a context in which Python collects no garbage, for work that makes many objects and no cycles.

    A collector that is disabled before stays so. Otherwise it is enabled after the context, also if this ends
    with an error or an interrupt.
    """
    was_enabled = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if was_enabled:
            gc.enable()
