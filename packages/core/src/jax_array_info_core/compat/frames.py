"""Stack frames of this thread and of other threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import FrameType


def stack(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and the frames of its callers, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def frames() -> Iterator[FrameType]:
    """Yield the frames of the calling function's callers, innermost first.

    The calling function's own frame is excluded. A frame that refers to itself would keep all its callers'
    variables alive, the user's arrays among them, until the garbage collector runs.
    """
    return stack(sys._getframe(2))


def caller_outside(prefix: str) -> tuple[str, int | None, int] | None:
    """Return the innermost call in a module whose name does not start with a prefix.

    It is the file, the line, and the place in the bytecode, which differs for two calls on one line.
    """
    for frame in frames():
        if not str(frame.f_globals.get("__name__")).startswith(prefix):
            return frame.f_code.co_filename, frame.f_lineno, frame.f_lasti
    return None


def stacks_of_other_threads() -> Iterator[tuple[int, Iterator[FrameType]]]:
    """Yield the id and the stack of each other thread; in JAX 0.10, XLA calls back in its own thread."""
    current = sys._current_frames()
    # A frame that is in one of its own variables refers to itself.
    current.pop(threading.get_ident(), None)
    while current:
        thread, frame = current.popitem()
        yield thread, stack(frame)


def is_foreign_thread() -> bool:
    """Return whether the current thread was started outside Python."""
    return isinstance(threading.current_thread(), threading._DummyThread)
