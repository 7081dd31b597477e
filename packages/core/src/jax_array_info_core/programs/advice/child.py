"""A child process that answers messages, one after another, and leaves nothing behind.

Messages are pickled: both ends are this package.
"""

from __future__ import annotations

import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import IO, Any, NamedTuple

from ...base.sockets import receive, send
from ...base.text import printable
from .search import EndedError, TimeOverError
from .watcher import SIGNALLED, names_outside

_BOOTSTRAP = (  # imports nothing of the current directory
    "import sys; end = int(sys.argv[1]); sys.path[:] = sys.argv[2:end]; del sys.argv[1:end]; "
    "from jax_array_info_core.programs.advice.watcher import watched; watched(int(sys.argv[2])); "
    "__import__(sys.argv.pop(1), fromlist=['main']).main()"
)
_STDOUT, _STDERR = 1, 2
_CHECK = re.compile(rb"^F\d{4} [^\]\n]*\] *(.+)", re.MULTILINE)
"""A line of XLA's log about a check that failed, which is followed by the stack in C++."""
_LONGEST = 200


class _Step(NamedTuple):
    words: str


class Child:
    """A Python process that calls ``main`` of a module, which makes a ``Parent``.

    It has its own session, so that an interrupt from the keyboard does not end it, and neither input nor
    output. The session ends with ``close``, with this object, and with this process: a process above the
    child watches the other end of the socket.
    """

    def __init__(self, ours: socket.socket, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
        self._ours = ours
        self._process = process
        self._log = log
        self.left: list[str] = []
        """Names of the processes that it has started in other sessions, which do not end with it."""

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
        try:
            with theirs:
                log = tempfile.TemporaryFile()  # noqa: SIM115
                passed = (theirs.fileno(), log.fileno())
                return cls(ours, _process(passed, module, {**os.environ, **environment}, prints), log)
        except BaseException as error:  # an interrupt, too: then what has been started ends
            ours.close()
            if isinstance(error, Exception):
                raise EndedError(f"no process could be started: {error}") from error
            raise

    def ask(self, message: Any, deadline: float, on_step: Callable[[str], None] | None = None) -> Any:
        """Return the answer to a message. Both can be pickled.

        After any error, the child is ended.

        Args:
            message: The message.
            deadline: When to stop waiting, on ``time.monotonic``.
            on_step: The function that is called with each step that the child begins.

        Raises:
            EndedError: If the child ends.
            TimeOverError: If there is no answer at the deadline.
        """
        try:
            data = pickle.dumps(message)
            with suppress(ConnectionError):  # the answer tells
                send(self._ours, data, deadline)
            while isinstance(answer := _message(self._ours, deadline), _Step):
                if on_step is not None:
                    on_step(answer.words)
            return answer
        except TimeoutError:
            self.close()
            raise TimeOverError from None
        except (OSError, EOFError):
            check = self._check()
            self.close()
            raise EndedError(f"the process that compiles ended{self._how()}{check}") from None
        except BaseException:  # an interrupt: its answer must not be the next one
            self.close()
            raise

    def close(self) -> None:
        """End the child and what it has started in its session, and wait for the end."""
        if self._process.poll() is None and self._ours.fileno() >= 0:
            self.left = names_outside(self._process.pid)
        self._ours.close()
        self._process.wait()
        self._log.close()

    def __del__(self) -> None:
        """End the child if an interrupt came before ``close``."""
        self._ours.close()
        self._process.wait()

    def _how(self) -> str:
        code = self._process.returncode
        names = {SIGNALLED + number.value: number.name for number in signal.Signals}
        return f" with {names.get(code, f'exit code {code}')}" if code else ""

    def _check(self) -> str:
        """Return the check in C++ that failed, as ``: Check failed: …``; empty if none did."""
        if self._log.closed:
            return ""
        self._log.seek(0)
        found = [*_CHECK.finditer(self._log.read())]
        return f": {printable(found[-1][1].decode(errors='replace'))[:_LONGEST]}" if found else ""


def _process(
    passed: tuple[int, int], module: str, environment: dict[str, str], prints: bool
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
            *(module, *map(str, passed)),
        ],
        stdin=subprocess.DEVNULL,
        stdout=_STDERR if prints else subprocess.DEVNULL,
        stderr=None if prints else subprocess.DEVNULL,
        pass_fds=passed,
        env=environment,
        start_new_session=True,
    )


def _message(connection: socket.socket, deadline: float | None = None) -> Any:
    """Return the next message."""
    return pickle.loads(receive(connection, deadline))  # noqa: S301


class Parent:
    """The process that has started this one, in its child.

    Args:
        kept: The function that returns a copy of a descriptor which the user's code is not likely to close.
    """

    def __init__(self, kept: Callable[[int], int] = os.dup) -> None:
        number, log = int(sys.argv.pop(1)), int(sys.argv.pop(1))
        self._connection = socket.socket(fileno=kept(number))
        self._log = kept(log)
        os.close(number)
        os.close(log)

    def messages(self) -> Iterator[Any]:
        """Yield its messages, until it closes the socket or ends. Each is answered before the next."""
        while True:
            try:
                message = _message(self._connection)
            except (EOFError, OSError):
                return
            yield message

    def quiet(self) -> None:
        """Write the output of this process to a file, which is read for the reason of its end."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the user's own stream, or none
                stream.flush()
        for number in (_STDOUT, _STDERR):
            os.dup2(self._log, number)

    def begin(self, step: str) -> None:
        """Say which step of the answer begins, such as ``compiling f``."""
        self.answer(_Step(step))

    def answer(self, answer: Any) -> None:
        """Send the answer to a message."""
        reply = pickle.dumps(answer)
        try:
            send(self._connection, reply)
        except ConnectionError:  # it was interrupted
            os._exit(0)
