"""The launcher of a run, which leaves no process of the program behind, however the run ends.

Two processes are above the program. The launcher, the process that the user started, forwards signals
and waits; its child, the supervisor, does everything else. If the launcher is killed, a pipe to the
supervisor closes, and the supervisor stops the run. If the supervisor is killed, the launcher adopts
its orphans and ends them.
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

from .program import Job
from .relay import ON_LINUX, Events, adopt_orphans, end_descendants
from .supervisor import TERMINATE_GRACE, exit_code, print_message, supervise

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def launch(job: Job, environment: Mapping[str, str]) -> int:
    """Run a program and return the exit code of the command.

    Args:
        job: The program and its options.
        environment: Environment variables of its processes.
    """
    if not ON_LINUX:
        print_message("outside Linux, processes that the program leaves behind may keep running")
    # nohup and background jobs of a shell ignore some signals on purpose.
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
    """Supervise the run, then exit without returning.

    The supervisor has its own process group, so it survives a kill of the launcher's group.
    """
    code = 1
    try:
        events: Events = queue.SimpleQueue()
        for number in (*numbers, signal.SIGCHLD):
            signal.signal(number, lambda number, frame: events.put(signal.Signals(number)))
        terminal_group = os.getpgrp()
        os.setpgid(0, 0)
        # A background process that writes to the terminal may be stopped by SIGTTOU.
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        threading.Thread(target=_watch, args=(launcher, events), daemon=True).start()
        code = supervise(job, environment, events, terminal_group)
    except OSError as error:  # such as no more open files or processes
        advice = "Start fewer processes, or raise the limit with ulimit"
        print_message(f"the program cannot be started: {error.strerror}. {advice}")
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _watch(launcher: int, events: Events) -> None:
    """Wait until the pipe from the launcher closes because the launcher has exited."""
    os.read(launcher, 1)
    events.put(signal.SIGTERM)
