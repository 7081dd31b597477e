"""Runs of a process: the recorders that continue each other."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import NamedTuple

from ..reports.record import RecordEnd, RecordStart
from .reading import SegmentReader
from .segments import is_written

_LONGEST_SKEW = 60.0
"""Seconds by which a process that starts again on another machine may seem to start too early."""
_MOST_CANDIDATES = 8
"""Number of earlier recorders that are compared: those that ended last."""


class Recorder(NamedTuple):
    """A recorder, with its segments in their order."""

    start: RecordStart
    segments: tuple[SegmentReader, ...]


@dataclass(frozen=True, slots=True)
class Earlier:
    """What a record tells about a recorder that began earlier."""

    start: RecordStart
    last: float
    """Time of its last line."""

    has_end: bool
    """Whether that line is its end."""

    is_written: Callable[[], bool]
    """Returns whether a process holds the lock of its last segment."""


def is_restart(start: RecordStart, earlier: Earlier) -> bool:
    """Return whether a recorder continues an earlier one of the same process index; else it is another run.

    It does if the earlier one was over before it started, and has its end line or was of the same job.
    Another rank, or another task of a job array, is always another run. The clocks of two machines may
    differ: by any time within a job, by a minute where no job is known.

    Args:
        start: First line of the recorder.
        earlier: The earlier recorder.
    """
    job, other = start.job, earlier.start.job
    if start.rank != earlier.start.rank or _task(job) != _task(other):
        return False
    skew = 0.0
    if start.host_name != earlier.start.host_name and job == other:
        skew = _LONGEST_SKEW if job is None else math.inf
    if earlier.last - start.started > skew:
        return False
    return earlier.has_end or (job == other and not earlier.is_written())


def _task(job: str | None) -> str:
    """Return the number of a task in its array; empty for another job."""
    return "" if job is None else job.partition("_")[2]


def runs_of(segments: Iterable[SegmentReader]) -> Iterator[tuple[int, list[list[Recorder]]]]:
    """Yield each process index with its runs by their start, each as its recorders one after the other.

    Args:
        segments: Segments whose first line was read.
    """
    pairs = [(segment.start, segment) for segment in segments if segment.start is not None]
    pairs.sort(key=lambda pair: (pair[0].process, pair[0].recorder, pair[0].segment))
    for process, of_process in groupby(pairs, key=lambda pair: pair[0].process):
        recorders = []
        for _, found in groupby(of_process, key=lambda pair: pair[0].recorder):
            starts, members = zip(*found, strict=True)
            recorders.append(Recorder(starts[0], members))
        yield process, _joined(recorders) if len(recorders) > 1 else [recorders]


def _joined(recorders: Iterable[Recorder]) -> list[list[Recorder]]:
    """Return the runs of the recorders of a process, which are in the order of their start."""
    runs: list[list[Recorder]] = []
    ends: list[Earlier] = []
    of_job: dict[tuple[int | None, str | None], int] = {}
    of_rank: dict[int | None, list[tuple[float, int]]] = {}
    for recorder in recorders:
        start = recorder.start
        by_end = of_rank.setdefault(start.rank, [])
        place = bisect_right(by_end, (start.started + _LONGEST_SKEW, len(runs)))
        by_time = [number for _, number in by_end[max(place - _MOST_CANDIDATES, 0) : place]]
        same_job = [of_job[key]] if (key := (start.rank, start.job)) in of_job else []
        run = next(
            (one for one in [*same_job, *reversed(by_time)] if is_restart(start, ends[one])), len(runs)
        )
        if run == len(runs):
            runs.append([])
            ends.append(_earlier(recorder))
        else:
            del by_end[bisect_left(by_end, (ends[run].last, run))]
            ends[run] = _earlier(recorder)
        runs[run].append(recorder)
        by_end.insert(bisect_left(by_end, (ends[run].last, run)), (ends[run].last, run))
        of_job[key] = run
    return runs


def _earlier(recorder: Recorder) -> Earlier:
    """Return what the end of a recorder's last segment tells."""
    segment = recorder.segments[-1]
    line = segment.last_line() or segment.start or recorder.start
    return Earlier(recorder.start, line.time, isinstance(line, RecordEnd), partial(is_written, segment.path))
