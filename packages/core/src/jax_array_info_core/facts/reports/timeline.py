"""The report on the memory of a job over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ...base import quantities
from ...base.notebooks import Displayed
from ...base.quantities import bytes_apart, counted, duration_words, format_bytes, grouped, time_words
from ...base.text import printable
from .origin import Origin
from .timeline_process import TimelineDevice, TimelineProcess, standing_words

MAX_POINTS = 480
"""Maximum number of points of a timeline."""
LEAST_SAMPLES = 30
"""Least number of samples that tell growth."""
TOO_FEW_SAMPLES = f"steady growth is told from {LEAST_SAMPLES} samples on"
MAX_GROWTH_LINES = 3
"""Maximum number of growing allocation sites in the answer."""
_GROWTH_SHARE = 0.01
"""Part of the steepest growth below which another one is not in the answer."""
MAX_SERIES = 12
"""Maximum number of series of a timeline by origin."""

SeriesKind = Literal["origin", "other arrays", "not arrays"]
"""``other arrays``: live arrays without a series; ``not arrays``: bytes in use outside of live arrays."""

Sizes: TypeAlias = "tuple[quantities.Size, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadRecord:
    """A file, or lines of it, that could not be read."""

    name: str
    """Name of the file."""

    reason: str
    """Reason, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineGroup:
    """Live arrays at one moment that agree in allocation site, dtype and shape."""

    origin: Origin | None
    """Allocation site; None if it is not known."""

    content: str
    """Dtype and shape, such as ``float32[4,4]``."""

    count: quantities.Size
    """Number of arrays with a shard on the device."""

    nbytes: quantities.Size
    """Bytes on the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePeak:
    """The moment of the most bytes in use on the device of the timeline, as far as it was measured."""

    nbytes: quantities.Size
    """Bytes in use."""

    time: quantities.Time
    """Time, or the end of the time in which it was."""

    since: quantities.Time | None = None
    """Start of the time in which it was, if it was between two samples and only the backend knows it; None if
    a sample or a mark has it."""

    step: quantities.Difference | None = None
    """Last step before it."""

    mark: str | None = None
    """Mark in which it was; None if it was in none, or that is unknown."""

    sampled_at: quantities.Time
    """Time of the sample with the arrays that were alive: that of the peak, or the fullest of the two
    around it."""

    sampled_nbytes: quantities.Size
    """Bytes in use in this sample."""

    groups: tuple[TimelineGroup, ...] = ()
    """Live arrays in this sample on the device, the most bytes first."""

    other_nbytes: quantities.Size = 0
    """Bytes on the device of live arrays in groups that the record does not name."""

    not_arrays_nbytes: quantities.Size = 0
    """Bytes in use outside of live arrays, such as temporary values of programs."""


def _day(time: float) -> str:
    return time_words(time, has_date=True)[:10]


def site_name(origin: Origin | None, content: str | None, kind: SeriesKind) -> str:
    """Return an allocation site with the line that called it, and dtype and shape."""
    if kind != "origin":
        return {"other arrays": "other arrays", "not arrays": "not in arrays"}[kind]
    site = "" if origin is None else origin.text(1)
    return " ".join(filter(None, (site, content))) or "arrays without an allocation site"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineSeries:
    """Bytes of the arrays of one allocation site over time."""

    origin: Origin | None
    """Allocation site; None if it is not known, and for ``kind`` other than ``origin``."""

    content: str | None
    """Dtype and shape, such as ``float32[4,4]``; None if it has several."""

    kind: SeriesKind = "origin"
    """Whether these are the arrays of an allocation site, all others, or the rest of the bytes in use."""

    nbytes: Sizes
    """Bytes on the device of the timeline, at each of its points."""

    count: quantities.Size | None = None
    """Number of these arrays at the last point; None for kinds other than ``origin``."""

    nbytes_per_minute: float | None = None
    """Change of the bytes per minute after the first third of the points, which may have the start of the
    program; None for fewer than 30 points, and if these are less than 10 seconds apart."""

    @property
    def name(self) -> str:
        """The allocation site, with dtype and shape if there is only one."""
        return site_name(self.origin, self.content, self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineGrowth:
    """Arrays of an allocation site that grew steadily."""

    origin: Origin | None
    """Allocation site; None if it is not known."""

    content: str | None
    """Dtype and shape that grew; None if it was not one alone."""

    kind: SeriesKind = "origin"
    """Whether these are the arrays of an allocation site, those that the record does not name, or the rest of
    the bytes in use."""

    start_nbytes: quantities.Size
    """Bytes on the device when the growth began."""

    end_nbytes: quantities.Size
    """Bytes on the device at the end."""

    nbytes_per_minute: float
    """Slope of the growth after its first third, by least squares."""

    nbytes_per_step: float | None = None
    """Slope per step; None if the program named no steps, or numbers that do not ascend."""

    stopped_at: quantities.Time | None = None
    """Time since which it has not grown, as a cache that is full; None if it grew until the end, or until it
    was freed."""

    freed_at: quantities.Time | None = None
    """Time at which most of the bytes were freed for good, such as at the end of a function; None if they
    were not."""

    @property
    def is_over(self) -> bool:
        """Whether it grows no more."""
        return self.stopped_at is not None or self.freed_at is not None

    @property
    def name(self) -> str:
        """The allocation site with dtype and shape, as far as they are known."""
        return site_name(self.origin, self.content, self.kind)

    @property
    def words(self) -> str:
        """The growth: ``train.py:7 step float32[4,4], 1.0 MiB to 2.0 GiB, 25.7 MiB per minute``."""
        minute = f"{format_bytes(round(self.nbytes_per_minute))} per minute"
        per_step = self.nbytes_per_step
        steps = "" if per_step is None else f", {format_bytes(round(per_step))} per step"
        sizes = f"{format_bytes(self.start_nbytes)} to {format_bytes(self.end_nbytes)}"
        return f"{self.name}, {sizes}, {minute}{steps}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineJump:
    """A moment from which more bytes were in use than before.

    More were in use in each of the five samples after it than in each of the five before. Several jumps with
    the same mark and allocation site are one: the largest.
    """

    time: quantities.Time
    """Time of the sample after the jump."""

    since: quantities.Time
    """Time of the sample before it."""

    nbytes: quantities.Size
    """By how many bytes the use of the device rose."""

    count: quantities.Count = 1
    """Number of jumps of this kind."""

    step: quantities.Difference | None = None
    """Last step before it."""

    mark: str | None = None
    """Mark in which it was; None if it was in none."""

    groups: tuple[TimelineGroup, ...] = ()
    """Arrays that were added, the most bytes first, with their additional number and bytes; at most 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineMark:
    """All parts of the program with one name."""

    name: str
    """Name of the mark."""

    count: quantities.Count
    """How often it began."""

    times: tuple[quantities.Time, ...]
    """When it began, at most 480."""

    added_nbytes: quantities.Difference | None
    """By how many bytes the use of the device rose in it above that at its begin, as far as samples and the
    peak of the backend tell; the most of all. None if neither was in it, or the bytes at its begin are
    unknown."""

    kept_nbytes: quantities.Difference | None
    """How many bytes more were in use at its ends than at its begins, in all; None if some are unknown, and
    before its first end."""

    peak_nbytes: quantities.Size | None
    """Most bytes in use that were seen in it; None if they are unknown."""

    groups: tuple[TimelineGroup, ...] = ()
    """Arrays that it added where it added most, as far as samples show, the most bytes first; at most 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineOutOfMemory:
    """An allocation that failed."""

    process: quantities.Size
    """Index of the process."""

    run: quantities.Size = 0
    """Number of its run."""

    time: quantities.Time
    """Time at which the error was seen."""

    message: str
    """First line of the error."""

    requested_nbytes: quantities.Size | None = None
    """Bytes that could not be allocated; None if the error does not name them."""

    step: quantities.Difference | None = None
    """Last step before it."""

    mark: str | None = None
    """Mark in which it was; None if it was in none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineRecompilation:
    """Recompilations of all processes that agree in function, line and reason."""

    function: str
    """Qualified name of the function."""

    origin: Origin | None
    """Line of the call; None if it is not in the user's code."""

    reason: str
    """What differs from the nearest earlier call of the function."""

    time: quantities.Time
    """Time at which the first one ended."""

    step: quantities.Difference | None = None
    """Last step before it."""

    processes: tuple[quantities.Size, ...]
    """Indices of the processes."""

    count: quantities.Count = 1
    """Number of recompilations in the process with the most."""

    seconds: float
    """Time that XLA took for them in the process with the longest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineReport(Displayed):
    """Memory of a job over time, from the record of its processes. Returned by ``timeline_report``.

    Points, series, peak, growth, jumps and marks are those of one device: the one with the highest peak,
    unless another was asked for.
    """

    folder: str
    """Folder of the record."""

    processes: tuple[TimelineProcess, ...] = ()
    """Processes by their index, and the runs of each by their start."""

    process_count: quantities.Size = 0
    """Number of processes of the job."""

    process: quantities.Size = 0
    """Index of the process of the timeline."""

    run: quantities.Size = 0
    """Number of its run."""

    device: quantities.Difference = 0
    """Id of the device of the timeline."""

    times: tuple[quantities.Time, ...] = ()
    """Time of each point, in seconds since 1970-01-01 UTC. Of several samples that share a point, it is the
    one with the most bytes in use."""

    steps: tuple[quantities.Difference | None, ...] = ()
    """Last step before each point."""

    in_use: Sizes = ()
    """Bytes in use at each point: the sum of the series."""

    series: tuple[TimelineSeries, ...] = ()
    """Bytes by allocation site, the most bytes at the peak first, then other arrays and the rest."""

    peak: TimelinePeak | None = None
    """The peak; None without samples."""

    growth: tuple[TimelineGrowth, ...] = ()
    """Allocation sites that grew steadily, the steepest first, then those that stopped."""

    is_growth_known: bool = True
    """Whether there are enough samples since the last start of the process to tell growth: 30 or more."""

    jumps: tuple[TimelineJump, ...] = ()
    """Jumps, the largest first, at most 10."""

    marks: tuple[TimelineMark, ...] = ()
    """Marks, those that added most first."""

    out_of_memory: tuple[TimelineOutOfMemory, ...] = ()
    """Allocations that failed, in any process: the last 100 of each, and 1,000 in all."""

    recompilations: tuple[TimelineRecompilation, ...] = ()
    """Recompilations in a program that ``jai-cli run --recompiles`` watched, by their time: the last 1,000 of
    each process."""

    unread: tuple[UnreadRecord, ...] = ()
    """Files and lines that could not be read."""

    read_at: quantities.Time = 0.0
    """Time at which the record was read."""

    thinned: bool = False
    """Whether the timeline has only some of the samples, because the record has too many to hold: of two
    neighbors, the one with more bytes in use on its fullest device stays."""

    def __post_init__(self) -> None:
        figures = (self.steps, self.in_use, *(series.nbytes for series in self.series))
        if any(len(each) != len(self.times) for each in figures):
            raise ValueError("series with different numbers of points")
        if list(self.times) != sorted(self.times):
            raise ValueError("times that do not ascend")

    @property
    def chosen(self) -> TimelineProcess | None:
        """The process of the timeline; None without one."""
        return self._run_of(self.process, self.run)

    def _run_of(self, process: int, run: int) -> TimelineProcess | None:
        return next((one for one in self.processes if (one.process, one.run) == (process, run)), None)

    @property
    def chosen_device(self) -> TimelineDevice | None:
        """The device of the timeline; None without one."""
        devices = self.chosen.devices if self.chosen else ()
        return next((one for one in devices if one.id == self.device), None)

    def time_words(self, time: float) -> str:
        """Return a moment, with its date if the timeline has several dates."""
        moments = (*self.times[:1], *self.times[-1:], time)
        return time_words(time, has_date=len({_day(moment) for moment in moments}) > 1)

    def moment_words(
        self, time: float, step: int | None, mark: str | None = None, since: float | None = None
    ) -> str:
        """Return a moment with its step and mark: ``at 12:03:07, step 1,200, in eval``."""
        now = self.time_words(time)
        when = f"at {now}" if since is None else f"between {self.time_words(since)} and {now}"
        named = "" if step is None else f", step {grouped(step)}"
        return f"{when}{named}{f', in {mark}' if mark is not None else ''}"

    @property
    def answer(self) -> tuple[str, ...]:
        """The first lines: allocations that failed, where processes stand, the peak, and what grows."""
        lines = [self._failed(error) for error in self.out_of_memory[-1:]]
        lines += filter(None, [self.standing])
        if self.peak is None:
            return (*lines, "no samples")
        device = self.chosen_device
        peak, limit = format_bytes(self.peak.nbytes), ""
        if device and device.bytes_limit:
            peak, most = bytes_apart(self.peak.nbytes, device.bytes_limit)
            limit = f" of {most}"
        where = f" on {device.name}" if device else ""
        process = f" of {self.chosen.name}" if self.chosen and self._has_several else ""
        moment = self.moment_words(self.peak.time, self.peak.step, self.peak.mark, self.peak.since)
        lines.append(f"{self._peak_of} {peak}{limit}{where}{process} {moment}")
        growing = [grown for grown in self.growth if grown.stopped_at is None]
        if not growing:
            return (*lines, "no steady growth" if self.is_growth_known else TOO_FEW_SAMPLES)
        least = _GROWTH_SHARE * growing[0].nbytes_per_minute
        shown = [grown for grown in growing[:MAX_GROWTH_LINES] if grown.nbytes_per_minute >= least]
        return (*lines, *map(self._growing, shown))

    @property
    def standing(self) -> str:
        """Which process stands where, or is no longer heard from, and which wait in which step.

        An example is ``process 3 has stood in make_array at data.py:41 since 12:03:07, step 1,199; 7
        processes wait in step 1,200``. Empty if none stands.
        """
        return standing_words(self.processes, self.time_words)

    @property
    def has_peaks(self) -> bool:
        """Whether the backend reports peaks. Else, what is freed between two samples is not seen."""
        return self.chosen is None or self.chosen.peak_name == "peak"

    @property
    def _peak_of(self) -> str:
        """The peak, or that it is the highest of what was seen."""
        if self.has_peaks or self.chosen is None:
            return "peak"
        # Of more samples, those with fewer bytes are not among the points.
        samples = len(self.times) if len(self.times) < MAX_POINTS else self.chosen.sample_count
        marks = sum(mark.count for mark in self.marks if mark.peak_nbytes is not None)
        also = f" and {counted(marks, 'mark', 'marks')}" if marks else ""
        return f"highest of {counted(samples, 'sample', 'samples')}{also}:"

    def _growing(self, grown: TimelineGrowth) -> str:
        if grown.freed_at is None:
            return f"growing: {grown.words}"
        return f"growing until it was freed at {self.time_words(grown.freed_at)}: {grown.words}"

    def _failed(self, error: TimelineOutOfMemory) -> str:
        asked = error.requested_nbytes
        requested = "" if asked is None else f", {format_bytes(asked)} requested"
        failed = self._run_of(error.process, error.run)
        process = f" in {failed.name}" if failed and self._has_several else ""
        moment = self.moment_words(error.time, error.step, error.mark)
        return f"out of memory{process} {moment}{requested}"

    @property
    def _has_several(self) -> bool:
        return self.process_count > 1 or len(self.processes) > 1

    @property
    def extent(self) -> str:
        """The time of the record, its number of samples, and the state of its process."""
        if not self.times or self.chosen is None:
            return ""
        begin, end = self.times[0], self.times[-1]
        until = time_words(end, has_date=_day(begin) != _day(end))
        thinned = " (thinned)" if self.thinned else ""
        samples = counted(self.chosen.sample_count, "sample", "samples") + thinned
        restarts = f", restarted {self.chosen.restarts} times" if self.chosen.restarts > 1 else ""
        host = f" on {self.chosen.host_name}" if self.chosen.run_count == 1 else ""
        restarts = ", restarted once" if self.chosen.restarts == 1 else restarts
        return (
            f"{time_words(begin, has_date=True)} to {until} ({duration_words(end - begin)}), {samples}, "
            f"{self.chosen.name}{host} {self.chosen.ending}{restarts}"
        )

    def __str__(self) -> str:
        return "\n".join(map(printable, self.answer))
