"""Stalls: steps that last long, and the stacks of the threads meanwhile."""

from __future__ import annotations

import sys
import threading
import time as clock
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from types import CodeType
from typing import TypeAlias

import numpy as np

from ...arrays.origins.origins import Owner, UserLines, cell_number, files_of
from ...compat.jax_stack import stack
from ...facts.reports.origin import SourceLine
from ...facts.reports.record import MOST_FRAMES, MOST_THREADS, RecordStall, RecordThread

LEAST = 60.0
"""Least seconds of a stall."""
_TIMES_MEDIAN, _LEAST_STEPS, MOST_MOVES = 10, 3, 100
"""A stall is so many times longer than the median of the last steps: of so many at least, and at most."""
_MOST_OPEN, _DEEPEST, _LONGEST_NAME = 100, 1000, 120
"""Number of marks around each other, frames that are looked at, and characters of a name."""
_SHELLS = ("IPython", "ipykernel", "traitlets", "tornado", "zmq", "nest_asyncio")
"""Modules that wait for the next input: then no code of the user runs."""
_CALLS = {
    "block_until_ready": "jax.block_until_ready",
    "device_get": "jax.device_get",
    "device_put": "jax.device_put",
    "effects_barrier": "jax.effects_barrier",
    "make_array_from_callback": "jax.make_array_from_callback",
    "make_array_from_process_local_data": "jax.make_array_from_process_local_data",
    "initialize": "jax.distributed.initialize",
    "shutdown": "jax.distributed.shutdown",
    "sync_global_devices": "multihost_utils.sync_global_devices",
    "broadcast_one_to_all": "multihost_utils.broadcast_one_to_all",
    "process_allgather": "multihost_utils.process_allgather",
    "assert_equal": "multihost_utils.assert_equal",
    "reached_preemption_sync_point": "multihost_utils.reached_preemption_sync_point",
    "compile_or_get_cached": "the compilation of a program",
    "backend_compile": "the compilation of a program",
    "backend_compile_and_load": "the compilation of a program",
}
"""Functions of JAX that may wait, as a user names them. The methods of an array have their own names."""

Moves: TypeAlias = "deque[tuple[float, int]]"
"""Last times of ``time.monotonic`` at which the step changed, each with the id of the thread."""
_Frame: TypeAlias = tuple[CodeType, int, str]
"""Code, line and module."""


class Watch:
    """Watch for steps of a program that last long. Used by the thread of the recorder.

    Args:
        step: Returns the last step.
        moves: Changes of the step, which other threads append.
    """

    def __init__(self, step: Callable[[], int | None], moves: Moves) -> None:
        self._step, self._moves = step, moves
        self._open: list[tuple[float, str]] = []
        self._left: int | None = None
        self._written = 0.0
        self.look_at = clock.monotonic() + LEAST
        """Time of ``time.monotonic`` of the next look."""

    def mark(self, time: float, name: str, step: int | None, begin: float | None) -> None:
        """Note that a mark has begun, or ended with those in it.

        One that had several steps was around the loop of the program.

        Args:
            time: Time of the begin or end.
            name: Name of the mark.
            step: Last step before it.
            begin: Time of the begin of a mark that ends; None for a begin.
        """
        if begin is None:
            self._open = [*self._open, (time, name)][-_MOST_OPEN:]
            return
        self._open = [mark for mark in self._open if mark[0] < begin]
        since = clock.monotonic() - (clock.time() - begin)
        if sum(moved > since for moved, _ in [*self._moves]) > 1:
            self._left = step

    def stall(self, now: float) -> RecordStall | None:
        """Return the stall that lasts now, once; None without one. Set the time of the next look.

        A program that has left the mark around its loop, and is in no other one, does not stall.

        Args:
            now: Time of ``time.monotonic``.
        """
        # After a pause of the whole process, the stacks are not those of the stall.
        is_late = now - self.look_at > LEAST / 2
        self.look_at = now + LEAST
        step, moves = self._step(), [*self._moves]  # in this order: a step that ends in between has moved
        if step is None or len(moves) < _LEAST_STEPS:
            return None
        moved, stepper = moves[-1]
        median = float(np.median(np.diff([time for time, _ in moves])))
        due = moved + max(LEAST, _TIMES_MEDIAN * median)
        if now < due or is_late:
            self.look_at = min(due if due > now else now + LEAST / 10, self.look_at)
        elif moved > self._written and (self._open or self._left != step):
            self._written = moved
            return _stall(stepper, step, self._open[-1][1] if self._open else None, now - moved)
        return None


def _stall(stepper: int, step: int, mark: str | None, seconds: float) -> RecordStall | None:
    """Return a stall with the stacks of the other threads; None if no code of the user runs in its thread.

    No frame is held, so that nothing in one is kept alive.

    Args:
        stepper: Id of the thread that named the step. If it has ended, the main thread stands for it.
        step: The step.
        mark: The mark that the program is in.
        seconds: Duration of the step so far.
    """
    now, current, main = clock.time(), sys._current_frames(), threading.main_thread().ident
    del current[threading.get_ident()]  # a frame that is in one of its own variables refers to itself
    order = sorted(current, key=lambda thread: (thread != stepper, thread != main))
    stacks: list[list[_Frame]] = [
        [
            (frame.f_code, frame.f_lineno or 0, str(dict.get(frame.f_globals, "__name__")))
            for frame in islice(stack(current.pop(thread)), MOST_FRAMES if number else _DEEPEST)
        ]
        for number, thread in enumerate(order)
    ]
    lines, frames = UserLines(), stacks[0]
    owners = [lines.owner(code.co_filename) for code, *_ in frames]
    place = owners.index(min(owners))
    if owners[place] > Owner.PACKAGE or files_of(_SHELLS)(frames[place][0].co_filename):
        return None
    names = {thread.ident: thread.name[:_LONGEST_NAME] for thread in threading.enumerate()}
    threads = (
        RecordThread(
            name=names.get(thread, f"thread {thread}"), frames=tuple(map(_line, stack[:MOST_FRAMES]))
        )
        for thread, stack in zip(order[:MOST_THREADS], stacks, strict=False)
    )
    return RecordStall(
        time=round(now, 6),
        since=round(now - seconds, 6),
        step=step,
        mark=mark,
        origin=_line(frames[place]),
        waits_in=_call(frames[:place]),
        threads=tuple(threads),
    )


def _line(frame: _Frame) -> SourceLine:
    file, function = frame[0].co_filename[-_LONGEST_NAME:], frame[0].co_name[:_LONGEST_NAME]
    return SourceLine(file=file, line=frame[1], function=function, cell=cell_number(frame[0].co_filename))


def _call(frames: Sequence[_Frame]) -> str | None:
    """Return the call that a line waits in: the outermost of JAX, else the outermost; None if it is unknown.

    Args:
        frames: The frames that the line called, innermost first.
    """
    calls = [(module, code.co_qualname) for code, _, module in reversed(frames)]
    texts = [
        name.replace("ArrayImpl", "jax.Array") if name.startswith("ArrayImpl.") else _CALLS.get(name)
        for module, name in calls
        if module.startswith("jax.")
    ]
    texts += [f"{module}.{name}"[:_LONGEST_NAME] for module, name in calls if not module.startswith("jax.")]
    return next(filter(None, texts), None)
