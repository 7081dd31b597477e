"""Starts the processes of a run, passes on what they write, and ends them all together."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..writing import unwritable
from .descendants import adopt_orphans, end_descendants
from .joining import Joiners, held_port
from .relay import STDERR, Relay
from .stacks import ask_for_stacks
from .worker import Job

if TYPE_CHECKING:
    from ..output import Format

INTERRUPT_GRACE = 5.0
"""Seconds that a program has for its ``finally`` blocks after Ctrl-C."""

TERMINATE_GRACE = 3.0
"""Seconds between SIGTERM and SIGKILL."""

_LOOK = 1.0
"""Seconds between two looks at who joins, while a process has ended that has not."""

TIMED_OUT = 124
"""The exit code of ``timeout``, which everybody knows."""


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """A program and how it is to be run."""

    words: tuple[str, ...]
    """Script or name of a module, then the arguments of the program."""

    is_module: bool = False
    """Whether the first word names a module."""

    processes: int = 1
    """How many processes run it."""

    timeout: float | None = None
    """Seconds after which everything is ended."""

    quiet: bool = False
    """Whether the table of live arrays at the end is left out."""

    format: Format = "text"
    """As what it is written."""

    output: str | None = None
    """The file that it is written to; None for the standard output."""

    source: bytes | None = None
    """The code of the script; None for a module, a folder or a zip file."""


class Ended(NamedTuple):
    """A process has ended."""

    process: int
    code: int
    """Its exit code; −n where signal n killed it."""


class Signalled(NamedTuple):
    """The launcher was sent a signal, or is gone."""

    number: int


class OutputClosed(NamedTuple):
    """What the launcher writes goes nowhere any more."""

    problem: str | None
    """Why it cannot be written; None where nobody reads it."""


Event = Ended | Signalled | OutputClosed


class Outcome(NamedTuple):
    """How a run ended."""

    code: int
    """Exit code of the command."""

    message: str | None = None
    """What is to be said about it on stderr."""

    heard: tuple[int, ...] = ()
    """Processes whose last words are shown."""

    interrupt: bool = False
    """Whether the processes may still react to Ctrl-C before they are ended."""

    stacks: bool = False
    """Whether the stacks of all processes are shown."""


class Worker(NamedTuple):
    """A process that has been started."""

    id: int

    stacks: int
    """Descriptor of the pipe for its stacks."""


def supervise(
    run: Run, environment: Mapping[str, str], events: queue.SimpleQueue[Event], terminal_group: int
) -> int:
    """Run a program until all its processes have ended, and return the exit code of the command.

    Args:
        run: The program, and how to run it.
        environment: What its processes see as theirs.
        events: Where signals to the launcher come in, from their handlers.
        terminal_group: The process group that a terminal sends Ctrl-C to. A program in one process
            belongs to it, so that it can read from the terminal.
    """
    adopt_orphans()
    relay = Relay(run.processes, lambda error: events.put(OutputClosed(unwritable(error))))
    ending = threading.Lock()
    decided = threading.Event()

    def wait_for(process: int, started: subprocess.Popen[bytes]) -> None:
        code = started.wait()
        # Who dies because of another one may be gone before that one is.
        relay.wait_for_earlier(process)
        with ending:
            relay.end(process, failed=code != 0 and not decided.is_set())
            events.put(Ended(process, code))

    joiners = Joiners()
    with held_port() as port:
        workers = []
        for process in range(run.processes):
            started, stacks = _start(run, process, port, joiners.writer, environment, terminal_group, relay)
            workers.append(Worker(started.pid, stacks))
            threading.Thread(target=wait_for, args=(process, started), daemon=True).start()
        outcome = _outcome(run, events, joiners, terminal_group)
        decided.set()
        if outcome.stacks:
            _show_stacks(workers, relay)
        if outcome.interrupt:
            _interrupt([worker.id for worker in workers])
            _let_end(run.processes, events)
        elif outcome.code:
            relay.hear_only(*outcome.heard)
        end_descendants(TERMINATE_GRACE)
    # A pager may keep what it was given for as long as it likes, but not after a failure.
    relay.finish(TERMINATE_GRACE if outcome.code else None)
    if outcome.message:
        say(outcome.message)
    return outcome.code


def say(message: str) -> None:
    """Say something on stderr, where anybody hears it."""
    try:
        print(f"jai-cli run: {message}", file=sys.stderr, flush=True)
    except OSError:
        return


def exit_code(code: int) -> int:
    """Return the exit code that a shell makes of one that is −n where signal n has killed a process."""
    return 128 - code if code < 0 else code


def _start(
    run: Run,
    process: int,
    port: int,
    joiners: int,
    environment: Mapping[str, str],
    terminal_group: int,
    relay: Relay,
) -> tuple[subprocess.Popen[bytes], int]:
    """Start one process, and return it with its pipe of stacks.

    Where there are several, what it writes goes through the relay.
    """
    several = run.processes > 1
    lifeline, worker_end = os.pipe()
    stacks, stacks_writer = os.pipe()
    source = None if run.source is None else _pipe_with(run.source)
    given = [worker_end, stacks_writer, *([] if source is None else [source])]
    job = Job(
        run.is_module,
        process,
        run.processes,
        port,
        run.quiet,
        run.format,
        run.output,
        os.getpid(),
        worker_end,
        source,
        joiners,
        stacks_writer,
    )
    started = subprocess.Popen(
        [
            sys.executable,
            "-P",  # the program says what is first on the path
            "-m",
            "jax_array_info_cli.launching.worker",
            json.dumps(dataclasses.asdict(job)),
            *run.words,
        ],
        env={**environment, **(_for_several(relay.prefix_width, environment) if several else {})},
        stdin=subprocess.DEVNULL if several else None,
        stdout=subprocess.PIPE if several else None,
        stderr=subprocess.PIPE if several else None,
        start_new_session=several,
        process_group=None if several else terminal_group,
        pass_fds=[joiners, *given],
    )
    for descriptor in given:
        os.close(descriptor)
    if started.stdout and started.stderr:
        relay.start(process, started.stdout, started.stderr, lifeline)
    return started, stacks


def _pipe_with(data: bytes) -> int:
    """Return the reader's end of a pipe, into which a thread writes these bytes."""
    reader, writer = os.pipe()

    def write() -> None:
        # The process may end before it has read all.
        with contextlib.suppress(BrokenPipeError), open(writer, "wb") as file:
            file.write(data)

    threading.Thread(target=write, daemon=True).start()
    return reader


