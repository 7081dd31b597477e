"""The thread of a recorder: what the program asks of it, and the samples that it reads and writes."""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ...base.files import LostError
from ...base.text import plain_text
from ...compat.processes import has_backends, process_count, process_index
from ...compat.shardings import device_name
from ...facts.reports.record import (
    EndReason,
    RecordCompilation,
    RecordDevice,
    RecordEnd,
    RecordMark,
    RecordOutOfMemory,
    RecordSample,
    RecordStall,
    RecordStart,
)
from ..devices import device_memory
from .in_use import InUse, LiveGroup, LiveGroups, process_nbytes
from .segments import Segment, identity, thin_segments
from .stalls import Moves, Watch

SEGMENTS = 16
"""A segment ends at this part of ``max_nbytes``."""

_SHARE = 200
"""The time of a core for a sample is at most this part of the time to the next one. The program loses up to
twice as much, while it waits for Python's lock."""
_YIELD = 0.0002
"""Seconds of sleep after which another thread that waits has had Python's lock."""
DIGITS = 6
"""Digits of times: a mark and an error in it are microseconds apart."""
_TRIES = 5
"""Number of times that the arrays are listed, if some were freed before they were read."""
_MOST_LEFT_OUT = 10
"""Number of samples after each other that are left out, if some were freed each time."""
_RETRY = 60.0
"""Seconds after which writing is tried again where it failed."""
_IS_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors after which the segment goes on where it is: a new one would be as empty as the next."""
_MOST_WARNINGS = 100
_MOST_MISSED = 1000
"""Number of marks and errors that are kept while nothing can be written."""
_AT_ONCE = 250
"""Number of marks that are written at once. Where another thread never waits, as one that only marks, each
operation on a file costs the 5 ms after which Python hands over its lock."""


class Moment(NamedTuple):
    """A mark, on its way to the thread."""

    time: float
    name: str
    step: int | None
    is_end: bool
    bytes: InUse | None = InUse()
    """Bytes in use at this moment; None before JAX has devices."""
    begin: float | None = None
    """Time at which the part began that ends here."""


class Failure(NamedTuple):
    """An allocation that failed, on its way to the thread."""

    time: float
    message: str
    requested_nbytes: int | None
    written: threading.Event
    """Set when the arrays that were alive have been recorded."""


class End(NamedTuple):
    """The end of the recorder, on its way to the thread."""

    reason: EndReason
    message: str


Request: TypeAlias = "Moment | Failure | RecordCompilation | End"


def _pause() -> None:
    time.sleep(_YIELD)


class Recording:
    """Record of this process: segments with samples and marks. Used by one thread."""

    def __init__(
        self,
        folder: Path,
        every: float,
        max_nbytes: int,
        step: Callable[[], int | None],
        memory_of: Callable[[Any], dict[str, int | None]] = device_memory,
        moves: Moves | None = None,
    ) -> None:
        """Begin a record, once JAX has devices.

        Args:
            folder: Folder of the record.
            every: Seconds between samples.
            max_nbytes: Bytes for the files of this process.
            step: Returns the last step.
            memory_of: Returns bytes in use, peak and limit of a device.
            moves: Changes of the step, which tell stalls; None for none.
        """
        import jax

        self._folder, self._every, self._max_nbytes = folder, every, max_nbytes
        self._step, self._memory_of = step, memory_of
        self._watch = Watch(step, deque() if moves is None else moves)
        self._devices: Sequence[Any] = jax.local_devices()
        self._live = LiveGroups(self._devices)
        self._started = time.time()
        self._segment: Segment | None = None
        self._segment_count = 0
        self._numbers: dict[LiveGroup, int] = {}
        self._thinning: Iterator[None] = iter(())
        self._warn: Callable[[str], None] = lambda message: None
        self._said: set[str] = set()
        self._missed: deque[RecordMark | RecordOutOfMemory | RecordStall | RecordCompilation] = deque(
            maxlen=_MOST_MISSED
        )
        self._is_first = True
        self._left_out = 0
        # Times of time.monotonic.
        self._sample_at = 0.0
        self._retry_at = 0.0
        self._thin_at = float("inf")
        self._in_folder: float | None = None
        self._folder_seconds = 0.0

    @property
    def live_count(self) -> int:
        """Number of live arrays in the last sample."""
        return self._live.count

    @property
    def folder_seconds(self) -> float:
        """Seconds for which the folder was waited for so far. Any thread may ask."""
        since = self._in_folder
        return self._folder_seconds + (0.0 if since is None else time.monotonic() - since)

    def run(
        self, requests: queue.SimpleQueue[Request], early: Iterable[Moment], warn: Callable[[str], None]
    ) -> None:
        """Record until the end is requested.

        Args:
            requests: Marks, errors and the end.
            early: Marks from before.
            warn: Warns the user; called at most once for each subject.
        """
        self._warn = warn
        self._write()
        for mark in early:
            self._missed.append(self._line_of(mark))
        is_over = False
        while not is_over:
            wait = min(self._sample_at, self._thin_at, self._watch.look_at) - time.monotonic()
            try:
                # Marks come first: they are from before the next sample. Very many do not delay it for ever.
                request = requests.get(timeout=max(wait, 0.0)) if wait > -self._every else None
            except queue.Empty:
                request = None
            match request:
                case None:
                    self._work()
                case Moment() | RecordCompilation():
                    self._missed.append(
                        request if isinstance(request, RecordCompilation) else self._line_of(request)
                    )
                    if requests.empty() or len(self._missed) >= _AT_ONCE:
                        self._write()
                case Failure():
                    self._fail(request)
                case End():
                    self.sample()
                    self._write(RecordEnd(time=_now(), reason=request.reason, message=request.message))
                    is_over = True
        self._close()

    def _work(self) -> None:
        """Look for a stall if it is time, else take a sample, else remove a few older ones."""
        now = time.monotonic()
        if now >= self._watch.look_at:
            self._look(now)
        elif now >= self._sample_at:
            self.sample()
        elif now >= self._thin_at:
            before = time.thread_time()
            with self._waiting():
                try:
                    is_done = next(self._thinning, self) is self
                except OSError:
                    is_done = True  # the folder is gone
                except Exception as error:
                    is_done = True
                    self._warn_once("thinning", f"{type(error).__name__}: older samples are not removed")
            taken = _SHARE * (time.thread_time() - before)
            self._thin_at = float("inf") if is_done else time.monotonic() + taken

    def _look(self, now: float) -> None:
        """Write the stall that lasts now, unless it is written."""
        with contextlib.suppress(Exception):  # such as of a thread whose name is not told
            self._missed += filter(None, [self._watch.stall(now)])
        self._write()

    def _line_of(self, mark: Moment) -> RecordMark:
        self._watch.mark(mark.time, mark.name, mark.step, mark.begin)
        use = InUse((0,) * len(self._devices)) if mark.bytes is None else mark.bytes
        return RecordMark(
            time=round(mark.time, DIGITS),
            name=mark.name,
            step=mark.step,
            is_end=mark.is_end,
            begin=None if mark.begin is None else round(mark.begin, DIGITS),
            in_use=use.in_use,
            peak=use.peak,
        )

    def _fail(self, failure: Failure) -> None:
        try:
            line = RecordOutOfMemory(
                time=round(failure.time, DIGITS),
                message=failure.message,
                requested_nbytes=failure.requested_nbytes,
                step=self._step(),
            )
            self._missed.append(line)
            self._write()
            self.sample(is_full=True)
        finally:
            failure.written.set()

    def sample(self, *, is_full: bool = False) -> None:
        """Write a sample, and set the time of the next one."""
        start, before = time.monotonic(), time.thread_time()
        # A program may have cleared its backends: looking must not start new ones.
        if start >= self._retry_at and has_backends():
            self._read_and_write(is_full)
        # The first sample fills caches.
        taken = 0.0 if self._is_first else time.thread_time() - before
        self._is_first = False
        self._sample_at = max(start + self._every, time.monotonic() + _SHARE * taken)

    def _read_and_write(self, is_full: bool) -> None:
        import jax

        memory = self._memory()
        for _ in range(_TRIES):
            moment, step = _now(), self._step()
            lost = self._live.update(jax.live_arrays, _pause)
            if not lost:
                break
        if lost and not is_full and self._left_out < _MOST_LEFT_OUT:
            self._left_out += 1
            return  # without these arrays, the bytes would be too few
        self._left_out = 0
        groups = (
            sorted(self._live.live, key=lambda group: -group.nbytes)
            if is_full
            else self._live.largest(_pause)
        )
        in_use, peak = InUse.of(memory, self._live.device_nbytes)
        other_nbytes = list(self._live.device_nbytes)
        for group in groups:
            for place in group.facts.devices:
                other_nbytes[place] -= group.count * group.facts.shard_nbytes
        sample = RecordSample(
            time=moment,
            step=step,
            in_use=in_use,
            peak=peak,
            counts=tuple(group.count for group in groups),
            other_nbytes=tuple(other_nbytes) if any(other_nbytes) else (),
            process_nbytes=process_nbytes(),
            own_nbytes=self._live.own_nbytes,
        )
        self._write(sample, groups)

    def _memory(self) -> list[dict[str, int | None]]:
        return [self._memory_of(device) for device in self._devices]

    def _write(
        self,
        line: RecordSample | RecordEnd | None = None,
        groups: Sequence[LiveGroup] = (),
    ) -> None:
        """Append a line to the segment, after the marks and errors that are not written yet.

        They go to a new segment if this one is full, or the program has closed it.

        Args:
            line: The line; None for none.
            groups: Groups of a sample, which are written before it unless the segment has them.
        """
        if time.monotonic() < self._retry_at:
            return
        with self._waiting():
            for _ in range(_TRIES):
                try:
                    segment = self._opened()
                    while self._missed:
                        lines = [*islice(self._missed, _AT_ONCE)]
                        segment.write(*lines)
                        for _ in lines:
                            self._missed.popleft()
                    self._append(segment, line, groups)
                    return
                except LostError:
                    self._close()
                    message = "the program has closed a file of its memory record, which goes on in a new one"
                    self._warn_once("closed", message)
                except OSError as error:
                    self._stop_writing(error)
                    return

    def _append(
        self,
        segment: Segment,
        line: RecordSample | RecordEnd | None,
        groups: Sequence[LiveGroup],
    ) -> None:
        for group in groups:
            if group not in self._numbers:
                number = len(self._numbers)
                segment.write(replace(group.facts, id=number))
                self._numbers[group] = number
        if isinstance(line, RecordSample):
            line = replace(line, groups=tuple(self._numbers[group] for group in groups))
        if line is not None:
            segment.write(line)

    def _opened(self) -> Segment:
        """Return the segment; a new one if there is none or the last one is full."""
        if self._segment is not None and self._segment.nbytes * SEGMENTS < self._max_nbytes:
            return self._segment
        self._close()
        self._numbers = {}
        process = process_index()
        os.makedirs(self._folder, exist_ok=True)
        self._segment = Segment(self._folder, process, time.time())
        memory = self._memory()
        has_statistics = any(statistics["bytes_in_use"] is not None for statistics in memory)
        self._segment.write(
            RecordStart(
                time=_now(),
                started=round(self._started, DIGITS),
                segment=self._segment_count,
                process=process,
                process_count=process_count(),
                **identity()._asdict(),
                platform=plain_text(self._devices[0].platform) if self._devices else "?",
                devices=tuple(
                    RecordDevice(
                        id=int(device.id), name=device_name(device), bytes_limit=statistics["bytes_limit"]
                    )
                    for device, statistics in zip(self._devices, memory, strict=True)
                ),
                in_use_source="allocator" if has_statistics else "arrays",
                every=self._every,
            )
        )
        self._segment_count += 1
        limit = self._max_nbytes - self._max_nbytes // SEGMENTS
        self._thinning = thin_segments(self._folder, process, limit, self._leave_out)
        self._thin_at = time.monotonic()
        return self._segment

    def _close(self) -> None:
        segment, self._segment = self._segment, None
        if segment is not None:
            with self._waiting():
                segment.close()

    def _stop_writing(self, error: OSError) -> None:
        """Write nothing for a minute. The program goes on."""
        has_lines = self._segment is not None and self._segment.nbytes
        if not has_lines or error.errno not in _IS_FULL:
            self._close()
        self._retry_at = time.monotonic() + _RETRY
        self._thin_at = float("inf")
        self._warn_once(
            "writing",
            f"the memory of this process cannot be recorded to {plain_text(self._folder)}:"
            f" {error.strerror or error}. It is tried again every minute.",
        )

    def _leave_out(self, name: str, reason: str) -> None:
        """Say once that a file does not count for the limit of the record."""
        place = plain_text(self._folder)
        self._warn_once(name, f"{name} in {place} is left alone, and not part of max_nbytes: {reason}")

    def _warn_once(self, subject: str, message: str) -> None:
        if subject not in self._said and len(self._said) < _MOST_WARNINGS:
            self._said.add(subject)
            self._warn(message)

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """Measure the time for which the folder is waited for."""
        if self._in_folder is not None:
            yield
            return
        self._in_folder = start = time.monotonic()
        try:
            yield
        finally:
            self._folder_seconds += time.monotonic() - start
            self._in_folder = None


def _now() -> float:
    return round(time.time(), DIGITS)
