"""A recorder of the memory of this process over time."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import queue
import signal
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ...arrays.live.out_of_memory import KnownErrors, out_of_memory_errors
from ...base.errors import TrackerError, UnsupportedValueError, require
from ...base.quantities import LARGEST, format_number, parse_bytes
from ...base.text import clipped, plain_text
from ...compat.processes import has_backends
from ...facts.reports.compiles import Compilation
from ...facts.reports.record import EndReason, RecordCompilation
from ...xla.hlo.oom_logs import read_failed_allocation
from .in_use import MOST_ARRAYS, BytesInUse, InUse
from .recording import DIGITS, End, Failure, Moment, Recording, Request
from .stalls import MOST_MOVES, Moves

# The thread imports none of our modules: two threads that import them at the same time may see a part of one.

MAX_NBYTES = 256 * 2**20
"""Bytes of a record, by default."""
LEAST_NBYTES = 2**22
"""Least ``max_nbytes``."""
_LONGEST_EVERY = 86_400.0
_POLL = 0.05
"""Seconds between looks whether the program has started JAX."""
_MOST_WAITING = 1000
"""Number of marks that wait for the thread, or for the program's first device. More are dropped."""
_PATIENCE, _FOLDER_PATIENCE = 10.0, 1.0
"""Seconds for which the program waits for the last sample, and the part of them for the folder."""

_running: dict[int, MemoryRecorder] = {}
"""The recorder that runs, by process id: a fork has none."""


def record_memory(
    folder: str | os.PathLike[str], *, every: float = 1.0, max_nbytes: int | str = MAX_NBYTES
) -> MemoryRecorder:
    """Start to record the memory of this process over time, and return the recorder.

    A thread takes a sample every second: the bytes in use on each device of this process, and the live arrays
    by allocation site, shape, dtype and sharding. ``jai-cli top`` and ``jai-cli memory`` show the record, of
    all processes that write to the same folder.

    The recorder ends with its ``with`` block, with ``stop()``, or with the program.

    >>> import tempfile
    >>> with record_memory(tempfile.mkdtemp()) as recorder:
    ...     for step in range(3):
    ...         recorder.step(step)
    ...     with recorder.mark("eval"):
    ...         pass

    Args:
        folder: Folder for the files of the job, which may have other records. It is created.
        every: Seconds between samples. A sample that takes longer than 1/200 of it, because there are very
            many arrays, makes the time to the next one longer: the recorder takes at most 0.5 % of a core.
        max_nbytes: Bytes for the files of this process in the folder, also those of earlier recorders, as a
            number or as text such as ``"256MiB"``; at least 4 MiB. Past it, older samples are removed: of two
            neighbors, the one with more bytes in use stays. Marks stay.

    Raises:
        OSError: If the folder cannot be created, or no file in it.
        TrackerError: (a RuntimeError) If a recorder runs already in this process. The one that
            ``jai-cli run --record`` has started is returned instead, with a warning.
        UnsupportedValueError: (a ValueError) If an argument is out of its bounds.
    """
    every, max_nbytes = _checked_every(every), _checked_nbytes(max_nbytes)
    caller = sys._getframe(1)
    place = caller.f_code.co_filename, caller.f_lineno
    running = _running.get(os.getpid())
    if running is not None and running._is_shared:
        running._share(place)
        return running
    _require_alone(None)
    return MemoryRecorder(require_folder(folder), every, max_nbytes, place)


def record_program(folder: str | os.PathLike[str]) -> Callable[[BaseException], None]:
    """Record a whole program, as ``jai-cli run --record`` does, and return what ends it with an error.

    The program's own calls of ``record_memory`` return the same recorder, which they do not end. One that the
    program has started before is used instead.

    Args:
        folder: Folder for the files of the job.

    Raises:
        OSError: If the folder cannot be created, or no file in it.
    """
    place = require_folder(folder)
    running = _running.get(os.getpid())
    if running is None:
        running = MemoryRecorder(place, 1.0, MAX_NBYTES, ("jai-cli", 1))
    else:
        running._redirect(place)
    running._is_shared = True
    return running._end_with


