"""Questions to a helper process, which runs Shardy's passes: a failed check in C++ ends its process."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from typing import Any

from .helper import TIMEOUT_SECONDS, EndedError, Helper, NoAnswerError, start_helper


class Worker:
    """A helper that answers one question at a time, started by the first one and after it ended.

    While nothing is asked, this process has no child: if it adopts the helper, each question has its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._helper: Helper | None = None
        self._adopts = False

    def ask(self, bytecode: bytes, seconds: float = TIMEOUT_SECONDS) -> dict[str, Any]:
        """Return the answer of the helper.

        Args:
            bytecode: A module of MLIR.
            seconds: Time after which the helper is ended.

        Raises:
            NoAnswerError: If the helper cannot be started, ends, needs longer, or refuses the module.
        """
        deadline = time.monotonic() + seconds
        with self._lock:
            try:
                before = self._helper
                helper = self._running(deadline)
                try:
                    found = helper.ask(bytecode, deadline)
                except EndedError:  # perhaps before it had the question
                    if helper is not before:
                        raise
                    self._end()
                    found = self._running(deadline).ask(bytecode, deadline)
            except BaseException as error:  # also an interrupt: its answer must not be the next one
                self._end()
                if isinstance(error, TimeoutError):
                    raise NoAnswerError(f"no answer within {seconds:g} s") from None
                raise
            self._rest()
        if "error" in found:
            raise NoAnswerError(str(found["error"]))
        return found

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
    return _WORKERS.setdefault(os.getpid(), Worker())


@atexit.register
def _let_go() -> None:
    """Let go of the sockets, also those of the process that was forked: Python warns of those it finds."""
    for worker in [*_WORKERS.values()]:
        worker.let_go()
