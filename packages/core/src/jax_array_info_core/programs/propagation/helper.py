"""A helper process, which runs Shardy's passes: a failed check in C++ ends its process, and not this one."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...base.files import Descriptor, LostError
from ...base.sockets import receive, receive_bytes, seconds_until, send
from .wire import Answer, Estimate, Reply, read_reply

TIMEOUT_SECONDS = 30
_END_SECONDS = 5
"""Time for an end that takes milliseconds."""


class NoAnswerError(Exception):
    """Shardy's passes gave no answer. The text is the reason."""


class EndedError(NoAnswerError):
    """The helper ended while it was asked."""


class Helper(NamedTuple):
    """A helper process."""

    connection: socket.socket
    """The socket to it. An interrupt would lose an object that belongs to a call."""

    socket: Descriptor
    """Its descriptor."""

    watcher: int
    """Number of the process that watches the worker, and ends with it or with the socket."""

    is_child: bool
    """Whether this process adopts orphans, such as the first process of a container."""

    def is_running(self) -> bool:
        """Return whether it can be asked. Without a question, it sends nothing but how it ended."""
        with contextlib.suppress(LostError):
            events = select.poll()
            events.register(self.socket.number, select.POLLIN)
            return not events.poll(0)
        return False

    def ask(self, question: bytes, deadline: float, count: int = 1) -> list[Reply]:
        """Send a question, and return so many replies.

        There are fewer after the deadline, and if it ends: then the last one has how.

        Raises:
            EndedError: If it ends before the first reply.
            TimeoutError: If there is no reply at the deadline.
        """
        connection = self.connection
        replies: list[Reply] = []
        try:
            self.socket.status()
            with contextlib.suppress(ConnectionError):  # how it ended is sent before
                send(connection, question, deadline)
            while len(replies) < count and (not replies or replies[-1].ended is None):
                replies.append(read_reply(receive(connection, deadline)))
        except TimeoutError:
            if not replies:
                raise
        except (OSError, EOFError, ValueError):
            replies.append(Reply(ended=""))
        if (how := replies[0].ended) is not None:
            raise EndedError(f"the helper process that ran Shardy ended{how}, and your program is safe")
        return replies

    def end(self) -> None:
        """End it. A child is waited for."""
        self.socket.close()
        self.let_go()
        deadline = time.monotonic() + _END_SECONDS
        with contextlib.suppress(ChildProcessError):
            while self.is_child and not os.waitpid(self.watcher, os.WNOHANG)[0]:
                if time.monotonic() > deadline:
                    os.kill(self.watcher, signal.SIGKILL)
                time.sleep(0.001)

    def let_go(self) -> None:
        """Leave the descriptor to the end of this process, which closes it."""
        self.connection.detach()


def start_helper(deadline: float, keep: Callable[[Helper], object]) -> Helper:
    """Start a helper, and return it.

    A thread starts it: an interrupt, which only the main thread gets, leaves nothing behind.

    Args:
        deadline: When to stop waiting for it.
        keep: Function that takes the helper, in that thread.

    Raises:
        NoAnswerError: If it cannot be started.
        TimeoutError: If it is not there at the deadline.
    """
    processes: list[subprocess.Popen[bytes]] = []
    results: list[Helper | Exception] = []
    is_over = threading.Event()
    # A lock: where an event is waited for, the error of a lock that is not held can replace an interrupt.
    running = threading.Lock()
    running.acquire()

    def run() -> None:
        try:
            helper = _started(deadline, processes, is_over)
            if is_over.is_set():
                helper.end()
            else:
                keep(helper)
            results.append(helper)
        except Exception as error:
            results.append(error)
        finally:
            running.release()

    try:
        # A Thread would wait for its start, where an interrupt loses it.
        _thread.start_new_thread(run, ())
        if not running.acquire(timeout=seconds_until(deadline)):
            raise TimeoutError
        if isinstance(results[0], Exception):
            raise results[0]
        return results[0]
    except TimeoutError:
        raise
    except EOFError:
        raise NoAnswerError("the helper process that runs Shardy ended when it was started") from None
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        results.append(error)  # it has one, or there is no thread
        raise NoAnswerError(str(error)) from None
    finally:
        is_over.set()
        for process in [*processes]:
            process.kill()  # unless it has ended
        if not results:
            running.acquire(timeout=_END_SECONDS)


def _started(deadline: float, processes: list[subprocess.Popen[bytes]], is_over: threading.Event) -> Helper:
    """Return a helper. A process starts it and ends at once, and is waited for.

    Args:
        deadline: When to stop waiting for the helper.
        processes: A list that has that process until it has ended.
        is_over: Whether the caller has stopped waiting.
    """
    if not sys.executable:
        raise NoAnswerError("the helper process needs a Python, and sys.executable names none")
    entries: list[object] = [*sys.path]  # Python ignores what is not text
    path = [os.path.abspath(entry) for entry in entries if isinstance(entry, str)]
    program = str(Path(__file__).with_name("watcher.py"))
    options = ["-I", "-S", *(["-B"] if sys.dont_write_bytecode else [])]
    arguments = [str(os.getpid()), str(TIMEOUT_SECONDS), json.dumps(path)]
    ours, theirs = socket.socketpair()
    theirs.setblocking(True)  # whatever the program set as the default: the worker waits for questions
    with contextlib.ExitStack() as failed:
        failed.enter_context(ours)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, *options, program, *arguments],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt from the keyboard is for the program
            )
        processes.append(process)
        if is_over.is_set():
            process.kill()
        process.wait()  # the program may have taken its exit code before
        processes.remove(process)  # so that it is deleted here, where no interrupt comes
        watcher = int.from_bytes(receive_bytes(ours, 8, deadline), "little")
        helper = Helper(ours, Descriptor(ours.fileno()), watcher, _is_child(watcher))
        failed.pop_all()
        return helper