def _require_alone(recorder: MemoryRecorder | None) -> None:
    """Raise TrackerError if another recorder runs in this process."""
    other = _running.get(os.getpid())
    if other is not None and other is not recorder:
        raise TrackerError(
            f"this process is already recorded to {plain_text(other._folder)}: call the stop() of that"
            " recorder first"
        )


def require_folder(folder: Any) -> Path:
    """Create a folder if it is missing, check that a file can be created in it, and return its whole path.

    Raises:
        OSError: If one of them cannot be created.
        UnsupportedValueError: (a ValueError) If ``folder`` is not a path.
    """
    require(folder, (str, os.PathLike), "the path of a folder")
    path = Path(os.path.realpath(os.fsdecode(folder)))  # later, links are not followed
    path.mkdir(parents=True, exist_ok=True)
    probe = path / f".jai-{os.getpid()}-{time.time_ns()}.part"
    # os.access knows neither read-only file systems nor full disks.
    with open(probe, "xb"):
        probe.unlink()
    return path


def _checked_every(every: Any) -> float:
    is_number = isinstance(every, (int, float)) and not isinstance(every, bool)
    if not is_number or not 0 < every <= _LONGEST_EVERY:
        raise UnsupportedValueError(
            f"every={every!r} is not a number of seconds between samples: above 0, at most {_LONGEST_EVERY:g}"
        )
    return float(every)


def _checked_nbytes(nbytes: Any) -> int:
    found = nbytes
    if isinstance(nbytes, str):
        try:
            found = parse_bytes(nbytes)
        except ValueError as error:
            raise UnsupportedValueError(f"max_nbytes {error}") from error
    if type(found) is not int or found < LEAST_NBYTES:
        raise UnsupportedValueError(f"max_nbytes={nbytes!r} is not a size of 4 MiB or more, such as '256MiB'")
    return found


