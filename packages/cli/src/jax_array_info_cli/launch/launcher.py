"""Runs a program so that nothing of it is left when the launcher ends, however that happens.

Two processes stand over it. The launcher, which the user sees, passes signals on and waits; the
supervisor below it does everything else. When the launcher is killed, the supervisor learns that from
a pipe and ends the run; when the supervisor is killed, its orphans belong to the launcher, who ends
them.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
import traceback
from collections.abc import Mapping
from types import FrameType

from .descendants import ON_LINUX, adopt_orphans, end_descendants
from .job import Job
from .relay import Events
from .supervisor import TERMINATE_GRACE, exit_code, say, supervise

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def launch(job: Job, environment: Mapping[str, str]) -> int:
    """Run a program and return the exit code of the command.

    Args:
        job: The program, and how to run it.
        environment: What its processes see as theirs.
    """
    if not ON_LINUX:
        say("outside Linux, what the program starts and leaves behind may outlive it")
    # nohup, and shells that start something in the background, ignore some on purpose.
    numbers = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    adopt_orphans()
    launcher_end, supervisor_end = os.pipe()
    supervisor = os.fork()
    if supervisor == 0:
        os.close(supervisor_end)
        _be_supervisor(job, environment, numbers, launcher_end)

    def forward(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(supervisor, number)

    for number in numbers:
        signal.signal(number, forward)
    _, status = os.waitpid(supervisor, 0)
    end_descendants(TERMINATE_GRACE)
    return exit_code(os.waitstatus_to_exitcode(status))


def _be_supervisor(
    job: Job, environment: Mapping[str, str], numbers: list[signal.Signals], launcher: int
) -> None:
    """Supervise the run and exit; does not return.

    In a process group of its own, it lives on when the launcher's is killed as a whole.
    """
    code = 1
    try:
        events: Events = queue.SimpleQueue()
        for number in (*numbers, signal.SIGCHLD):
            signal.signal(number, lambda number, frame: events.put(signal.Signals(number)))
        terminal_group = os.getpgrp()
        os.setpgid(0, 0)
        # What is in the background may be forbidden to write to the terminal.
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        threading.Thread(target=_watch, args=(launcher, events), daemon=True).start()
        code = supervise(job, environment, events, terminal_group)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _watch(launcher: int, events: Events) -> None:
    """Wait until the pipe from the launcher closes, which it does when the launcher is gone."""
    os.read(launcher, 1)
    events.put(signal.SIGTERM)
