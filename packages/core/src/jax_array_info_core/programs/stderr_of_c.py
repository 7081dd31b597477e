"""Lines that C and C++ write to standard error while a function runs.

XLA writes to the stream ``stderr`` of the C library. Only the descriptor of this stream is changed: what
Python and children write goes to file descriptor 2 directly.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import ctypes
import functools
import io
import os
import queue
import select
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from types import FrameType

Take = Callable[[bytes], int | None]

_PAUSE = 0.05
"""Seconds after which lines are passed on."""
_PATIENCE = 1
"""Seconds for which to wait for a full standard error that is not blocking. C itself would not wait."""
_FIELD = (18, ctypes.c_short) if sys.platform == "darwin" else (112, ctypes.c_int)
"""Place and type of the descriptor in C's ``FILE``, on systems of 64 bits."""
_IN_MEMORY = hasattr(os, "memfd_create")
_LARGE = 2**30
"""Bytes that all lines of a process may have."""
_FREE = 3
"""``FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE``: frees the memory of a part of a file."""

_alone = threading.Lock()
"""Held by the thread that has changed the stream: there is one for the whole process."""
_owner: list[int] = []
"""The Python thread whose function runs."""
_undo = contextlib.ExitStack()
"""Puts back what was changed."""


class _Action(ctypes.Structure):
    """What happens at a signal: ``struct sigaction`` on Linux."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ubyte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


def captured_from_c(function: Callable[[], object], take: Take) -> list[bytes] | None:
    """Call a function, and take lines out of C's standard error meanwhile. All others pass, in order.

    In several threads, one function runs after the other. Inside another function, nothing is captured.

    Args:
        function: The function.
        take: A function that returns the index at which the part of a line to take begins; None to take
            nothing. It is called in another thread, with each line and its line break.

    Returns:
        The lines; None if they cannot be captured.
    """
    taken: list[bytes] = []
    thread = threading.get_ident()
    process = os.getpid()
    over = threading.Lock()
    over.acquire()
    states: queue.SimpleQueue[bool] = queue.SimpleQueue()
    try:
        if thread in _owner:
            raise RuntimeError
        # Ctrl+C interrupts the main thread only. The new one undoes all, even if this frame ends by surprise.
        _thread.start_new_thread(_capture, (sys._getframe(), thread, taken, take, over, states))
    except RuntimeError:  # too many threads
        function()
        return None
    is_captured = states.get()
    try:
        function()
    finally:
        over.release()
        if os.getpid() == process:
            states.get()
    return taken if is_captured else None


def _capture(
    frame: FrameType,
    thread: int,
    taken: list[bytes],
    take: Take,
    over: threading.Lock,
    states: queue.SimpleQueue[bool],
) -> None:
    """Capture lines until a frame of a thread ends. Tell it when this begins and ends."""
    try:
        with _alone:
            log = _log()
            log.pass_on([], lambda line: None)
            with _undo:
                _owner.append(thread)
                _undo.callback(_owner.clear)
                log.begin()
                states.put(True)
                is_over = is_aborting = False
                while not (is_over or is_aborting):
                    is_over = over.acquire(timeout=_PAUSE) or not _is_running(frame, thread)
                    is_aborting = log.is_aborting()
                    log.pass_on(taken, take)
            log.pass_on(taken, take)
            if is_aborting:
                os.kill(os.getpid(), signal.SIGABRT)
    except (AttributeError, OSError, TypeError, ValueError):
        _log.cache_clear()  # the program may have closed the file
    finally:
        states.put(False)
        states.put(False)


def _is_running(frame: FrameType, thread: int) -> bool:
    """Return whether a frame is one of those that a thread runs."""
    found = sys._current_frames().get(thread)
    while found is not None and found is not frame:
        found = found.f_back
    return found is not None


@functools.cache
def _log() -> _Log:
    """Return the file of this process."""
    return _Log()


class _Log:
    """A file for what C's standard error gets. It stays open: what comes late is passed on later.

    No lock of the stream is held while Python code runs: who waits for it may have Python's own lock.
    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        name = "__stderrp" if sys.platform == "darwin" else "stderr"
        stream = ctypes.c_void_p.in_dll(self._library, name)
        place, kind = _FIELD
        self._field = kind.from_address((stream.value or 0) + place)
        self._real = self._field.value
        if self._real != self._library.fileno(stream):
            raise OSError  # this C library has the descriptor in another place
        self._signal = getattr(self._library, "sysv_signal", None)
        self._ours = _Action(flags=-1)
        import fcntl
        import resource

        if 0 <= resource.getrlimit(resource.RLIMIT_FSIZE)[0] < _LARGE:
            raise OSError  # lines past the limit would be lost
        with os.fdopen(os.memfd_create("log")) if _IN_MEMORY else tempfile.TemporaryFile() as file:
            # Not 0 to 2, if one of them is closed.
            self._descriptor = fcntl.fcntl(file.fileno(), fcntl.F_DUPFD_CLOEXEC, 3)
        self._first = os.fstat(self._descriptor)
        self._passed = self._size = 0

    def begin(self) -> None:
        """Capture lines until ``_undo`` is closed."""
        self._real = self._field.value
        _undo.callback(setattr, self._field, "value", self._real)
        self._field.value = self._descriptor
        if self._signal is not None:
            # A process that aborts sleeps first: meanwhile, Python's thread passes on the last lines. The
            # handler is removed when it runs. One in Python could wait forever, for a lock of what aborts.
            _undo.callback(self._restore, self._action())
            self._signal(signal.SIGABRT, self._library.sleep)
            self._ours = self._action()

    def _action(self) -> _Action:
        """Return what happens at SIGABRT."""
        action = _Action()
        self._library.sigaction(signal.SIGABRT, None, ctypes.byref(action))
        return action

    def is_aborting(self) -> bool:
        """Return whether the handler was removed because it runs."""
        action = self._action()
        return action.flags == self._ours.flags and not action.handler

    def _restore(self, action: _Action) -> None:
        """Put the handler from before back, unless there is a new one: none has these flags."""
        if self._action().flags == self._ours.flags:
            self._library.sigaction(signal.SIGABRT, ctypes.byref(action), None)

    def pass_on(self, taken: list[bytes], take: Take) -> None:
        """Take lines, and pass on all others. One that is not complete waits for the next call.

        Raises:
            OSError: If the program has closed the file.
        """
        state = os.fstat(self._descriptor)
        if not os.path.samestat(state, self._first):
            raise OSError
        data = os.pread(self._descriptor, state.st_size - self._passed, self._passed)
        if state.st_size != self._size:
            self._size = state.st_size
            data = data[: data.rfind(b"\n") + 1]
        self._passed += len(data)
        if _IN_MEMORY and data:
            self._library.fallocate(self._descriptor, _FREE, ctypes.c_long(0), ctypes.c_long(self._passed))
        passed = []
        for line in io.BytesIO(data):
            start = take(line)
            passed.append(line[:start])
            if start is not None:
                taken.append(line[start:])
        _write(self._real, b"".join(passed))


def _write(descriptor: int, data: bytes) -> None:
    """Write to standard error. If nothing can be written there any more, the data is lost."""
    with contextlib.suppress(OSError):
        while data:
            try:
                data = data[os.write(descriptor, data) :]
            except BlockingIOError:
                if not select.select([], [descriptor], [], _PATIENCE)[1]:
                    return


def _end() -> None:
    """Pass on what came late."""
    _undo.close()
    if _log.cache_info().currsize:
        with contextlib.suppress(OSError):
            _log().pass_on([], lambda line: None)


def _after_fork() -> None:
    """Put back what was changed, in a forked process."""
    global _alone
    _undo.close()
    _alone = threading.Lock()
    _log.cache_clear()


atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
