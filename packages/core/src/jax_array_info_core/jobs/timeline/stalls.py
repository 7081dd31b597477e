"""Stalls: steps that last long, and the stacks of the threads meanwhile."""

from __future__ import annotations

import ast
import sys
import threading
import time as clock
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import CodeType, FrameType, ModuleType
from typing import TypeAlias

import numpy as np

from ...arrays.holders.links import frame_locals
from ...arrays.origins.origins import Owner, UserLines, cell_number, files_of
from ...compat.jax_stack import stack
from ...compat.jitted import jitted_types
from ...facts.reports.origin import SourceLine
from ...facts.reports.record import JITTED, MOST_FRAMES, MOST_THREADS, RecordStall, RecordThread
from ...programs.raised.source import MISSING, Place, source_of

LEAST = 60.0
"""Least seconds of a stall."""
_TIMES_MEDIAN, _LEAST_STEPS, MOST_MOVES = 10, 3, 100
"""A stall is so many times longer than the median of the last steps: of so many at least, and at most."""
_MOST_OPEN, _DEEPEST, _LONGEST_NAME = 100, 1000, 120
"""Number of marks around each other, frames that are looked at, and characters of a name."""
_SHELLS = ("IPython", "ipykernel", "traitlets", "tornado", "zmq", "nest_asyncio")
"""Modules that wait for the next input: then no code of the user runs."""
_LOOPS = (
    *("asyncio", "anyio", "curio", "gevent", "trio", "twisted", "uvloop"),
    *("cherrypy", "cheroot", "grpc", "gunicorn", "hypercorn", "uvicorn", "waitress", "werkzeug"),
    *("cmd", "code", "pdb", "http", "socketserver", "wsgiref"),
)
"""Modules of event loops, servers and prompts: a main thread that waits in one is as it should be."""
_PROMPTS = ("breakpoint", "input", "pause", "readline", "sigwait", "sigwaitinfo")
"""Functions without a frame that wait for a user or for a signal."""
_COMPILATION = "the compilation of a program"
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
    "compile_or_get_cached": _COMPILATION,
    "backend_compile": _COMPILATION,
    "backend_compile_and_load": _COMPILATION,
}
"""Functions of JAX that may wait, as a user names them. The methods of an array have their own names."""
_OF_ARRAYS = {
    "array": "jax.Array.__array__",
    "asarray": "jax.Array.__array__",
    "block_until_ready": "jax.block_until_ready",
    "bool": "jax.Array.__bool__",
    "device_get": "jax.device_get",
    "float": "jax.Array.__float__",
    "int": "jax.Array.__int__",
    "item": "jax.Array.item",
    "tolist": "jax.Array.tolist",
}
"""Functions that wait for an array, by their name in the expression: they may have no frame of Python."""

Moves: TypeAlias = "deque[tuple[float, int]]"
"""Last times of ``time.monotonic`` at which the step changed, each with the id of the thread."""
_Frame: TypeAlias = tuple[CodeType, int, str]
"""Code, line and module."""


