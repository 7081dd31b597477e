"""A run without simulation: the process of the command becomes the program, and nothing else is started."""

from __future__ import annotations

import _thread
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from typing import NoReturn

from .program import LAUNCHING, STDERR, TIMED_OUT, Job, print_message, timed_out, worker_command

_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")
_GRACE = 3
"""Seconds until C ends a program whose Python does not run."""


def become(job: Job) -> NoReturn:
    """Replace this process by a new Python, which runs the program.

    A pipe carries the job, so that neither the environment nor the arguments differ from Python's.

    Raises:
        OSError: If there are too many open files or arguments.
    """
    reading, writing = os.pipe()
    with open(writing, "wb") as file:
        pickle.dump(replace(job, argv=()), file)  # the arguments could be more than fits into a pipe
    os.set_inheritable(reading, True)
    command = worker_command(job.argv, reading, 0, 0)
    environment = dict(os.environ)
    chosen = environment.get("LC_ALL") or environment.get("PYTHONUTF8")
    if sys.flags.utf8_mode and not chosen and environment.get("LC_CTYPE") in _COERCED:
        del environment["LC_CTYPE"]  # Python has set it, because the locale is C, and does so again
    os.execve(command[0], command, environment)  # noqa: S606, the program that the user asked for


def end_after(seconds: float) -> None:
    """Print the stacks of this process after some seconds and end it with ``TIMED_OUT``.

    If Python does not run then, because C code keeps its lock, ``faulthandler`` prints them, and the exit
    code is 1.
    """
    import faulthandler

    # Not a thread of ``threading``, where the program would find it.
    _thread.start_new_thread(_end_after, (seconds,))
    faulthandler.dump_traceback_later(seconds + _GRACE, exit=True, file=STDERR)


def _end_after(seconds: float) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    time.sleep(seconds)
    try:
        os.write(STDERR, "".join(_stacks()).encode(errors="backslashreplace"))
        print_message(timed_out(seconds))
    finally:
        os._exit(TIMED_OUT)


def _stacks() -> Iterator[str]:
    """Yield the lines of the stack of each other thread, without the frames that led to the program."""
    for thread, frame in sys._current_frames().items():
        stack = traceback.extract_stack(frame)
        frames = [found for found in stack if not found.filename.startswith(LAUNCHING)]
        if frames:  # not this thread
            yield f"Thread {thread:#x} (most recent call last):\n"
            yield from traceback.format_list(frames)
