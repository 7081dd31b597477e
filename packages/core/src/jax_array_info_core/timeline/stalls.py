"""Stalls: steps that last long, and the stacks of the threads meanwhile."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from types import CodeType
from typing import NamedTuple, TypeAlias

from ..compat.jax_stack import stack
from ..compat.public_calls import public_call
from ..origins.origins import Owner, UserLines, cell_number, files_of
from ..reports.origin import SourceLine
from ..reports.record import MOST_FRAMES, MOST_THREADS, RecordStall, RecordThread
from ..text import plain_text
from .segments import encoded

LEAST = 60.0
"""Least seconds of a stall."""
_TIMES_MEDIAN = 10
_LEAST_STEPS = 3
"""Number of steps that tell their median time."""
MOST_MOVES = 100
"""Number of last steps whose median time is that of a step."""
_MOST_OPEN = 100
"""Number of marks around each other."""
MOST_NBYTES = 12 * 2**10
"""Bytes of a line: it is never removed from its file."""
_MOST_READ, _DEEPEST = 64, 1000
"""Number of threads that are looked at, and of frames of the one that names the steps."""
_LONGEST_NAME = 200
_SHELLS = ("IPython", "ipykernel", "traitlets", "tornado", "zmq", "nest_asyncio")
"""Modules that wait for the next input: then no code of the user runs."""

Moves: TypeAlias = "deque[tuple[float, int]]"
"""Last times of ``time.monotonic`` at which the step changed, each with the id of the thread."""


class Watch:
    """Watch for steps of a program that last long. Used by the thread of the recorder."""

    def __init__(self, step: Callable[[], int | None], moves: Moves) -> None:
        """Begin to watch.

        Args:
            step: Returns the last step.
            moves: Changes of the step, which other threads append.
        """
        self._step, self._moves = step, moves
        self._open: list[tuple[float, str]] = []
        self._left: int | None = None
        self._written = 0.0
        self.look_at = time.monotonic() + LEAST
        """Time of ``time.monotonic`` of the next look."""

    def begin(self, time: float, name: str) -> None:
        """Note that a mark has begun."""
        self._open = [*self._open, (time, name)][-_MOST_OPEN:]

    def end(self, begin: float, step: int | None) -> None:
        """Note that a mark has ended, with those in it. One with several steps had the loop of the program.

        Args:
            begin: Time of its begin.
            step: Last step before its end.
        """
        self._open = [one for one in self._open if one[0] < begin]
        start = time.monotonic() - (time.time() - begin)
        if sum(moved > start for moved, _ in [*self._moves]) > 1:
            self._left = step

    def stall(self, now: float) -> RecordStall | None:
        """Return the stall that lasts now, once; None without one. Set the time of the next look.

        A process that has left the mark of its loop, and is in no other one, does not stall.

        Args:
            now: Time of ``time.monotonic``.
        """
        # After a pause of the whole process, the stacks are not those of the stall.
        is_late = now - self.look_at > LEAST / 2
        self.look_at = now + LEAST
        step, moves = self._step(), [*self._moves]  # a step that ends in between has moved
        if step is None or len(moves) < _LEAST_STEPS:
            return None
        moved, thread = moves[-1]
        due = moved + max(LEAST, _TIMES_MEDIAN * _median([b - a for (a, _), (b, _) in pairwise(moves)]))
        if now < due:
            self.look_at = min(due, self.look_at)
        elif is_late:
            self.look_at = now + LEAST / 10
        elif moved > self._written and (self._open or self._left != step):
            found = _stall(thread, step, self._open[-1][1] if self._open else None, now - moved)
            self._written = moved if found else self._written
            return found
        return None


def _median(values: Sequence[float]) -> float:
    """Return the median. The module ``statistics`` takes 5 ms to import."""
    ordered, middle = sorted(values), len(values) // 2
    return (ordered[middle] + ordered[-1 - middle]) / 2


class _Frame(NamedTuple):
    code: CodeType
    line: int
    module: str


def _stacks(stepper: int) -> tuple[dict[int, list[_Frame]], int]:
    """Return the stacks of the other threads by their ids, and the number of threads that are left out.

    That of the thread that names the steps comes first, else that of the main thread. No frame is held, so
    that nothing in one is kept alive.
    """
    current = sys._current_frames()
    del current[threading.get_ident()]  # a frame that is in one of its own variables refers to itself
    main = threading.main_thread().ident
    order = sorted(current, key=lambda thread: (thread != stepper, thread != main))
    found = {
        thread: [
            _Frame(frame.f_code, frame.f_lineno or 0, plain_text(dict.get(frame.f_globals, "__name__")))
            for frame in islice(stack(current.pop(thread)), MOST_FRAMES + 1 if number else _DEEPEST)
        ]
        for number, thread in enumerate(order[:_MOST_READ])
    }
    return found, len(current)


def _stall(stepper: int, step: int, mark: str | None, seconds: float) -> RecordStall | None:
    """Return the line of a stall; None if no code of the user runs in its thread."""
    stacks, left_out = _stacks(stepper)
    now, lines, is_shell = time.time(), UserLines(), files_of(_SHELLS)
    frames = next(iter(stacks.values()), [])
    owners = [lines.owner(frame.code.co_filename) for frame in frames]
    owner = min(owners, default=Owner.MACHINERY)
    place = owners.index(owner) if owners else 0
    if owner > Owner.PACKAGE or is_shell(frames[place].code.co_filename):
        return None
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    threads: dict[tuple[SourceLine, ...], RecordThread] = {}
    for thread, found in stacks.items():
        shown = tuple(map(_line, found[:MOST_FRAMES]))
        name = _short(names.get(thread, f"thread {thread}"))
        one = threads.get(shown) or RecordThread(
            name=name, count=0, frames=shown, is_cut=len(found) > MOST_FRAMES
        )
        threads[shown] = replace(one, count=one.count + 1)
    kept = [*threads.values()]
    return _fitting(
        RecordStall(
            time=round(now, 6),
            since=round(now - seconds, 6),
            step=step,
            mark=mark,
            origin=_line(frames[place]),
            waits_in=_call(frames[:place]),
            threads=tuple(kept[:MOST_THREADS]),
            left_out=left_out + sum(one.count for one in kept[MOST_THREADS:]),
        )
    )


def _line(frame: _Frame) -> SourceLine:
    file = plain_text(frame.code.co_filename)
    name = file if len(file) <= _LONGEST_NAME else f"…{file[1 - _LONGEST_NAME :]}"
    return SourceLine(file=name, line=frame.line, function=_short(frame.code.co_name), cell=cell_number(file))


def _short(name: str) -> str:
    return plain_text(name)[:_LONGEST_NAME]


def _call(frames: Sequence[_Frame]) -> str | None:
    """Return the call that a line waits in: the outermost with a public name in JAX, else the outermost.

    Args:
        frames: The frames that the line called, innermost first.
    """
    names = (public_call(frame.code) for frame in reversed(frames))
    found = next(filter(None, names), None)
    if found is None and frames and frames[-1].module.partition(".")[0] not in ("jax", "jaxlib"):
        found = f"{frames[-1].module}.{frames[-1].code.co_qualname}"
    return found and _short(found)


def _fitting(stall: RecordStall) -> RecordStall:
    """Return a line of at most ``MOST_NBYTES``: without outer frames, then without threads."""
    while len(encoded(stall)) > MOST_NBYTES and stall.threads:
        deepest = max(len(one.frames) for one in stall.threads)
        depth = max(deepest // 2, 1)
        kept = stall.threads if deepest > 1 else stall.threads[: len(stall.threads) // 2]
        threads = (
            replace(one, frames=one.frames[:depth], is_cut=one.is_cut or len(one.frames) > depth)
            for one in kept
        )
        left_out = stall.left_out + sum(one.count for one in stall.threads[len(kept) :])
        stall = replace(stall, threads=tuple(threads), left_out=left_out)
    return stall
