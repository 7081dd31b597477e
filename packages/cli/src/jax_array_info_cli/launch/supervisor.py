"""The launcher of a run and its supervisor, which leave no process of the program behind.

Two processes are above the program. The launcher, the process that the user started, forwards signals
and waits; its child, the supervisor, starts all processes and stops them together. If the launcher is
killed, a pipe to the supervisor closes, and the supervisor stops the run. If the supervisor is killed,
the launcher adopts its orphans and ends them.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import NamedTuple

from ..standard_streams import unwritable
from .channel import DUMP_STACKS, has_joined, read_stacks, send_job
from .jax_distributed import held_port
from .program import TIMED_OUT, Job, print_message, timed_out, worker_command
from .relay import ON_LINUX, STDERR, Ended, Event, Events, Relay, adopt_orphans, end_descendants

INTERRUPT_GRACE = 5.0
"""Seconds for the program's ``finally`` blocks after Ctrl-C."""

TERMINATE_GRACE = 3.0
"""Seconds between SIGTERM and SIGKILL."""

_JOIN_POLL = 1.0
"""Seconds between checks for waiting processes, after one has exited without joining."""


class Worker(NamedTuple):
    """A started process."""

    started: subprocess.Popen[bytes]
    channel: socket.socket


def supervise(job: Job, environment: Mapping[str, str], events: Events, terminal_group: int) -> int:
    """Run a program until all its processes have exited, and return the exit code of the command.

    Args:
        job: The program and its options.
        environment: Environment variables of its processes.
        events: Queue to which the signal handlers add signals.
        terminal_group: The process group that receives Ctrl-C from a terminal. A program in one process
            belongs to it, so it can read from the terminal.
    """
    adopt_orphans()
    relay = Relay(job.processes, events)
    if job.processes > 1:
        environment = {**environment, **_for_several(relay.prefix_width, environment)}
    with held_port() as port:
        workers = []
        for process in range(job.processes):
            worker = _start(job, process, port, environment, terminal_group)
            workers.append(worker)
            relay.start(process, *worker)
        code, message = _outcome(job, workers, events, relay, terminal_group)
        end_descendants(TERMINATE_GRACE)
    # Wait for a slow reader such as a pager as long as needed, except after a failure.
    relay.finish(TERMINATE_GRACE if code else None)
    if message:
        print_message(message)
    return code


def exit_code(code: int) -> int:
    """Return an exit code as shells report it: 128 + n if signal n killed the process."""
    return 128 - code if code < 0 else code


def _start(job: Job, process: int, port: int, environment: Mapping[str, str], terminal_group: int) -> Worker:
    """Start one process. If there are several, their output goes to pipes."""
    several = job.processes > 1
    channel, worker_end = socket.socketpair()
    with worker_end:
        started = subprocess.Popen(
            worker_command(job.argv, worker_end.fileno(), process, port),
            env=environment,
            stdin=subprocess.DEVNULL if several else None,
            stdout=subprocess.PIPE if several else None,
            stderr=subprocess.PIPE if several else None,
            start_new_session=several,
            process_group=None if several else terminal_group,
            pass_fds=[worker_end.fileno()],
        )
    send_job(channel, job)
    return Worker(started, channel)


