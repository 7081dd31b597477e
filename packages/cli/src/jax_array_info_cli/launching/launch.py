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
from .supervision import TERMINATE_GRACE, Event, Run, Signalled, exit_code, say, supervise

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def launch(run: Run, environment: Mapping[str, str]) -> int:
    """Run a program and return the exit code of the command.

    Args:
        run: The program, and how to run it.
        environment: What its processes see as theirs.
    """
    if not ON_LINUX:
        say("outside Linux, what the program starts and leaves behind may outlive it")
    # nohup, and shells that start something in the background, ignore some on purpose.
    numbers = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    adopt_orphans()
    launcher_end, supervisor_end = os.pipe()
    supervisor = os.fork()
    if supervisor == 0:
        os.close(supervisor_end)
        _be_supervisor(run, environment, numbers, launcher_end)
    os.close(launcher_end)

    def forward(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(supervisor, number)

    for number in numbers:
        signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
    _, status = os.waitpid(supervisor, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        end_descendants(TERMINATE_GRACE)
    return exit_code(code)


def _be_supervisor(
    run: Run, environment: Mapping[str, str], numbers: list[signal.Signals], launcher: int
) -> None:
    """Supervise the run and exit; does not return.

    In a process group of its own, it lives on when the launcher's is killed as a whole.
    """
    code = 1
    try:
        terminal_group = os.getpgrp()
        os.setpgid(0, 0)
        # What is in the background may be forbidden to write to the terminal.
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        for number in numbers:
            signal.signal(number, lambda number, frame: events.put(Signalled(number)))
        threading.Thread(target=_watch, args=(launcher, events), daemon=True).start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
        code = supervise(run, environment, events, terminal_group)
    except BaseException:
        traceback.print_exc()
        end_descendants(TERMINATE_GRACE)
    finally:
        os._exit(code)


def _watch(launcher: int, events: queue.SimpleQueue[Event]) -> None:
    """Wait until the pipe from the launcher closes, which it does when the launcher is gone."""
    os.read(launcher, 1)
    events.put(Signalled(signal.SIGTERM))
