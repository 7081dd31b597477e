"""A child process that answers messages, one after another, and leaves nothing behind.

Messages are pickled: both ends are this package.
"""

from __future__ import annotations

import _thread
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from .search import TimeOverError, TryFailedError

_BOOTSTRAP = (  # imports nothing of the current directory
    "import sys; end = int(sys.argv[1]); sys.path[:] = sys.argv[2:end]; del sys.argv[1:end]; "
    "__import__(sys.argv.pop(1), fromlist=['main']).main()"
)
_POLL_SECONDS = 0.5
_STDERR = 2
_NO_SIGNAL: int = getattr(socket, "MSG_NOSIGNAL", 0)
"""No SIGPIPE where the child has ended, for programs that end by it."""
_CHUNK = 1 << 20


class EndedError(TryFailedError):
    """The child ended while it was asked: its memory was full, or a check in C++ failed."""


class _State(NamedTuple):
    """What the thread that owns the process shares with the object. It does not refer to the object."""

    is_started: threading.Event
    is_over: threading.Event
    is_done: threading.Event
    started: list[subprocess.Popen[bytes] | Exception]
    """The process, or why there is none."""


class Child:
    """A Python process that calls ``main`` of a module, which makes a ``Parent``.

    It has its own session, so that an interrupt from the keyboard does not end it, and neither input nor
    output. It ends with ``close``, with this object, and with this process. A thread owns it: an interrupt,
    which only the main thread gets, leaves nothing behind.
    """

    def __init__(self, ours: socket.socket, state: _State) -> None:
        self._ours = ours
        self._state = state

    @classmethod
    def start(cls, module: str, environment: Mapping[str, str], *, prints: bool = False) -> Child:
        """Start a child, and return it, perhaps before its module is imported.

        Args:
            module: The name of the module.
            environment: Variables of its environment that differ from those of this process.
            prints: Whether what it prints goes to standard error; else it is lost.

        Raises:
            EndedError: If it cannot be started.
        """
        ours, theirs = socket.socketpair()
        theirs.setblocking(True)  # whatever the program set as the default
        state = _State(threading.Event(), threading.Event(), threading.Event(), [])
        child = cls(ours, state)
        _thread.start_new_thread(_run, (state, theirs, module, {**os.environ, **environment}, prints))
        state.is_started.wait()
        if isinstance(problem := state.started[0], Exception):
            child.close()
            raise EndedError(f"no process could be started: {problem}")
        return child

    def ask(self, message: Any, deadline: float) -> Any:
        """Return the answer to a message. Both can be pickled.

        After any error, the child is ended.

        Args:
            message: The message.
            deadline: When to stop waiting, on ``time.monotonic``.

        Raises:
            EndedError: If the child ends.
            TimeOverError: If there is no answer at the deadline.
        """
        try:
            data = pickle.dumps(message)
            with suppress(ConnectionError):  # the answer tells
                self._ours.settimeout(_seconds_until(deadline))
                self._ours.sendall(len(data).to_bytes(8, "little") + data, _NO_SIGNAL)
            return _message(self._ours, deadline)
        except TimeoutError:
            self.close()
            raise TimeOverError from None
        except (OSError, EOFError):
            self.close()
            raise EndedError(f"the process that compiles ended{self._how()}") from None
        except BaseException:  # an interrupt: its answer must not be the next one
            self.close()
            raise

    def close(self) -> None:
        """End the child, and wait for its end."""
        self._state.is_over.set()
        self._state.is_done.wait()
        self._ours.close()

    def __del__(self) -> None:
        """End the child if an interrupt came before ``close``."""
        self._state.is_over.set()
        self._ours.close()

    def _how(self) -> str:
        code = getattr(self._state.started[0], "returncode", None)
        names = {-number.value: number.name for number in signal.Signals}
        # SIGKILL is that of its own end
        return f" with {names.get(code, f'exit code {code}')}" if code and code != -signal.SIGKILL else ""


def _run(
    state: _State, theirs: socket.socket, module: str, environment: dict[str, str], prints: bool
) -> None:
    """Start the process, and end it when it is over."""
    try:
        with theirs:
            state.started.append(_process(theirs.fileno(), module, environment, prints))
    except Exception as error:
        state.started.append(error)
    finally:
        state.is_started.set()
    process = state.started[0]
    if isinstance(process, subprocess.Popen):
        state.is_over.wait()
        with suppress(OSError, subprocess.TimeoutExpired):
            process.wait(_POLL_SECONDS / 10)  # the code of one that has ended by itself
        if process.poll() is None:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)  # also the processes that it has started
        with suppress(OSError):
            process.wait()
    state.is_done.set()


def _process(
    socket_number: int, module: str, environment: dict[str, str], prints: bool
) -> subprocess.Popen[bytes]:
    if not sys.executable:
        raise OSError("sys.executable names no Python")
    entries: list[object] = [*sys.path]  # Python ignores what is not text
    path = [os.path.abspath(entry) for entry in entries if isinstance(entry, str)]
    # Other flags than those of this process would change what a file imports.
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return subprocess.Popen(
        [
            *(sys.executable, *flags, "-c", _BOOTSTRAP, str(len(path) + 2), *path),
            *(module, str(socket_number), str(os.getpid())),
        ],
        stdin=subprocess.DEVNULL,
        stdout=_STDERR if prints else subprocess.DEVNULL,
        stderr=None if prints else subprocess.DEVNULL,
        pass_fds=[socket_number],
        env=environment,
        start_new_session=True,
    )


def _seconds_until(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)


def _received(connection: socket.socket, size: int, deadline: float | None) -> bytes:
    """Return so many bytes."""
    parts = []
    while size:
        connection.settimeout(None if deadline is None else _seconds_until(deadline))
        part = connection.recv(min(size, _CHUNK))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _message(connection: socket.socket, deadline: float | None) -> Any:
    """Return the next message."""
    size = int.from_bytes(_received(connection, 8, deadline), "little")
    return pickle.loads(_received(connection, size, deadline))  # noqa: S301


class Parent:
    """The process that has started this one, in its child."""

    def __init__(self) -> None:
        number, parent = int(sys.argv.pop(1)), int(sys.argv.pop(1))
        _thread.start_new_thread(_watch, (parent,))
        self._connection = socket.socket(fileno=number)
        self._connection.setblocking(True)

    def messages(self) -> Iterator[Any]:
        """Yield its messages, until it closes the socket or ends. Each is answered before the next."""
        while True:
            try:
                message = _message(self._connection, None)
            except (EOFError, OSError):
                return
            yield message

    def answer(self, answer: Any) -> None:
        """Send the answer to a message."""
        reply = pickle.dumps(answer)
        try:
            self._connection.sendall(len(reply).to_bytes(8, "little") + reply)
        except ConnectionError:  # it was interrupted
            os._exit(0)


def _watch(parent: int) -> None:
    """End this process when its parent has ended."""
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os._exit(0)
