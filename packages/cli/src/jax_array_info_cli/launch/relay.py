"""Output of several processes, forwarded line by line until one of them fails."""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import IO, NamedTuple

ON_LINUX = sys.platform == "linux"

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_POLL = 0.001
_KILLED_WITHIN = 10.0
_KERNEL_LISTS_CHILDREN = ON_LINUX and Path("/proc/thread-self/children").exists()


def adopt_orphans() -> None:
    """Become the parent of every orphan below this process (Linux only).

    Otherwise orphans belong to init, and a program could leave processes behind that nothing here finds.
    """
    if ON_LINUX:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent() -> None:
    """Make Linux kill this process when its parent exits."""
    if ON_LINUX:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def end_descendants(grace: float) -> None:
    """Send SIGTERM to every process below this one, and SIGKILL after ``grace`` seconds.

    A process may fork and exit all the time, so that each list of processes is soon out of date. Therefore
    each one is signaled as soon as it is found, and they are listed again until this process has no child.
    """
    for number, timeout in ((signal.SIGTERM, grace), (signal.SIGKILL, _KILLED_WITHIN)):
        signaled: set[int] = set()
        deadline = time.monotonic() + timeout
        while _has_children() and time.monotonic() < deadline:
            signaled = {
                process for process in _descendants() if process in signaled or _send(process, number)
            }
            time.sleep(_POLL)


def _has_children() -> bool:
    """Return whether there are children, exited ones apart. Their exit codes are dropped."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def _send(process: int, number: signal.Signals) -> bool:
    """Send a signal to a process, unless it has exited or belongs to another user, and return True."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)
    return True


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
        if _KERNEL_LISTS_CHILDREN:
            lists = [path.read_bytes() for path in Path(f"/proc/{process}/task").glob("*/children")]
        else:
            command = ["pgrep", "-P", str(process)]
            lists = [subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout]
        return [int(child) for found in lists for child in found.split()]
    return []


_EXIT_TIMEOUT = 5.0
"""Seconds to wait for a process that has hung up: if it lives on, it has closed its descriptors itself."""


class Exits:
    """Reports the exit code of each process, first to last.

    When a process dies, the system closes its sockets some time before the process has exited, and the
    other processes notice that. Each process holds a socket that is closed before all its others; the
    hang-up of that socket gives the order of deaths. On a busy machine, several sockets may hang up between
    two polls: on Linux, an edge-triggered epoll keeps their order; elsewhere, they are reported in the order
    of their start.
    """

    def __init__(self, report: Callable[[int, int], None]) -> None:
        """Store the callback, which is called once with each process and its exit code."""
        self._report = report
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._owners: dict[int, int] = {}
        self._deadlines: dict[int, float] = {}
        """Time by which each process that has hung up must exit, in the order of hang-ups."""
        self._hangups = select.epoll() if ON_LINUX else select.poll()
        self._lock = threading.RLock()

    def watch(self, process: int, started: subprocess.Popen[bytes], channel: socket.socket) -> None:
        """Add a started process and the supervisor's end of its socket."""
        with self._lock:
            self._running[process] = started
            self._owners[channel.fileno()] = process
            self._hangups.register(
                channel, select.EPOLLRDHUP | select.EPOLLET if ON_LINUX else select.POLLHUP
            )

    def catch_up(self, process: int | None = None) -> None:
        """Wait for the processes that have hung up so far, and report them.

        Args:
            process: Only wait for processes that hung up before this one.
        """
        with self._lock:
            for descriptor, _ in self._hangups.poll(0):
                self._deadlines.setdefault(self._owners[descriptor], time.monotonic() + _EXIT_TIMEOUT)
            earlier = [*takewhile(lambda other: other != process, self._deadlines)]
        for other in earlier:
            self._note(other, max(self._deadlines[other] - time.monotonic(), 0))

    def reap(self) -> None:
        """Report all exits, including processes whose socket is still open in a fork.

        Orphans, whose parent this process is on Linux, are dropped: each would keep its process id.
        """
        with self._lock:
            exited = [process for process, started in self._running.items() if started.poll() is not None]
        for process in exited:
            self.catch_up(process)
            self._note(process, 0)
        with contextlib.suppress(ChildProcessError):
            while ON_LINUX and (dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)):
                if dead.si_pid in [started.pid for started in self._running.values()]:
                    break
                os.waitpid(dead.si_pid, 0)

    def _note(self, process: int, timeout: float) -> None:
        """Report a process that exits within ``timeout`` seconds, unless it has been reported before."""
        started = self._running.get(process)
        if started is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = started.wait(timeout)
            with self._lock:
                if self._running.pop(process, None):
                    self._report(process, code)


LONGEST = 2**22
"""Maximum bytes of a line. Longer lines are split."""


