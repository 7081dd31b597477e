"""Start of a program: in the process of the command, or in several that end together; their output."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import FrameType
from typing import IO, NoReturn

from ..standard_streams import unwritable
from . import (
    DUMP_STACKS,
    LAUNCHING,
    NOTE,
    OWN_FOLDER,
    STDERR,
    STDOUT,
    TIMED_OUT,
    Job,
    held_port,
    message_line,
    print_message,
    timed_out,
    too_many,
)
from .recompiles import Recompilations

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
"""Signals that may end a wait of this command."""

LONGEST = 2**22
"""Maximum bytes of a line. Longer lines are split."""

_CHUNK = 2**16
_FULLEST = 2**20
"""Maximum bytes in a pipe, unless root has set more."""

_GLOO, _NUMBER = b"[Gloo] Rank ", b"0"
_OF_GLOO = {
    _GLOO: 1,
    b" is connected to ": 1,
    b" peer ranks. ": 1,
    b"Expected number of connected peer ranks is : ": 1,
    _NUMBER: 3,
    b"\n": 1,
}
"""The pieces of a line that Gloo, which runs collectives between CPUs, prints for each group of devices.

Its threads print at once, a piece at a time: the pieces of several lines may be mixed.
"""

_PIECE = re.compile(b"|".join([rb"\d+", *map(re.escape, _OF_GLOO)]))


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let signals through that are blocked otherwise.

    Their handler raises an exception. Within any other code, this would lose lines, or the end of a process.
    """
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


