"""Lines that are taken out of standard error while some code runs."""

from __future__ import annotations

import contextlib
import os
import re
import select
import subprocess
import threading
from collections.abc import Callable, Iterator

_STDERR = 2
_LONGEST = 4 << 20
"""Bytes of a line that is held back until its end comes."""
_PAUSE = 100
"""Milliseconds for which a line without an end is held back, if it begins like a line of XLA."""
_PIPE_NBYTES = 1 << 20
_MOST_READS = 100
"""Reads for which the end of a block waits for an empty pipe, while other threads write without a pause."""
_SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ, which Python names on Linux only.

# A line of XLA begins with its time: "2026-11-22 17:26:09.160888: E xla/…" or "W1122 17:26:20.652093 …".
_START = re.compile(rb"(?:[IWEF]\d{4} \d\d:|\d{4}-\d\d-\d\d \d\d:)[^\n]*\Z")

# Pass on what is left in the pipe when this process ends: XLA's message before it aborts the process, and the
# output of a child process that has the pipe and lives longer. Standard input is the pipe. The lifeline is in
# place of standard output, since a shell's redirections have one digit.
_AT_THE_END = "cat <&1 >/dev/null; exec cat >&2"

_alone = threading.RLock()
"""Only one relay at a time: standard error belongs to the whole process."""
_current: list[_Relay] = []


@contextlib.contextmanager
def taken_from_stderr(take: Callable[[bytes], int | None]) -> Iterator[list[bytes] | None]:
    """Take lines out of standard error inside a with block; all others pass through at once.

    The order is kept, with one exception: while a block ends, a line that another thread writes then may come
    before the last lines of the pipe. No line is lost.

    File descriptor 2 is redirected, so that lines of C++ and of all threads are seen. Blocks in several
    threads run one after the other. A child process that is started meanwhile can write to its standard error
    as long as it lives.

    Args:
        take: A function that returns the index at which the part of a line to take begins; None to take
            nothing. It may be called in another thread, with each line and its line break.

    Yields:
        The list to which the lines are added, complete after the block. None if standard error is closed or
        the system has no suitable pipes.
    """
    with _alone:
        relay = _started(take)
        if relay is None:
            yield None
            return
        try:
            yield relay.taken
        finally:
            relay.end()


def _started(take: Callable[[bytes], int | None]) -> _Relay | None:
    """Return a relay that has begun; None if it cannot."""
    if not hasattr(select, "poll"):
        return None
    try:
        return _Relay(take)
    except (OSError, RuntimeError):
        # Standard error is closed, or there are too many open files or threads.
        return None


