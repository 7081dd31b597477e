"""The launcher of a run, which leaves no process of the program behind, however the run ends.

Two processes are above the program. The launcher, the process that the user started, forwards signals
and waits; its child, the supervisor, does everything else. If the launcher is killed, a pipe to the
supervisor closes, and the supervisor stops the run. If the supervisor is killed, the launcher adopts
its orphans and ends them.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import pickle
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from ..standard_streams import unwritable
from .program import Job
from .relay import STDERR, STDOUT, Ended, Event, Events, Relay
from .worker import DUMP_STACKS, END_OF_STACKS, JOINS

INTERRUPT_GRACE = 5.0
"""Seconds for the program's ``finally`` blocks after Ctrl-C."""

TERMINATE_GRACE = 3.0
"""Seconds between SIGTERM and SIGKILL."""

TIMED_OUT = 124
"""Exit code after a timeout, as of the ``timeout`` command."""

_ON_LINUX = sys.platform == "linux"
_PR_SET_CHILD_SUBREAPER = 36
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_JOIN_POLL = 1.0
"""Seconds between checks for waiting processes, after one has exited without joining."""
_KILLED_WITHIN = 10.0
_CHUNK = 2**16
_POLL = 0.001
_OURS = tuple(f'  File "{file}'.encode() for file in (os.path.dirname(__file__) + os.sep, "<frozen runpy>"))


class Worker(NamedTuple):
    """A started process, and the socket over which it gets its job and returns its stacks."""

    started: subprocess.Popen[bytes]
    channel: socket.socket

    def has_joined(self) -> bool:
        """Return whether the process has begun to join the others."""
        with contextlib.suppress(OSError):  # it has written nothing yet
            return bool(self.channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        return False


def launch(job: Job, environment: Mapping[str, str]) -> int:
    """Run a program and return the exit code of the command.

    Args:
        job: The program and its options.
        environment: Environment variables of its processes.
    """
    if not _ON_LINUX:
        _print_message("outside Linux, processes that the program leaves behind may keep running")
    # nohup and background jobs of a shell ignore some signals on purpose.
    numbers = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    _adopt_orphans()
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
    _end_descendants(TERMINATE_GRACE)
    return _exit_code(os.waitstatus_to_exitcode(status))


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
        code = _supervise(job, environment, events, terminal_group)
    except OSError as error:  # such as no more open files or processes
        advice = "Start fewer processes, or raise the limit with ulimit"
        _print_message(f"the program cannot be started: {error.strerror}. {advice}")
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _watch(launcher: int, events: Events) -> None:
    """Wait until the pipe from the launcher closes because the launcher has exited."""
    os.read(launcher, 1)
    events.put(signal.SIGTERM)


def _supervise(job: Job, environment: Mapping[str, str], events: Events, terminal_group: int) -> int:
    """Run a program until all its processes have exited, and return the exit code of the command.

    Args:
        job: The program and its options.
        environment: Environment variables of its processes.
        events: Queue to which the signal handlers add signals.
        terminal_group: The process group that receives Ctrl-C from a terminal. A program in one process
            belongs to it, so it can read from the terminal.
    """
    _adopt_orphans()
    relay = Relay(job.processes, events)
    if job.processes > 1:
        environment = {**environment, **_for_several(len(relay.prefixes[0]), environment)}
    with held_port() as port:
        every = range(job.processes)
        workers = [_start(job, process, port, environment, terminal_group) for process in every]
        relay.running.update({worker.started.pid: process for process, worker in enumerate(workers)})
        for process, (started, _) in enumerate(workers if job.processes > 1 else ()):
            relay.forward(process, started.stdout, STDOUT)
            relay.forward(process, started.stderr, STDERR)
        code, message = _outcome(job, workers, events, relay, terminal_group)
        _end_descendants(TERMINATE_GRACE)
    # Wait for a slow reader such as a pager as long as needed, except after a failure.
    relay.finish(TERMINATE_GRACE if code else None)
    if message:
        _print_message(message)
    return code


def _print_message(message: str) -> None:
    """Print a message of ``jai-cli run`` on stderr."""
    print(f"jai-cli run: {message}", file=sys.stderr)


def _exit_code(code: int) -> int:
    """Return an exit code as shells report it: 128 + n if signal n killed the process."""
    return 128 - code if code < 0 else code


def _start(job: Job, process: int, port: int, environment: Mapping[str, str], terminal_group: int) -> Worker:
    """Start one process. If there are several, their output goes to pipes."""
    several = job.processes > 1
    channel, worker_end = socket.socketpair()
    with worker_end:
        numbers = map(str, (process, worker_end.fileno(), port))
        started = subprocess.Popen(
            # -P: run_as_main sets the first entry of the path. The arguments are there for `ps`.
            [sys.executable, "-P", "-m", "jax_array_info_cli.launch.worker", *numbers, *job.argv],
            env=environment,
            stdin=subprocess.DEVNULL if several else None,
            stdout=subprocess.PIPE if several else None,
            stderr=subprocess.PIPE if several else None,
            start_new_session=several,
            process_group=None if several else terminal_group,
            pass_fds=[worker_end.fileno()],
        )
    with contextlib.suppress(ConnectionError):  # it may have exited already
        channel.sendall(pickle.dumps(job))
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
        absent = [process for process in gone if not workers[process].has_joined()]
        waiting = [process for process in running if absent and workers[process].has_joined()]
        if waiting:
            relay.forward_only(every)
            return 1, (
                f"process {absent[0]} of {job.processes} exited without importing jax, but process"
                f" {waiting[0]} waits for it. Import jax in every process or in none."
            )
        event = _next(events, min(deadline, time.monotonic() + _JOIN_POLL) if absent else deadline, relay)
        match event:
            case None if time.monotonic() >= deadline:
                _show_stacks(workers, relay)
                relay.forward_only([])
                return TIMED_OUT, f"timed out after {job.timeout:g} s (--timeout)"
            case Ended(process, 0):
                running.remove(process)
            case Ended(process, code):
                return _exit_code(code), _failure(job, process, code)
            case OSError():
                problem = unwritable(event)
                return 1 if problem else 128 + signal.SIGPIPE, problem
            case signal.SIGINT:
                # A single process on a terminal receives Ctrl-C itself, and a debugger may continue after it.
                if job.processes > 1 or not _in_foreground(terminal_group):
                    relay.forward_only(every)
                    _signal(relay, signal.SIGINT, groups=job.processes > 1)
                    deadline = time.monotonic() + INTERRUPT_GRACE
                    while relay.running and not isinstance(
                        _next(events, deadline, relay), signal.Signals | None
                    ):
                        pass  # another signal ends the wait
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
            relay.reap()
    return None


def _failure(job: Job, process: int, code: int) -> str | None:
    """Return the message for a failed process, or None if the program's own traceback is enough."""
    name = f"process {process} of {job.processes}" if job.processes > 1 else "the program"
    if code < 0:
        names = {number.value: number.name for number in signal.Signals}
        killed = f"{name} was killed by {names.get(-code, f'signal {-code}')}"
        return None if code == -signal.SIGINT else killed
    return f"{name} failed with exit code {code}" if job.processes > 1 else None


def _show_stacks(workers: Sequence[Worker], relay: Relay) -> None:
    """Print the stacks of each process on stderr, one process after another.

    A process that waits in C cannot mark the end of its stacks: it has a few seconds. The frames that led to
    the program are left out.
    """
    _signal(relay, DUMP_STACKS)
    deadline = time.monotonic() + TERMINATE_GRACE
    for process, worker in enumerate(workers):
        stacks = b""
        with contextlib.suppress(OSError):  # TimeoutError is one
            while not stacks.endswith(END_OF_STACKS):
                worker.channel.settimeout(max(deadline - time.monotonic(), 0))
                if not (data := worker.channel.recv(_CHUNK)):
                    break
                stacks += data
        lines = stacks.removeprefix(JOINS).removesuffix(END_OF_STACKS).splitlines()
        with contextlib.suppress(OSError):  # stderr may be closed
            relay.write(process, (line for line in lines if not line.startswith(_OURS)), STDERR)


def _signal(relay: Relay, number: signal.Signals, *, groups: bool = False) -> None:
    """Send a signal to the processes that have not ended, or to their process groups."""
    for process in [*relay.running]:
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if groups else os.kill)(process, number)