def _for_several(prefix_width: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Return additional environment variables for several processes: width, colors and proxies."""
    added = {"COLUMNS": str(max(shutil.get_terminal_size().columns - prefix_width, 1))}
    streams = (sys.stdout, sys.stderr)
    terminal = all(stream and stream.isatty() for stream in streams) and environment.get("TERM") != "dumb"
    if terminal and not environment.get("NO_COLOR"):
        # Allow colors, but no animations: those move the cursor between lines.
        added |= {name: environment.get(name, value) for name, value in _COLORS.items()}
    if _PROXIES & {name.lower() for name in environment}:
        # gRPC would connect through the proxy to processes on this machine.
        for name in ("no_proxy", "NO_PROXY"):
            added[name] = ",".join(filter(None, (environment.get(name), "127.0.0.1")))
    return added


_COLORS = {"FORCE_COLOR": "1", "TTY_INTERACTIVE": "0"}
_PROXIES = {"http_proxy", "https_proxy", "grpc_proxy", "all_proxy"}


def _outcome(
    job: Job, workers: Sequence[Worker], events: Events, relay: Relay, terminal_group: int
) -> tuple[int, str | None]:
    """Wait for the first failure or the last success.

    Returns:
        The exit code of the command, and a message for stderr, if any.
    """
    deadline = math.inf if job.timeout is None else time.monotonic() + job.timeout
    every = range(job.processes)
    running = set(every)
    while running:
        gone = [process for process in every if process not in running]
        absent = [process for process in gone if not has_joined(workers[process].channel)]
        waiting = [process for process in running if absent and has_joined(workers[process].channel)]
        if waiting:
            relay.forward_only(every)
            return 1, _never_joined(job, absent[0], waiting[0])
        event = _next(events, min(deadline, time.monotonic() + _JOIN_POLL) if absent else deadline, relay)
        match event:
            case None if time.monotonic() >= deadline:
                _show_stacks(workers, relay)
                relay.forward_only([])
                return TIMED_OUT, timed_out(job.timeout)
            case Ended(process, 0):
                running.remove(process)
            case Ended(process, code):
                return exit_code(code), _failure(job, process, code)
            case OSError():
                problem = unwritable(event)
                return 1 if problem else 128 + signal.SIGPIPE, problem
            case signal.SIGINT:
                # A single process on a terminal receives Ctrl-C itself, and a debugger may continue after it.
                if job.processes > 1 or not _in_foreground(terminal_group):
                    relay.forward_only(every)
                    _interrupt(workers)
                    _wait_for_exits(len(running), events, relay)
                    return 128 + signal.SIGINT, None
            case signal.Signals():
                relay.forward_only([])
                return 128 + event, None
    return 0, None


def _next(events: Events, deadline: float, relay: Relay) -> Event | None:
    """Return the next event, or None at the deadline."""
    with contextlib.suppress(queue.Empty):
        while True:
            left = None if deadline == math.inf else max(deadline - time.monotonic(), 0)
            event = events.get(timeout=left)
            if event is not signal.SIGCHLD:
                return event
            relay.exits.reap()
    return None


def _failure(job: Job, process: int, code: int) -> str | None:
    """Return the message for a failed process, or None if the program's own traceback is enough."""
    name = f"process {process} of {job.processes}" if job.processes > 1 else "the program"
    if code < 0:
        names = {number.value: number.name for number in signal.Signals}
        killed = f"{name} was killed by {names.get(-code, f'signal {-code}')}"
        return None if code == -signal.SIGINT else killed
    return f"{name} failed with exit code {code}" if job.processes > 1 else None


def _never_joined(job: Job, absent: int, waiting: int) -> str:
    """Return the message for a process that waits for one that has exited."""
    return (
        f"process {absent} of {job.processes} exited without importing jax, but process {waiting} waits for"
        " it. Import jax in every process or in none."
    )


def _show_stacks(workers: Sequence[Worker], relay: Relay) -> None:
    """Print the stacks of each process on stderr, one process after another."""
    for worker in workers:
        worker.started.send_signal(DUMP_STACKS)
    deadline = time.monotonic() + TERMINATE_GRACE
    for process, worker in enumerate(workers):
        with contextlib.suppress(OSError):  # stderr may be closed
            relay.write(process, read_stacks(worker.channel, deadline), STDERR)


def _in_foreground(group: int) -> bool:
    """Return whether a process group is the terminal's foreground group, which receives Ctrl-C."""
    with contextlib.suppress(OSError), open("/dev/tty") as terminal:
        return os.tcgetpgrp(terminal.fileno()) == group
    return False


def _interrupt(workers: Sequence[Worker]) -> None:
    """Send SIGINT: to a single process alone, to several with their process groups."""
    send = os.kill if len(workers) == 1 else os.killpg
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            send(worker.started.pid, signal.SIGINT)


def _wait_for_exits(running: int, events: Events, relay: Relay) -> None:
    """Wait ``INTERRUPT_GRACE`` seconds for all processes to exit. Another signal ends the wait."""
    deadline = time.monotonic() + INTERRUPT_GRACE
    while running and (event := _next(events, deadline, relay)) is not None:
        if isinstance(event, signal.Signals):
            return
        running -= isinstance(event, Ended)


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
