"""Frames of the functions that run, in this thread and in others."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import FrameType


def stack(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and those of its callers, the innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def frames() -> Iterator[FrameType]:
    """Yield the frames of the callers of the function that asks, the innermost first.

    Its own is left out: held by that function, it would hold itself, and with it all that the callers
    have, the user's arrays too, until the garbage collector runs.
    """
    return stack(sys._getframe(2))


def stacks_of_other_threads() -> Iterator[tuple[int, Iterator[FrameType]]]:
    """Yield the other threads, each with its stack: on jax 0.10 XLA calls back in one of its own."""
    current = sys._current_frames()
    # The own frame, held by a variable of its own, would hold itself.
    current.pop(threading.get_ident(), None)
    while current:
        thread, frame = current.popitem()
        yield thread, stack(frame)


def is_foreign_thread() -> bool:
    """Return whether the caller runs in a thread that Python has not started."""
    return isinstance(threading.current_thread(), threading._DummyThread)