class _Relay:
    """A pipe in place of standard error, and a thread that reads it."""

    def __init__(self, take: Callable[[bytes], int | None]) -> None:
        self.taken: list[bytes] = []
        self._take = take
        self._mark = b"\0end of jax_array_info " + os.urandom(16).hex().encode() + b"\0"
        self._is_done = threading.Event()
        self._is_at_mark = self._is_restored = False
        self._held = b""
        """A line without an end that is held back."""
        self._reading = threading.Lock()
        with contextlib.ExitStack() as opened:
            self._real = os.dup(_STDERR)
            opened.callback(os.close, self._real)
            self._read, self._write = os.pipe()
            opened.callback(os.close, self._read)
            opened.callback(os.close, self._write)
            self._successor, self._lifeline = _successor(self._read, self._real)
            opened.callback(self._dismiss)
            with contextlib.suppress(ImportError, OSError):
                # Code that holds Python's lock while it writes can fill the pipe before the thread runs.
                import fcntl

                fcntl.fcntl(self._write, _SET_PIPE_SIZE, _PIPE_NBYTES)
            thread = threading.Thread(target=self._run, name="jax_array_info stderr", daemon=True)
            _current.append(self)
            try:
                thread.start()
                os.dup2(self._write, _STDERR)
            except BaseException:
                _current.remove(self)
                raise
            opened.pop_all()

    def end(self) -> None:
        """Restore standard error, and wait until all that came before is passed on."""
        try:
            # Ctrl+C interrupts the main thread only: another one cannot lose what it has read.
            with contextlib.suppress(RuntimeError):
                thread = threading.Thread(target=self._restore, name="jax_array_info stderr end", daemon=True)
                thread.start()
                thread.join()
        finally:
            self._restore()
            _current.remove(self)
            with contextlib.suppress(OSError):
                os.write(self._write, self._mark)
            os.close(self._write)
            self._is_done.wait()

    def _restore(self) -> None:
        """Restore standard error, once. What is in the pipe comes before what is written directly then."""
        with self._reading:
            if self._is_restored:
                return
            try:
                for _ in range(_MOST_READS):
                    if self._is_done.is_set() or not self._read_once():
                        break
            except OSError:
                pass
            finally:
                os.dup2(self._real, _STDERR)
                self._is_restored = True

    def leave_child(self) -> None:
        """Restore standard error in a forked process, where the thread does not run."""
        os.dup2(self._real, _STDERR)
        for descriptor in (self._read, self._write, self._real, self._lifeline):
            if descriptor is not None:
                os.close(descriptor)

    def _dismiss(self) -> None:
        """End the successor: the pipe is empty."""
        if self._successor is not None and self._lifeline is not None:
            self._successor.kill()
            self._successor.wait()
            os.close(self._lifeline)

    def _run(self) -> None:
        """Pass on what comes through the pipe, up to its end."""
        try:
            poll = select.poll()
            poll.register(self._read, select.POLLIN)
            self._pass_on_lines(poll)
            # The pipe ends with the mark, unless a child process has inherited it.
            if [(self._read, select.POLLHUP)] == poll.poll(_PAUSE):
                return
            self._is_done.set()
            while chunk := os.read(self._read, _PIPE_NBYTES):
                self._pass_on(chunk)
        except OSError:
            pass
        finally:
            self._dismiss()
            with self._reading:
                self._is_done.set()
                if not self._is_restored:
                    os.dup2(self._real, _STDERR)
                    self._is_restored = True
                os.close(self._read)
                os.close(self._real)

    def _pass_on_lines(self, poll: select.poll) -> None:
        """Take lines, and pass on all others, up to the mark."""
        while not self._is_at_mark:
            with self._reading:
                held = self._held
                pause = _PAUSE if held and self._take(held) is None else None
            is_ready = poll.poll(pause)
            with self._reading:
                if is_ready:
                    self._read_once()
                elif self._held == held:
                    self._pass_on(held)
                    self._held = b""

    def _read_once(self) -> bool:
        """Read what is in the pipe, take lines and pass on all others. Return whether there was something."""
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        if not poll.poll(0):
            return False
        chunk = os.read(self._read, _PIPE_NBYTES)
        before, mark, after = (self._held + chunk).partition(self._mark)
        *lines, held = before.split(b"\n")
        passed = [self._not_taken(line + b"\n") for line in lines]
        self._is_at_mark = bool(mark) or not chunk
        if self._is_at_mark:
            passed += [self._not_taken(held) if held else b"", after]
            held = b""
        elif len(held) > _LONGEST or not (_may_be_mark(held, self._mark) or _START.search(held)):
            passed.append(held)
            held = b""
        self._held = held
        self._pass_on(b"".join(passed))
        return True

    def _not_taken(self, line: bytes) -> bytes:
        """Take a line, or a part of it, and return the rest."""
        start = self._take(line)
        if start is None:
            return line
        self.taken.append(line[start:])
        return line[:start]

    def _pass_on(self, data: bytes) -> None:
        """Write to the real standard error. If nothing can be written there any more, the data is lost."""
        with contextlib.suppress(OSError):
            while data:
                try:
                    data = data[os.write(self._real, data) :]
                except BlockingIOError:
                    writable = select.poll()
                    writable.register(self._real, select.POLLOUT)
                    writable.poll()


def _may_be_mark(held: bytes, mark: bytes) -> bool:
    """Return whether the text ends with the beginning of the mark."""
    at = held.rfind(mark[:1])
    return at >= 0 and mark.startswith(held[at:])


def _successor(read: int, real: int) -> tuple[subprocess.Popen[bytes] | None, int | None]:
    """Return a process that passes on the rest of a pipe if this process is killed, and its lifeline.

    The process waits for the end of the lifeline, which only this process holds. None without a shell.
    """
    waiting, lifeline = os.pipe()
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _AT_THE_END],
            stdin=read,
            stdout=waiting,
            stderr=real,
            start_new_session=True,  # Ctrl+C ends the processes of the terminal's session.
        )
    except OSError:
        os.close(lifeline)
        return None, None
    finally:
        os.close(waiting)
    return process, lifeline


def _after_fork() -> None:
    """Restore standard error and the lock in a forked process."""
    global _alone
    _alone = threading.RLock()
    while _current:
        _current.pop().leave_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
