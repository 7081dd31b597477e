"""The process that runs Shardy's passes: a failed check in C++ ends the process in which it runs."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

TIMEOUT_SECONDS = 30


class NoAnswerError(Exception):
    """Shardy's passes gave no answer. The text is the reason."""


class IdleError(NoAnswerError):
    """The child ended because it was idle, while it was asked."""


class Worker:
    """A child process that answers one question at a time, started by the first one and after it ended."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None

    def ask(self, bytecode: bytes, seconds: float = TIMEOUT_SECONDS) -> dict[str, Any]:
        """Return the answer of the child.

        Args:
            bytecode: A module of MLIR.
            seconds: Time after which the child is ended.

        Raises:
            NoAnswerError: If the child cannot be started, ends, needs longer, or refuses the module.
        """
        deadline = time.monotonic() + seconds
        with self._lock:
            try:
                found = self._attempt(bytecode, deadline)
            except IdleError:
                found = self._attempt(bytecode, deadline)
            except TimeoutError:
                raise NoAnswerError(f"no answer within {seconds:g} s") from None
        if "error" in found:
            raise NoAnswerError(str(found["error"]))
        return found

    def start(self) -> None:
        """Start the child, unless it runs, so that it is ready when it is asked, which finds any failure."""
        if self._lock.acquire(blocking=False):
            try:
                with contextlib.suppress(OSError, RuntimeError, TypeError, ValueError):
                    self._running()
            finally:
                self._lock.release()

    def _attempt(self, bytecode: bytes, deadline: float) -> dict[str, Any]:
        """Return the answer of the child, which is ended if it gives none."""
        before = self._process
        try:
            return self._answer(self._running(), bytecode, deadline)
        except BaseException as error:  # also an interrupt: the rest of an answer must not be the next one
            was_running = before is not None and before is self._process
            reason = self._end()
            if isinstance(error, TimeoutError):
                raise
            if isinstance(error, (OSError, EOFError, RuntimeError, TypeError, ValueError)):
                # An idle child is ended by an alarm, which it resets when it reads a question.
                is_idle = was_running and reason.endswith("SIGALRM")
                raise (IdleError if is_idle else NoAnswerError)(reason or str(error)) from None
            raise

    def _running(self) -> socket.socket:
        """Return the connection to the child, which is started if it is not running."""
        if self._connection is not None and self._process is not None and self._process.poll() is None:
            return self._connection
        self._end()
        path = [os.path.abspath(entry) for entry in sys.path]
        ours, theirs = socket.socketpair()
        options = ["-I", "-S", *(["-B"] if sys.dont_write_bytecode else [])]
        program = str(Path(__file__).with_name("worker.py"))
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, *options, program, str(TIMEOUT_SECONDS), json.dumps(path)],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # an interrupt from the keyboard is for the program
                )
            except BaseException:
                ours.close()
                raise
        self._connection = ours
        # Collects the child when it ends by itself.
        threading.Thread(target=self._process.wait, name="jax_array_info", daemon=True).start()
        return ours

    def _answer(self, connection: socket.socket, bytecode: bytes, deadline: float) -> dict[str, Any]:
        """Send a question, and return the answer."""
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        connection.sendall(len(bytecode).to_bytes(8, "little") + bytecode)
        size = int.from_bytes(_received(connection, 8, deadline), "little")
        found: dict[str, Any] = json.loads(_received(connection, size, deadline))
        return found

    def _end(self) -> str:
        """End the child. Return how it ended by itself; empty if it did not."""
        process, self._process = self._process, None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if process is None:
            return ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(0.2)
            return f"the process ended with {_name(code)}"
        process.kill()
        process.wait()
        return ""

    def close(self) -> None:
        """End the child, unless this is a fork of the process that started it."""
        if os.getpid() == self._owner:
            with self._lock:
                self._end()


def _received(connection: socket.socket, size: int, deadline: float) -> bytes:
    """Return so many bytes."""
    parts = []
    while size:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        part = connection.recv(min(size, 1 << 20))
        if not part:
            raise EOFError("the process ended")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _name(code: int) -> str:
    """Return the text of an exit code: the name of a signal, or the number."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"exit code {code}"


_WORKERS: dict[int, Worker] = {}
"""The worker of each process: a fork has one of its own."""


def ask(bytecode: bytes) -> dict[str, Any]:
    """Return the facts of a module after Shardy's propagation, as ``worker.py`` describes them.

    Args:
        bytecode: The module.

    Raises:
        NoAnswerError: If the passes gave none.
    """
    return _worker().ask(bytecode)


def start() -> None:
    """Start the process that is about to be asked, while the caller does something else."""
    _worker().start()


def _worker() -> Worker:
    worker = _WORKERS.get(os.getpid())
    if worker is None:
        worker = _WORKERS.setdefault(os.getpid(), Worker())
        atexit.register(worker.close)
    return worker