def _in_foreground(group: int) -> bool:
    """Return whether a process group is the terminal's foreground group, which receives Ctrl-C."""
    with contextlib.suppress(OSError), open("/dev/tty") as terminal:
        return os.tcgetpgrp(terminal.fileno()) == group
    return False


@contextlib.contextmanager
def held_port() -> Iterator[int]:
    """Reserve a free port on the loopback device that only gRPC can bind.

    If the port were released before use, another program could take it. A second coordinator would even
    share it with the first, since gRPC sets ``SO_REUSEPORT``, and the two runs would mix. This socket never
    listens. While it is bound, the system assigns the port to no other program, but gRPC can still bind it.
    """
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


def _adopt_orphans() -> None:
    """Become the parent of every orphan below this process (Linux only).

    Otherwise orphans belong to init, and a program could leave processes behind that nothing here finds.
    """
    if _ON_LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)


def _end_descendants(grace: float) -> None:
    """Send SIGTERM to every process below this one, and SIGKILL after ``grace`` seconds.

    They are listed again until this process has no child, since each may start others meanwhile.
    """
    for number, timeout in ((signal.SIGTERM, grace), (signal.SIGKILL, _KILLED_WITHIN)):
        signaled: set[int] = set()
        deadline = time.monotonic() + timeout
        while _has_children() and time.monotonic() < deadline:
            for process in _descendants():
                if process not in signaled:
                    signaled.add(process)
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(process, number)
            time.sleep(_POLL)


def _has_children() -> bool:
    """Return whether there are children, exited ones apart. Their exit codes are dropped."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def _descendants() -> Iterator[int]:
    """Yield the id of each process below this one, a parent before its children."""
    family = [os.getpid()]
    for process in family:
        for child in _children(process):
            yield child
            family.append(child)


def _children(process: int) -> list[int]:
    """Return the ids of the processes that another one has started or adopted."""
    with contextlib.suppress(OSError):  # the process, or a thread of it, may end meanwhile
        if Path("/proc/thread-self/children").exists():
            lists = [path.read_bytes() for path in Path(f"/proc/{process}/task").glob("*/children")]
        else:
            command = ["pgrep", "-P", str(process)]
            lists = [subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout]
        return [int(child) for found in lists for child in found.split()]
    return []