def _for_several(prefix_width: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Return what the environment of a process is to have where there are several."""
    direct = {}
    if any(name.lower() in _PROXIES for name in environment):
        # gRPC would look for the others, on this machine, through the proxy.
        for name in ("no_proxy", "NO_PROXY"):
            direct[name] = ",".join(filter(None, (environment.get(name), "127.0.0.1")))
    return _look(prefix_width, environment) | direct


_PROXIES = ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy")


def _look(prefix_width: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Return how wide the lines of a program may be, and that it may use colour where we can show it."""
    look = {"COLUMNS": str(max(shutil.get_terminal_size().columns - prefix_width, 1))}
    terminal = sys.stdout.isatty() and sys.stderr.isatty() and environment.get("TERM") != "dumb"
    if terminal and not environment.get("NO_COLOR"):
        # Colours, yes; animations, which move the cursor between lines, no.
        look |= {name: environment.get(name, value) for name, value in _COLOURS.items()}
    return look


_COLOURS = {"FORCE_COLOR": "1", "TTY_INTERACTIVE": "0"}


def _outcome(run: Run, events: queue.SimpleQueue[Event], joiners: Joiners, terminal_group: int) -> Outcome:
    """Wait for what decides how the run ends: the first failure, or the last success."""
    deadline = math.inf if run.timeout is None else time.monotonic() + run.timeout
    running = set(range(run.processes))
    while running:
        joining = joiners.known()
        absent = set(range(run.processes)) - running - joining
        if absent and (waiting := running & joining):
            return Outcome(1, _never_joined(run, min(absent), min(waiting)), tuple(range(run.processes)))
        left = min(max(deadline - time.monotonic(), 0), _LOOK if absent else math.inf)
        try:
            event = events.get(timeout=None if left == math.inf else left)
        except queue.Empty:
            if time.monotonic() < deadline:
                continue
            return Outcome(TIMED_OUT, f"ended after {run.timeout:g} s (--timeout)", stacks=True)
        match event:
            case Ended(process, 0):
                running.remove(process)
            case Ended(process, code):
                return Outcome(exit_code(code), _failure(run, process, code), (process,))
            case OutputClosed(None):
                return Outcome(128 + signal.SIGPIPE)
            case OutputClosed(problem):
                return Outcome(1, problem)
            case Signalled(signal.SIGINT):
                # In one process on a terminal the program has got Ctrl-C itself: a debugger goes on.
                if run.processes > 1 or not _in_foreground(terminal_group):
                    return Outcome(128 + signal.SIGINT, interrupt=True)
            case Signalled(number):
                return Outcome(128 + number)
    return Outcome(0)


def _failure(run: Run, process: int, code: int) -> str | None:
    """Return which process failed, and how; None where the program has said it itself."""
    who = f"process {process} of {run.processes}" if run.processes > 1 else "the program"
    if code < 0:
        return None if code == -signal.SIGINT else f"{who} was killed by {_signal_name(-code)}"
    return f"{who} failed with exit code {code}" if run.processes > 1 else None


def _never_joined(run: Run, absent: int, waiting: int) -> str:
    """Return what is said where a process waits for one that has ended."""
    return (
        f"process {absent} of {run.processes} ended without importing jax, and process {waiting} waits"
        " for it: import jax in every process, or in none"
    )


def _show_stacks(workers: Sequence[Worker], relay: Relay) -> None:
    """Print on stderr where each process is, one after the other."""
    found = ask_for_stacks({worker.id: worker.stacks for worker in workers}, TERMINATE_GRACE)
    with contextlib.suppress(OSError):  # stderr may be closed
        for process, lines in enumerate(found):
            relay.tell(process, lines, STDERR)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # a real-time one


def _in_foreground(group: int) -> bool:
    """Return whether a process group is the one that reads from the terminal, and gets its Ctrl-C."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == group
    finally:
        os.close(terminal)


def _interrupt(workers: Sequence[int]) -> None:
    """Send Ctrl-C: to a process that is alone as ``kill`` does, to several as a terminal does."""
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            if len(workers) == 1:
                os.kill(worker, signal.SIGINT)
            else:
                os.killpg(worker, signal.SIGINT)


def _let_end(running: int, events: queue.SimpleQueue[Event]) -> None:
    """Wait until all processes have ended, a while at most; a second signal ends the waiting."""
    deadline = time.monotonic() + INTERRUPT_GRACE
    while running and (left := deadline - time.monotonic()) > 0:
        try:
            event = events.get(timeout=left)
        except queue.Empty:
            return
        if isinstance(event, Signalled):
            return
        running -= isinstance(event, Ended)