def split_lines(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines of a stream, a list per chunk, without line ends.

    A carriage return also ends a line, so each state of a progress bar is a separate line; an empty line
    that ends with one is dropped. Lines longer than ``LONGEST`` are split.
    """
    rest = bytearray()
    after_return = False
    for chunk in chunks:
        lines: list[bytes] = []
        for piece in (chunk.removeprefix(b"\n") if after_return else chunk).splitlines(keepends=True):
            rest += piece
            if piece.endswith((b"\r", b"\n")) or len(rest) >= LONGEST:
                if rest != b"\r":
                    lines.append(bytes(rest).rstrip(b"\r\n"))
                rest.clear()
        after_return = chunk.endswith(b"\r")
        yield lines
    if rest:
        yield [bytes(rest)]


_GLOO_BEGINNING = b"[Gloo] Rank "
_GLOO_PIECES = re.compile(
    rb"(?:(?:\[Gloo\] Rank | is connected to | peer ranks\. |"
    rb"Expected number of connected peer ranks is : )\d*)+"
)


class GlooFilter:
    """Removes Gloo's messages from a process's stdout.

    Gloo runs collectives between CPUs. For each group of devices it prints ``[Gloo] Rank 0 is connected to
    1 peer ranks. Expected number of connected peer ranks is : 1``. It writes the message in eight pieces
    from several threads at once, so messages may be interleaved.
    """

    def __init__(self) -> None:
        self._unfinished = 0

    def clean(self, line: bytes) -> bytes | None:
        """Return the program's part of a line, or None if all of it is Gloo's."""
        self._unfinished += line.count(_GLOO_BEGINNING)
        if not self._unfinished:
            return line
        others = _GLOO_PIECES.sub(b"", line)
        is_gloos = not others or others.isdigit()
        # Otherwise the end of this line is the program's, unless the line contained the entire message.
        if is_gloos or (line.startswith(others) and others != line):
            self._unfinished -= 1
        return None if is_gloos else others


STDOUT, STDERR = 1, 2

_CHUNK = 2**16


class Ended(NamedTuple):
    """The exit of a process."""

    process: int
    code: int
    """Exit code; −n if signal n killed the process."""


Event = Ended | signal.Signals | OSError
"""The exit of a process, a signal to the supervisor, or an error writing the output."""

Events = queue.SimpleQueue[Event]


class Relay:
    """Prefixes each line with its process number. After a failure, forwards only the failed process.

    When a process dies, jax makes the others die too, with long logs and tracebacks. Before a line is
    forwarded, the exits of all processes that died before it was written are therefore collected.
    """

    def __init__(self, processes: int, events: Events) -> None:
        """Store the number of processes, and the queue for their exits and for write errors."""
        digits = len(str(processes - 1))
        self._prefixes = (
            [f"[{process:>{digits}}] " for process in range(processes)] if processes > 1 else [""]
        )
        self._events = events
        self.exits = Exits(self._note_exit)
        self._forwarded: frozenset[int] | None = None
        self._writing = {target: threading.Lock() for target in (STDOUT, STDERR)}
        self._threads: list[threading.Thread] = []

    @property
    def prefix_width(self) -> int:
        """Return the length of the prefix in characters."""
        return len(self._prefixes[0])

    def start(self, process: int, started: subprocess.Popen[bytes], channel: socket.socket) -> None:
        """Watch a process, and begin to forward the output that it writes to pipes."""
        self.exits.watch(process, started, channel)
        for stream, target in ((started.stdout, STDOUT), (started.stderr, STDERR)):
            if stream:
                thread = threading.Thread(target=self._forward, args=(process, stream, target), daemon=True)
                self._threads.append(thread)
                thread.start()

    def forward_only(self, processes: Iterable[int]) -> None:
        """Drop the output of all other processes. Only the first call has an effect."""
        if self._forwarded is None:
            self._forwarded = frozenset(processes)

    def write(self, process: int, lines: Iterable[bytes], target: int) -> None:
        """Write lines with the prefix of a process. A run of one process has no prefix."""
        prefix = self._prefixes[process].encode()
        data = b"".join(prefix + line + b"\n" for line in lines)
        with self._writing[target]:
            while data:
                data = data[os.write(target, data) :]

    def finish(self, timeout: float | None) -> None:
        """Wait until all output has been forwarded, at most ``timeout`` seconds per stream."""
        for thread in self._threads:
            thread.join(timeout)

    def _note_exit(self, process: int, code: int) -> None:
        if code:
            self.forward_only([process])
        self._events.put(Ended(process, code))

    def _forward(self, process: int, stream: IO[bytes], target: int) -> None:
        clean = GlooFilter().clean if target == STDOUT else bytes
        # Read to the end even if the lines are dropped: a full pipe would block the process.
        for lines in split_lines(iter(lambda: os.read(stream.fileno(), _CHUNK), b"")):
            self.exits.catch_up(process)
            if self._forwarded is None or process in self._forwarded:
                try:
                    self.write(process, (line for line in map(clean, lines) if line is not None), target)
                except OSError as error:
                    self.forward_only([])
                    self._events.put(error)
