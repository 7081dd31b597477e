"""What the variables of functions hold, read so that nothing is kept alive by the reading."""

from __future__ import annotations

import inspect
import sys
import threading
from types import FrameType
from typing import Any


def frame_locals(frame: FrameType) -> list[tuple[str, Any]]:
    """Return the names and values of a frame's variables, so that the reading keeps nothing alive.

    Without those that Python makes for itself, such as ``.0`` for what a comprehension loops over.

    Up to Python 3.12 a function's frame answers with a dict of copies that it keeps, and with it all that
    is in it, until the function returns: unless somebody else has that dict too, it is emptied again.
    """
    return [(name, value) for name, value in _read_locals(frame) if not name.startswith(".")]


def _read_locals(frame: FrameType) -> list[tuple[str, Any]]:
    names: Any = frame.f_locals
    if isinstance(names, dict):
        held = copied_items(names)
        is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED
        # The frame, the variable here and the argument: nobody else has it.
        if is_function and sys.getrefcount(names) <= 3 and not _is_traced(frame):
            names.clear()
        return held
    # What is neither dict nor proxy was given to exec, and may run the user's code when asked.
    return [*names.items()] if type(names).__name__ == "FrameLocalsProxy" else []


def _is_traced(frame: FrameType) -> bool:
    """Return whether a function of Python traces: what it leaves in that dict becomes the variables."""
    tracers = (frame.f_trace, sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile())
    return any(tracer is not None for tracer in tracers)


def copied_items(mapping: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """Return keys and values of a dict of any subclass, which another thread may be changing."""
    for _ in range(10):
        try:
            return list(dict.items(mapping))
        except RuntimeError:  # it has changed while it was read
            continue
    return []