@dataclass(slots=True)
class _Rest:
    """What the last looks have found of the main thread. Times are of ``time.monotonic``."""

    place: int = 0
    sleeps: bytes | None = None
    since: float = 0.0
    """Time of the first look that found it there."""

    asleep: float = 0.0
    """Time of the first look since which it has not run."""

    wakes: int = 0
    """Number of looks in a row that found that it had run since the last."""

    looked: set[bool] = field(default_factory=set)
    """Whether its stack was read because it sleeps, and because it was there for long."""

    told: RecordStall | None = None


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
        self._rest, self._ended = _Rest(), 0
        self.look_at = clock.monotonic() + LEAST / 10
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

        Before the third step, it is a main thread that does not run, and the end of that. A program that has
        left the mark around its loop, and is in no other one, does not stall.

        Args:
            now: Time of ``time.monotonic``.
        """
        # After a pause of the whole process, the stacks are not those of the stall.
        is_late = now - self.look_at > LEAST / 2
        self.look_at = now + LEAST
        step, moves = self._step(), [*self._moves]  # in this order: a step that ends in between has moved
        if step is None or len(moves) < _LEAST_STEPS:
            self.look_at = now + LEAST / 10
            return self._resting(step, now)
        moved, stepper = moves[-1]
        median = float(np.median(np.diff([time for time, _ in moves])))
        due = moved + max(LEAST, _TIMES_MEDIAN * median)
        if now < due or is_late:
            self.look_at = min(due if due > now else now + LEAST / 10, self.look_at)
        elif moved > self._written and (self._open or self._left != step):
            self._written = moved
            return _stall(stepper, step, self._open[-1][1] if self._open else None, now - moved)
        return None

    def _resting(self, step: int | None, now: float) -> RecordStall | None:
        """Return where the main thread has not run for a while, once, then the end of that; else None.

        One that waits for devices wakes now and then. It is told if each look has found it there, which says
        nothing alone: the place may be a loop.
        """
        main, rest = threading.main_thread(), self._rest
        place, sleeps = _place(main.ident), _sleeps(main.native_id)
        is_woken = sleeps is None or sleeps != rest.sleeps
        rest.sleeps, rest.wakes = sleeps, rest.wakes + 1 if is_woken else 0
        # A signal wakes a thread once.
        if place != rest.place or (rest.told and rest.wakes > 1 and not rest.told.waits_for_devices):
            self._rest = _Rest(place, sleeps, now, now)
            if rest.told is None:
                return None
            self._ended += 1
            time = round(clock.time(), 6)
            return RecordStall(time=time, since=time, step=step, is_over=True)
        if is_woken:
            rest.asleep = now
            rest.looked.discard(True)
        is_asleep = now - rest.asleep >= LEAST
        since = rest.asleep if is_asleep else rest.since
        is_due = is_asleep or now - since >= LEAST * (1 + self._ended)
        if is_asleep in rest.looked or not is_due:
            return None
        rest.looked.add(is_asleep)
        mark = self._open[-1][1] if self._open else None
        found = _stall(main.ident or 0, step, mark, now - since, has_steps=False)
        if found is None or not (is_asleep or found.waits_for_devices):
            return None
        rest.told = found
        return found


def _place(thread: int | None) -> int:
    """Return a number that tells where a thread is: the instruction of each of its frames."""
    frames = islice(stack(sys._current_frames().get(thread or 0)), _DEEPEST)
    return hash(tuple((id(frame.f_code), frame.f_lasti) for frame in frames))


def _sleeps(thread: int | None) -> bytes | None:
    """Return how often a thread has been put to sleep; None if it runs, or where that is not known.

    The same number twice means that it has not run between.

    Args:
        thread: Its number in the operating system.
    """
    try:
        with open(f"/proc/self/task/{thread}/status", "rb") as file:
            state, _, numbers = file.read().partition(b"\nvoluntary_ctxt_switches:")
    except OSError:
        return None
    return (numbers or None) if b"\nState:\tS" in state or b"\nState:\tD" in state else None


def _stall(
    stepper: int, step: int | None, mark: str | None, seconds: float, *, has_steps: bool = True
) -> RecordStall | None:
    """Return a stall with the stacks of the other threads; None if no code of the user runs in its thread.

    No frame is held, so that nothing in one is kept alive.

    Args:
        stepper: Id of the thread that named the step. If it has ended, the main thread stands for it.
        step: The step; None before the first.
        mark: The mark that the program is in.
        seconds: Duration of the step so far.
        has_steps: Whether steps tell that it stalls. Else, loops, servers and compilations do not.
    """
    now, current, main = clock.time(), sys._current_frames(), threading.main_thread().ident
    del current[threading.get_ident()]  # a frame that is in one of its own variables refers to itself
    order = sorted(current, key=lambda thread: (thread != stepper, thread != main))
    wanted = _callee(current[order[0]])
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
    call = (
        _call(frames[:place])
        if place
        else _OF_ARRAYS.get(wanted, wanted if wanted.startswith(JITTED) else None)
    )
    if not has_steps and (
        wanted in _PROMPTS
        or call == _COMPILATION
        or any(map(files_of(_LOOPS), (code.co_filename for code, *_ in frames[:place])))
    ):
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
        waits_in=call,
        threads=tuple(threads),
    )


def _call_without_frame(callee: str) -> str | None:
    """Return the call of JAX by the name of the function; None if it is unknown."""
    return callee if callee.startswith(JITTED) else _OF_ARRAYS.get(callee)


def _callee(frame: FrameType) -> str:
    """Return the name of the function that the instruction of a frame calls, by its expression.

    It is empty for other expressions, and where the operand is known not to be an array of JAX.
    """
    code, variables = frame.f_code, frame.f_globals
    source = source_of(code.co_filename, variables)
    position = next(islice(code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
    node = None if source is None else source.at(position, frame.f_lineno)
    if source is None or not isinstance(node, ast.Call):
        return ""
    names = {**variables, **dict(frame_locals(frame, is_watched=True) or ())}
    place = Place(file=code.co_filename, function=code.co_name, source=source, node=node, names=names)
    function, operands = node.func, node.args
    if type(place.value(function)) in jitted_types():
        return f"{JITTED}{place.text(function)}"[:_LONGEST_NAME]
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if isinstance(function, ast.Attribute) and not isinstance(place.value(function.value), ModuleType):
        operands = [function.value]
    operand = place.value(operands[0]) if operands and name in _OF_ARRAYS else MISSING
    return name if operand is MISSING or type(operand).__module__.startswith("jax") else ""


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