class Relay:
    """Forwards what processes write to pipes. A run of one process has no prefix."""

    def __init__(self, processes: int) -> None:
        """Store the number of processes."""
        self._processes = processes
        self._poll = select.poll()
        self._pipes: dict[int, tuple[int, int | None, Iterator[list[bytes]]]] = {}
        """Process, target and lines of each pipe that is open."""
        self._unwritten: dict[int, bytearray] = defaultdict(bytearray)
        self.error: OSError | None = None
        """The first error of writing. What comes after it is dropped."""

    def prefix(self, process: int | None) -> str:
        """Return the beginning of each line of a process, or of the command itself."""
        has_one = self._processes > 1 and process is not None
        return f"[{process:>{len(str(self._processes - 1))}}] " if has_one else ""

    def add(self, process: int, pipe: int, target: int | None) -> None:
        """Begin to forward a pipe of a process to a descriptor; None if the pipe is only ever closed."""
        read = functools.partial(_read, pipe)
        self._pipes[pipe] = process, target, without_gloo(split_lines(iter(read, b"")))
        self._poll.register(pipe, select.POLLIN)

    def ready(self, seconds: float) -> list[int]:
        """Return the pipes that can be read, at the latest after some seconds."""
        with interruptible():
            return [pipe for pipe, _ in self._poll.poll(seconds * 1000)]

    def hung_up(self) -> list[int]:
        """Return the processes that have closed the pipe without a target, as one that dies does."""
        closed = (self._pipes[pipe] for pipe, event in self._poll.poll(0) if event & select.POLLHUP)
        return [process for process, target, _ in closed if target is None]

    def forward(self, ready: Iterable[int], heard: Collection[int]) -> None:
        """Read each pipe once, and forward its complete lines if it belongs to one of some processes.

        What the others write is read too, since a full pipe would block them.
        """
        for pipe in ready:
            process, target, pieces = self._pipes[pipe]
            lines = next(pieces, None)
            if lines is None:
                self._poll.unregister(pipe)
                del self._pipes[pipe]
            elif process in heard and target is not None:
                self.write(process, lines, target)

    def finish(self, heard: Collection[int]) -> None:
        """Forward what is left in the pipes, up to lines without end, even if a daemon keeps them open."""
        for process in heard:
            for target in self._unwritten:
                self.write(process, (), target)  # what an interrupted wait has left
        for pipe in self._pipes:
            os.set_blocking(pipe, False)
        for _ in range(_FULLEST // _CHUNK + 2):
            self.forward([*self._pipes], heard)

    def write(self, process: int | None, lines: Iterable[bytes], target: int) -> None:
        """Write lines with the prefix of a process; without one if they are the command's own."""
        prefix = self.prefix(process).encode()
        data = self._unwritten[target]
        data += b"".join(prefix + line + b"\n" for line in lines)
        try:
            while data and self.error is None:
                with interruptible():
                    select.select([], [target], [])
                del data[: os.write(target, data[: select.PIPE_BUF])]  # does not wait
        except OSError as error:
            self.error = error


def _read(pipe: int) -> bytes:
    """Read from a pipe; nothing if it does not block and is empty."""
    with contextlib.suppress(BlockingIOError):
        return os.read(pipe, _CHUNK)
    return b""


def split_lines(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines of a stream, a list per chunk, without line ends.

    A carriage return also ends a line, so each state of a progress bar is a separate line; an empty line
    that ends with one is dropped. Lines longer than ``LONGEST`` are split.
    """
    line = bytearray()
    after_return = False
    for chunk in chunks:
        lines: list[bytes] = []
        for piece in (chunk.removeprefix(b"\n") if after_return else chunk).splitlines(keepends=True):
            line += piece
            if piece.endswith((b"\r", b"\n")) or len(line) >= LONGEST:
                if line != b"\r":
                    lines.append(bytes(line).rstrip(b"\r\n"))
                line.clear()
        after_return = chunk.endswith(b"\r")
        yield lines
    if line:
        yield [bytes(line)]


def without_gloo(pieces: Iterable[list[bytes]]) -> Iterator[list[bytes]]:
    """Yield lists of lines without those of Gloo, and without the rest of those that were printed at once."""
    owed: Counter[bytes] = Counter()  # the pieces of the lines that have begun
    for lines in pieces:
        kept = []
        for line in lines:
            if owed or line.startswith(_GLOO):
                left = owed.copy()
                for _ in range(line.count(_GLOO)):
                    left.update(_OF_GLOO)
                found = _PIECE.findall(line + b"\n")
                left.subtract(_NUMBER if piece.isdigit() else piece for piece in found)
                if len(b"".join(found)) == len(line) + 1 and min(left.values()) >= 0:
                    owed = +left if left[b"\n"] else Counter()  # numbers may stand side by side
                    continue
            kept.append(line)
        yield kept


_FRAMES = tuple(f'  File "{file}'.encode() for file in LAUNCHING)
"""The beginnings of the lines of a stack that lead to the program."""

_INTERRUPT_GRACE = 5.0
"""Seconds for the program's ``finally`` blocks after Ctrl-C."""

_GRACE = 3.0
"""Seconds between SIGTERM and SIGKILL, and for the system to end what is killed."""

_POLL = 0.05
"""Seconds between looks at the processes while they write nothing."""

_EXIT_WITHIN = 2.0
"""Seconds to wait for a process that has closed its highest pipe: if it lives on, it did so itself."""

_STACKS_WITHIN = 0.5
"""Seconds without a new stack after which all are there."""

_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")


def become(job: Job, environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by a new Python, which runs the program.

    Raises:
        OSError: If there are too many open files or arguments.
    """
    letter = _letter(job)
    os.set_inheritable(letter.fileno(), True)
    command = _command(job, letter)
    chosen = environment.get("LC_ALL") or environment.get("PYTHONUTF8")
    if sys.flags.utf8_mode and not chosen and environment.get("LC_CTYPE") in _COERCED:
        # Python has set it, because the locale is C, and does so again.
        environment = {name: value for name, value in environment.items() if name != "LC_CTYPE"}
    os.execve(command[0], command, environment)  # noqa: S606, the program that the user asked for


def _letter(job: Job) -> IO[bytes]:
    """Return a file without a name that contains the job.

    It carries the job without a change of the arguments or the environment. A process that is not the
    command's own appends a line when it waits for the others, and its stacks when it is asked for them.
    """
    has_memory = hasattr(os, "memfd_create")  # on Linux
    letter = open(os.memfd_create("job"), "w+b") if has_memory else tempfile.TemporaryFile()  # noqa: SIM115
    letter.write(pickle.dumps(job))
    letter.seek(0)
    return letter


def _command(job: Job, letter: IO[bytes]) -> list[str]:
    """Return the command of a process that runs a program. The program's arguments are there for ``ps``."""
    return [sys.executable, f"{OWN_FOLDER}worker.py", str(letter.fileno()), *job.argv]


class _Interruption(SystemExit):
    """A signal to this command, with its exit code, or the end of the time for something."""


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise _Interruption(TIMED_OUT if number == signal.SIGALRM else 128 + number)


def launch(job: Job, environment: Mapping[str, str]) -> int:
    """Run a program in several processes, and return the exit code of the command.

    Args:
        job: The program and its options.
        environment: Environment variables of its processes.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    for number in SIGNALS:
        # nohup and background jobs of a shell ignore some signals on purpose. The alarm is our own.
        if number == signal.SIGALRM or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    # A background process that writes to the terminal may be stopped by SIGTTOU.
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    run = _Run(job.processes)
    if signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:
        signal.signal(signal.SIGTSTP, run.suspend)
    environment = _environment_of_each(run.relay.prefix(0), environment)
    with held_port() as port:
        code, message = run.outcome(replace(job, port=port, launcher=os.getpid()), environment)
        run.end(signal.SIGTERM, _GRACE)
        run.end(signal.SIGKILL, _GRACE)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
    run.finish()
    if run.relay.error and not code:
        message = unwritable(run.relay.error)
        code = 1 if message else 128 + signal.SIGPIPE
    if not code and job.fail_on_recompile and run.recompilations.count:
        code, message = 1, too_many(run.recompilations.count)
    if message:
        print_message(message)
    return code


class _Process(subprocess.Popen[bytes]):
    """A process that runs the program, and leads a group of those that it starts."""

    def __init__(self, job: Job, environment: Mapping[str, str]) -> None:
        """Start the process. If there are several, their output goes to pipes."""
        several = job.processes > 1
        self.alive, alive = os.pipe()
        self._letter = _letter(replace(job, alive=alive))
        self._beginning = os.fstat(self._letter.fileno()).st_size
        self._has_group = True
        super().__init__(
            _command(job, self._letter),
            env=environment,
            stdin=subprocess.DEVNULL if several else None,
            stdout=subprocess.PIPE if several else None,
            stderr=subprocess.PIPE if several else None,
            start_new_session=True,
            pass_fds=[self._letter.fileno(), alive],
        )
        os.close(alive)

    def written(self, since: int = 0, nbytes: int = 2**24) -> bytes:
        """Return what it has appended to its letter: first an empty line, if it waits for the others."""
        return os.pread(self._letter.fileno(), nbytes, self._beginning + since)

    def signal_group(self, number: int) -> bool:
        """Send a signal to its group, and return whether the group has a process.

        The system may give the id of an empty group to another: it is signaled no more.
        """
        if self._has_group:
            try:
                os.killpg(self.pid, number)
            except OSError:
                self._has_group = False
        return self._has_group


class _Run:
    """The processes of a run, and their output."""

    def __init__(self, processes: int) -> None:
        self.relay = Relay(processes)
        self._every = range(processes)
        self._processes: list[_Process] = []
        self.recompilations = Recompilations(
            processes, lambda message: self.relay.write(None, [message_line(message)], STDERR)
        )
        self._heard: Sequence[int] | None = None
        """Processes whose output is forwarded; None for all, until the first one fails."""

    def outcome(self, job: Job, environment: Mapping[str, str]) -> tuple[int, str | None]:
        """Run the program until a process fails, all have succeeded, or something else ends the run.

        Returns:
            The exit code of the command, and a message for stderr, if any.
        """
        try:
            signal.setitimer(signal.ITIMER_REAL, job.timeout or 0)
            for index in self._every:
                with interruptible():
                    process = _Process(replace(job, process=index), environment)
                self._processes.append(process)
                self.relay.add(index, process.alive, None)
                for stream, target in ((process.stdout, STDOUT), (process.stderr, STDERR)):
                    if stream is not None:
                        self.relay.add(index, stream.fileno(), target)
            while not self._heard and not self.relay.error and self._are_running():
                self.step()
                if message := self._never_joined():
                    self._heard = self._every
                    return 1, message
        except _Interruption as interruption:
            code: int = interruption.args[0]
            self._heard = self._every if code == 128 + signal.SIGINT else []
            if code == TIMED_OUT:
                self._show_stacks()
                return code, timed_out(job.timeout)
            if self._heard:
                self.end(signal.SIGINT, _INTERRUPT_GRACE)
            return code, None
        except OSError as error:  # such as no more open files or processes
            self._heard = []
            advice = "Start fewer processes, or raise the limit with ulimit"
            return 1, f"the program cannot be started: {error.strerror}. {advice}"
        return self._failure(self._heard[0]) if self._heard else (0, None)

    def step(self) -> None:
        """Forward what the processes write, and note which have exited.

        When a process dies, jax makes the others die too, with long logs. Therefore only the first one that
        failed is heard from then on. It has closed its sockets, which the others notice, some time before it
        has exited, and a pipe before these: what is written after that waits for its exit.
        """
        ready = self.relay.ready(_POLL)
        dying = self.relay.hung_up()
        for index in (*dying, *range(len(self._processes))):
            process = self._processes[index]
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_EXIT_WITHIN if index in dying else 0)
                process.signal_group(0)
            if process.returncode and self._heard is None:
                self._heard = [index]
        self.relay.forward(ready, self._every if self._heard is None else self._heard)
        self._tell_recompilations()

    def finish(self) -> None:
        """Forward what the processes have written before they ended."""
        self._tell_recompilations(is_end=True)
        self.relay.finish(self._every if self._heard is None else self._heard)

    def _tell_recompilations(self, *, is_end: bool = False) -> None:
        for index, process in enumerate(self._processes):
            self.recompilations.read(index, process.written)
        self.recompilations.tell(is_end=is_end)

    def end(self, number: int, seconds: float) -> None:
        """Send a signal to each group, and wait until none has a process, at most for some seconds.

        Another signal to this command ends the wait.
        """
        with contextlib.suppress(_Interruption):
            signal.setitimer(signal.ITIMER_REAL, seconds)
            for process in self._processes:
                process.signal_group(number)
            while any(process.signal_group(0) for process in self._processes):
                self.step()

    def suspend(self, number: int, frame: FrameType | None) -> None:
        """Stop the groups and this command, as Ctrl-Z asks for, until the shell continues it."""
        for process in self._processes:
            process.signal_group(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        for process in self._processes:
            process.signal_group(signal.SIGCONT)

    def _are_running(self) -> bool:
        return any(process.returncode is None for process in self._processes)

    def _never_joined(self) -> str | None:
        """Return the message if a process waits for one that has exited."""
        states = [(process.returncode, bool(process.written(nbytes=1))) for process in self._processes]
        if (0, False) not in states or (None, True) not in states:
            return None
        return (
            f"process {states.index((0, False))} of {len(states)} exited without importing jax, but process"
            f" {states.index((None, True))} waits for it. Import jax in every process or in none."
        )

    def _show_stacks(self) -> None:
        """Print the stacks of each process on stderr, one process after another."""
        for process in self._processes:
            process.send_signal(DUMP_STACKS)
        written = None
        while written != (written := [process.written() for process in self._processes]):
            time.sleep(_STACKS_WITHIN)
        for index, lines in enumerate(written):
            stacks = [line for line in lines.splitlines() if line and not line.startswith((NOTE, *_FRAMES))]
            self.relay.write(index, stacks, STDERR)

    def _failure(self, index: int) -> tuple[int, str | None]:
        """Return the exit code of the command, and a message unless the program's own traceback is enough."""
        code, processes = self._processes[index].returncode, len(self._every)
        name = f"process {index} of {processes}" if processes > 1 else "the program"
        if code > 0:
            return code, f"{name} failed with exit code {code}" if processes > 1 else None
        names = {number.value: number.name for number in signal.Signals}
        killed = f"{name} was killed by {names.get(-code, f'signal {-code}')}"
        return 128 - code, None if code == -signal.SIGINT else killed


_COLORS = {"FORCE_COLOR": "1", "TTY_INTERACTIVE": "0"}
"""Colors without animations, which move the cursor between lines."""

_PROXIES = {"http_proxy", "https_proxy", "grpc_proxy", "all_proxy"}


def _environment_of_each(prefix: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with what pipes hide of the terminal, and no proxy on this machine."""
    added = {}
    if prefix:
        added["COLUMNS"] = str(max(shutil.get_terminal_size().columns - len(prefix), 1))
        streams = (sys.stdout, sys.stderr)
        terminal = all(stream and stream.isatty() for stream in streams) and environment.get("TERM") != "dumb"
        if terminal and not environment.get("NO_COLOR"):
            added |= {name: environment.get(name, value) for name, value in _COLORS.items()}
    if _PROXIES & {name.lower() for name in environment}:
        # gRPC would connect through the proxy to processes on this machine.
        for name in ("no_proxy", "NO_PROXY"):
            added[name] = ",".join(filter(None, (environment.get(name), "127.0.0.1")))
    return {**environment, **added}