class MemoryRecorder:
    """Recorder of the memory of this process over time. ``record_memory`` starts and returns it.

    It keeps no array alive and never waits for a computation. Its methods may be called in any thread and in
    signal handlers; after the end, and in a fork of the process, they do nothing.
    """

    def __init__(self, folder: Path, every: float, max_nbytes: int, place: tuple[str, int]) -> None:
        self._pid = os.getpid()
        self._every, self._max_nbytes = every, max_nbytes
        self._is_shared = False
        self._recording: Recording | None = None
        self._bytes: BytesInUse | None = None
        self._place = place
        self._folder = folder
        self._step: int | None = None
        self._moves: Moves = deque(maxlen=MOST_MOVES)
        # Putting into this queue takes no lock that a fork or a signal handler could find locked.
        self._requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._known_errors: KnownErrors | None = None
        self._is_announced = False
        self._is_over = False
        _running.setdefault(self._pid, self)
        _require_alone(self)
        self._thread = threading.Thread(target=self._run, name="jax_array_info recorder", daemon=True)
        try:
            with _blocked_signals():
                self._thread.start()
        except BaseException:  # too many threads
            _running.pop(self._pid)
            raise
        _end_before_jax()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop. After an out-of-memory error, first record all arrays that are alive."""
        if not self._is_shared:
            self._end_with(error)
        elif error is not None:
            self.record_error(error)

    def _end_with(self, error: BaseException | None) -> None:
        """End the record with the reason."""
        if error is None or isinstance(error, GeneratorExit):
            self._end("stopped")
        elif isinstance(error, SystemExit) and not error.code:
            self._end("exited")
        else:
            self.record_error(error)
            self._end("raised", _first_line(error))

    def step(self, number: int | None = None) -> None:
        """Name the current step: samples and marks have the number of the last step. Takes less than 1 µs.

        From the third step on, one of 60 seconds and ten times the median is recorded with the stacks.

        Args:
            number: Number of the step. Defaults to one more than the last; the first is 1.

        Raises:
            UnsupportedValueError: (a ValueError) If ``number`` is not an int of 64 bits. The value of a
                ``jax.Array`` would have to be waited for.
        """
        if number is None:
            number = (self._step or 0) + 1
        elif type(number) is not int or not -LARGEST <= number <= LARGEST:
            number = _plain_step(number)
        if number != self._step:
            self._moves.append((time.monotonic(), threading.get_ident()))
        self._step = number

    def mark(self, name: str) -> Mark:
        """Name the current moment, such as the begin of an evaluation, with the bytes in use.

        They are those of the allocator. Without its statistics, the live arrays are counted, for at most
        5 ms: with many thousands, the bytes are unknown.

        The part of the program that has this name ends at the next mark. As ``with recorder.mark("eval"):``,
        it ends with the block. Of more than 1,000 marks within milliseconds, some are not recorded.

        Args:
            name: The name. Marks with the same name are shown as one.

        Raises:
            UnsupportedValueError: (a ValueError) If ``name`` is not text.
        """
        require(name, str, 'a name for a mark, such as "eval"')
        name = clipped(plain_text(name))
        return Mark(self, name, self._begin(name))

    def _begin(self, name: str) -> float | None:
        """Record the begin of a part, and return its time; None if it is not recorded."""
        if self._is_running() and self._requests.qsize() < _MOST_WAITING:
            return self._put_mark(name, None)
        return None

    def stop(self) -> None:
        """Take a last sample and end the record. The record of ``jai-cli run --record`` goes on."""
        if not self._is_shared:
            self._end("stopped")

    def record_error(self, error: BaseException) -> None:
        """Record an out-of-memory error of JAX with all arrays that are alive, once. Raise nothing.

        ``report_on_oom`` and the ``with`` block of the recorder call it. Other errors are ignored.

        Args:
            error: The error, or one whose cause or context it is.
        """
        if not self._is_running() or isinstance(error, (KeyboardInterrupt, SystemExit)):
            return
        with contextlib.suppress(Exception):
            self._known_errors = known = self._known_errors or KnownErrors()
            cause = next((found for found in out_of_memory_errors(error) if found not in known), None)
            if cause is None:
                return
            known.add(cause)
            allocation = read_failed_allocation(str(cause))
            requested = None if allocation is None else allocation.requested_nbytes
            message = clipped(plain_text(cause).strip().partition("\n")[0])
            failure = Failure(time.time(), message, requested, threading.Event())
            self._requests.put(failure)
            self._wait(failure.written.wait)

    def _put_mark(self, name: str, begin: float | None) -> float:
        """Send a mark to the thread, with the bytes in use now, and return its time.

        Args:
            name: Name of the part.
            begin: Time at which the part began that ends now; None for a begin.
        """
        now = time.time()
        self._requests.put(Moment(now, name, self._step, begin is not None, self._bytes_in_use(), begin))
        return now

    def _bytes_in_use(self) -> InUse | None:
        """Return the bytes in use, as far as they are known; None before JAX has devices."""
        with contextlib.suppress(Exception):
            if self._bytes is None:
                if not _has_backend():
                    return None
                import jax

                self._bytes = BytesInUse(jax.local_devices())
            count = self._recording.live_count if self._recording else 0
            return self._bytes.read() if count <= MOST_ARRAYS else InUse()
        return InUse()

    def _redirect(self, folder: Path) -> None:
        """Record to the folder of the command. JAX has no devices yet, so nothing is recorded so far."""
        self._folder, self._every, self._max_nbytes = folder, 1.0, MAX_NBYTES
        self._share(self._place)

    def _share(self, place: tuple[str, int]) -> None:
        """Warn once that the recorder of the command is used."""
        if not self._is_announced:
            self._is_announced = True
            folder = plain_text(self._folder)
            message = f"jai-cli run records the memory of this program to {folder}: that recorder is used"
            with contextlib.suppress(UserWarning):  # where warnings are errors, the program goes on
                warnings.warn_explicit(message, UserWarning, *place)

    def _wait(self, is_done: Callable[[float], object]) -> None:
        """Wait for the thread, at most 10 seconds, and for the folder at most one of them.

        Args:
            is_done: Waits so many seconds, and returns whether the thread has done what was asked for.
        """
        recording = self._recording
        deadline = time.monotonic() + _PATIENCE
        before = recording.folder_seconds if recording else 0.0
        while not is_done(_POLL) and self._thread.is_alive() and time.monotonic() < deadline:
            if recording and recording.folder_seconds - before > _FOLDER_PATIENCE:
                return

    def _is_running(self) -> bool:
        # When Python ends, modules are empty by the time that the last generators are closed.
        try:
            return not self._is_over and _running.get(os.getpid()) is self
        except Exception:
            return False

    def _end(self, reason: EndReason, message: str = "") -> None:
        if self._is_running():
            self._requests.put(End(reason, message))
            self._wait(self._joined)
            self._forget()

    def _joined(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _forget(self) -> None:
        self._is_over = True
        _running.pop(self._pid, None)

    def _at_exit(self) -> None:
        self._end("exited")

    def _run(self) -> None:
        """Record until the end. This is the thread."""
        try:
            early = self._wait_for_backend()
            if early is None:
                return
            self._recording = Recording(
                self._folder, self._every, self._max_nbytes, lambda: self._step, moves=self._moves
            )
            self._recording.run(self._requests, early, self._warn)
        except Exception as error:
            self._warn(f"the memory of this process is no longer recorded: {_first_line(error)}")
        finally:
            if _running.get(self._pid) is self:
                self._forget()

    def _warn(self, message: str) -> None:
        """Warn at the line that started the recorder. The thread goes on if warnings are errors."""
        with contextlib.suppress(Exception):
            warnings.warn_explicit(message, UserWarning, *self._place)

    def _wait_for_backend(self) -> list[Moment] | None:
        """Wait until JAX has devices, without starting it, and return the marks before; None at the end."""
        marks: deque[Moment] = deque(maxlen=_MOST_WAITING)
        while not _has_backend():
            with contextlib.suppress(queue.Empty):
                request = self._requests.get(timeout=_POLL)
                if isinstance(request, Moment):
                    marks.append(request)
                elif _has_backend():
                    self._requests.put(request)  # JAX has started since: there is something to record
                elif isinstance(request, Failure):
                    request.written.set()
                elif isinstance(request, End):
                    return None
        return list(marks)


@functools.cache
def _end_before_jax() -> None:
    """Make the recorder end with the program, while JAX has its devices."""

    def register() -> None:
        recorder = _running.get(os.getpid())
        if recorder is not None:
            atexit.register(recorder._at_exit)

    # Exit handlers run in reverse order, and JAX registers its own when it is imported.
    threading._register_atexit(register)  # type: ignore[attr-defined]  # runs before exit handlers


def _has_backend() -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and not getattr(jax.__spec__, "_initializing", False) and has_backends()


@contextlib.contextmanager
def _blocked_signals() -> Iterator[None]:
    """Block signals in the threads that start meanwhile: they are for the threads of the program."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    faults = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - faults)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Mark:
    """A mark of a recorder. As a context manager, it ends with the block; a further block begins it again."""

    def __init__(self, recorder: MemoryRecorder, name: str, begin: float | None) -> None:
        self._recorder = recorder
        self._name = name
        self._begin = begin
        self._is_over = False

    def __enter__(self) -> Self:
        if self._is_over:
            self._begin, self._is_over = self._recorder._begin(self._name), False
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        recorder = self._recorder
        if error is not None:
            recorder.record_error(error)  # while this mark lasts
        if self._begin is not None and not self._is_over and recorder._is_running():
            recorder._put_mark(self._name, self._begin)
        self._is_over = True


def record_out_of_memory(error: BaseException) -> None:
    """Tell the recorder of this process, if there is one, of an error. Raise nothing."""
    recorder = _running.get(os.getpid())
    if recorder is not None:
        recorder.record_error(error)


def record_recompilation(compilation: Compilation) -> None:
    """Tell the recorder of this process, if there is one, of a recompilation."""
    recorder = _running.get(os.getpid())
    if recorder is not None and recorder._is_running() and recorder._requests.qsize() < _MOST_WAITING:
        recorder._requests.put(
            RecordCompilation(
                time=round(time.time(), DIGITS),
                function=clipped(compilation.function),
                origin=compilation.origin,
                seconds=compilation.seconds,
                reason=clipped(compilation.reason),
                step=recorder._step,
            )
        )


def _first_line(error: BaseException) -> str:
    text = plain_text(error).strip().partition("\n")[0]
    return clipped(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def _plain_step(number: Any) -> int:
    import numpy as np

    is_int = isinstance(number, (int, np.integer)) and not isinstance(number, bool)
    if is_int and -LARGEST <= number <= LARGEST:
        return int(number)
    got = format_number(int(number)) if is_int else type(number)
    raise UnsupportedValueError(f"the number of a step must be an int of 64 bits, got {got}")