def _is_child(process: int) -> bool:
    """Return whether this process has a child of this number."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process, os.WNOHANG)
        return True
    return False


class Worker:
    """A helper that answers one question at a time, started by the first one and after it ended.

    While nothing is asked, this process has no child: if it adopts the helper, each question has its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._helper: Helper | None = None
        self._adopts = False

    def ask(self, question: bytes, seconds: float = TIMEOUT_SECONDS) -> Reply:
        """Return the reply of the helper.

        Args:
            question: A module of MLIR as bytecode, perhaps with edits, or an expression as JSON.
            seconds: Time after which the helper is ended.

        Raises:
            NoAnswerError: If the helper cannot be started, ends, needs longer, or refuses the question.
        """
        (reply,) = self.ask_all(question, 1, seconds)
        if reply.error:
            raise NoAnswerError(reply.error)
        return reply

    def ask_all(self, question: bytes, count: int, seconds: float) -> list[Reply]:
        """Return so many replies of the helper, or those until it ends or the time is over.

        Raises:
            NoAnswerError: If there is none.
        """
        deadline = time.monotonic() + seconds
        with self._lock:
            try:
                before = self._helper
                helper = self._running(deadline)
                try:
                    replies = helper.ask(question, deadline, count)
                except EndedError:  # perhaps before it had the question
                    if helper is not before:
                        raise
                    self._end()
                    replies = self._running(deadline).ask(question, deadline, count)
            except BaseException as error:  # also an interrupt: its answer must not be the next one
                self._end()
                if isinstance(error, TimeoutError):
                    raise NoAnswerError(f"no answer within {seconds:g} s") from None
                raise
            if len(replies) < count:
                self._end()
            self._rest()
        return replies

    def start(self) -> None:
        """Start the helper, unless it runs, so that it is ready when it is asked, which finds any failure."""
        if self._adopts or not self._lock.acquire(blocking=False):
            return
        try:
            with contextlib.suppress(NoAnswerError, TimeoutError), contextlib.ExitStack() as stack:
                stack.callback(self._rest)
                self._running(time.monotonic() + TIMEOUT_SECONDS)
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the helper. It also ends with this process."""
        with self._lock:
            self._end()

    def let_go(self) -> None:
        """Leave the socket to the end of this process."""
        if self._helper is not None:
            self._helper.let_go()

    def _running(self, deadline: float) -> Helper:
        """Return the helper, which is started if it is not running."""
        helper = self._helper
        if helper is None or not helper.is_running():
            self._end()
            helper = start_helper(deadline, self._keep)
        return helper

    def _keep(self, helper: Helper) -> None:
        self._helper, self._adopts = helper, helper.is_child

    def _rest(self) -> None:
        """End the helper if it is a child: it would meet the program that waits for its children."""
        if self._adopts:
            self._end()

    def _end(self) -> None:
        if self._helper is not None:
            self._helper.end()
            self._helper = None


_WORKERS: dict[int, Worker] = {}
"""The worker of each process: a fork has one of its own."""


def ask(bytecode: bytes) -> Answer:
    """Return a module after Shardy's propagation.

    Args:
        bytecode: The module.

    Raises:
        NoAnswerError: If the passes gave none.
    """
    return ask_edited(bytecode, ())


def ask_edited(bytecode: bytes, edits: Sequence[tuple[Any, ...]]) -> Answer:
    """Return a module with edits after Shardy's propagation.

    Args:
        bytecode: The module.
        edits: Rows of ``advice.edits.Edit``.

    Raises:
        NoAnswerError: If the passes gave none.
    """
    question = _question({"edits": edits}, bytecode) if edits else bytecode
    if (answer := _worker().ask(question).answer) is None:
        raise NoAnswerError("the helper process gave no answer")
    return answer


def estimates(
    bytecode: bytes, edits: Sequence[Sequence[tuple[Any, ...]]], seconds: float
) -> list[Estimate | None]:
    """Return an estimate of a module for each list of edits.

    It is None where Shardy refuses the module or ends the helper, and after the time is over.

    Args:
        bytecode: The module.
        edits: Lists of rows of ``advice.edits.Edit``; an empty one for the module as it is.
        seconds: Time after which the helper is ended.
    """
    deadline = time.monotonic() + seconds
    found: list[Estimate | None] = []
    while len(found) < len(edits) and time.monotonic() < deadline:
        rest = edits[len(found) :]
        question = _question({"estimates": rest}, bytecode)
        try:
            found += [
                reply.estimate for reply in _worker().ask_all(question, len(rest), seconds_until(deadline))
            ]
        except EndedError:
            found.append(None)
        except NoAnswerError:
            break
    return found + [None] * (len(edits) - len(found))


def _question(header: dict[str, Any], bytecode: bytes) -> bytes:
    return json.dumps(header).encode() + b"\n" + bytecode


def ask_sent(question: bytes, seconds: float) -> int | None:
    """Return the bytes that a device sends for an expression; None if some are not known.

    Args:
        question: The expression and its operands, as JSON that ``programs/expressions.py`` reads.
        seconds: Time after which the helper is ended.

    Raises:
        NoAnswerError: If JAX refuses the expression, or there is no answer in time.
    """
    return _worker().ask(question, seconds).sent_nbytes


def start() -> None:
    """Start the process that is about to be asked, while the caller does something else."""
    _worker().start()


def _worker() -> Worker:
    return _WORKERS.setdefault(os.getpid(), Worker())


@atexit.register
def _let_go() -> None:
    """Let go of the sockets, also those of the process that was forked: Python warns of those it finds."""
    for worker in [*_WORKERS.values()]:
        worker.let_go()
