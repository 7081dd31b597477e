"""Peaks, growth, jumps and marks in the history of one device.

For growth, the record is divided into parts, and the least bytes of each part are compared: what is allocated
within a step, or for an evaluation, is freed again within a part.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ...arrays.live.trends import Level, Site, Trend, Trends
from ...base.grouping import by_key
from ...facts.reports.timeline import (
    LEAST_SAMPLES,
    MAX_POINTS,
    MAX_SERIES,
    SeriesKind,
    TimelineGroup,
    TimelineGrowth,
    TimelineJump,
    TimelineMark,
    TimelinePeak,
    TimelineSeries,
)
from .history import History
from .marks import OpenMarks, Visit, Visits, kept_nbytes, most_added
from .samples import IN_USE, NO_STEP, PEAK, ArraysOfDevice, Numbers, Times

_AROUND = 5
"""Number of samples before and after a jump."""
_JUMP_SHARE = 20
"""A jump is at least this part of the peak: one twentieth."""
_MOST_JUMPS, _MOST_OF_JUMP = 10, 3
_MOST_RISES = 1000
"""Number of samples that are looked at for jumps, those with the largest rises."""
_MOST_MARKS, _MOST_TIMES = 100, 480
_LEAST_TREND, _STARTING = 10.0, 3
"""Least number of seconds of a change per minute, and the part of the samples before it: the first third."""


class DeviceHistory:
    """The history of one device, and what is found in it.

    Args:
        history: The record of the process.
        device: Id of the device.
    """

    def __init__(self, history: History, device: int) -> None:
        self.history, self.device = history, device
        self.samples = history.samples
        self.times, self.steps, self.begins = self.samples.times, self.samples.steps, self.samples.begins
        reported = history.column(IN_USE, device)
        self.reported_peaks = history.column(PEAK, device)
        self._sites = history.sites(device)
        self.arrays = self.samples.arrays(self._sites)
        self.array_nbytes = self.arrays.total_nbytes()
        # Arrays that were allocated after the backend was asked.
        self.use: Numbers = np.maximum(reported, self.array_nbytes)
        end = None if history.end is None else history.last
        spans, place = history.spans(), history.place(device)
        self.open_marks = OpenMarks(spans)
        self._visits = Visits(spans, place, self.times, self.use, self.reported_peaks, end, history.kept_from)

    def step(self, sample: int) -> int | None:
        """Return the last step before a sample; None before the first."""
        step = int(self.steps[sample])
        return None if step == NO_STEP else step

    @cached_property
    def peak_sample(self) -> int:
        """The sample with the most bytes in use."""
        return int(np.argmax(self.use))

    @cached_property
    def _rises_of_peak(self) -> Numbers:
        """The samples at which the backend reported a higher peak than at the sample before."""
        rises = np.flatnonzero(np.diff(self.reported_peaks) > 0) + 1
        return rises[~np.isin(rises, self.begins)]

    def peak(self) -> TimelinePeak | None:
        """Return the peak; None without samples."""
        if not len(self.use):
            return None
        sample, since = self.peak_sample, None
        nbytes, time = int(self.use[sample]), float(self.times[sample])
        mark = self.open_marks.at(time)
        fullest = self._visits.fullest_mark()
        if fullest is not None and fullest[0] > nbytes:
            nbytes, time, mark = fullest
            sample = self._fuller(int(np.searchsorted(self.times, time)))
        peaks, rises = self.reported_peaks, self._rises_of_peak
        if len(rises):
            highest = int(rises[np.argmax(peaks[rises])])
            if peaks[highest] > nbytes:
                nbytes, time, since = (
                    int(peaks[highest]),
                    float(self.times[highest]),
                    float(self.times[highest - 1]),
                )
                sample = self._fuller(highest)
                mark = self._visits.of_peak(highest, nbytes)
        alive = self.samples.arrays(self._sites, np.array([sample]))
        listed = int(alive.total_nbytes()[0])
        return TimelinePeak(
            nbytes=nbytes,
            time=time,
            since=since,
            step=self.step(sample),
            mark=mark,
            sampled_at=float(self.times[sample]),
            sampled_nbytes=int(self.use[sample]),
            groups=_groups(alive),
            other_nbytes=int(alive.other_nbytes[0]),
            not_arrays_nbytes=int(self.use[sample]) - listed,
        )

    def _fuller(self, sample: int) -> int:
        """Return a sample or the one before it: that with more bytes in use."""
        pair = [one for one in (sample, sample - 1) if 0 <= one < len(self.use)]
        return max(pair, key=lambda one: int(self.use[one]))

    def points(self) -> Numbers:
        """Return at most 480 samples: of those that share a part of the time, the one with the most bytes."""
        if len(self.times) <= MAX_POINTS:
            return np.arange(len(self.times))
        passed = self.times - self.times[0]
        part = np.minimum(passed / max(passed[-1], 1e-9) * MAX_POINTS, MAX_POINTS - 1).astype(np.int64)
        order = np.lexsort((-self.use, part))
        _, first = np.unique(part[order], return_index=True)
        return order[first]

    def series(self, points: Numbers) -> tuple[TimelineSeries, ...]:
        """Return the bytes by allocation site at some samples, and the rest."""
        alive = self.samples.arrays(self._sites, points)
        at_peak = int(np.argmax(self.use[points])) if len(points) else 0
        lines = by_key((row[0].origin or row[0].content, row) for row in alive.by_site())
        sums = {key: np.sum([nbytes for *_, nbytes in rows], axis=0) for key, rows in lines.items()}
        largest = sorted(sums, key=lambda key: -int(sums[key].max()))
        shown = sorted(largest[:MAX_SERIES], key=lambda key: -int(sums[key][at_peak]))
        others = alive.other_nbytes + sum((sums[key] for key in largest[MAX_SERIES:]), np.int64(0))
        rest = self.use[points] - others - sum((sums[key] for key in shown), np.int64(0))
        series = [
            TimelineSeries(
                origin=lines[key][0][0].origin,
                content=lines[key][0][0].content if len(lines[key]) == 1 else None,
                nbytes=_plain(sums[key]),
                count=sum(int(counts[-1]) for _, counts, _ in lines[key]),
                nbytes_per_minute=_per_minute(self.times[points], sums[key]),
            )
            for key in shown
        ]
        kinds: tuple[tuple[SeriesKind, Numbers], ...] = (("other arrays", others), ("not arrays", rest))
        series += [
            TimelineSeries(
                origin=None,
                content=None,
                kind=kind,
                nbytes=_plain(nbytes),
                nbytes_per_minute=_per_minute(self.times[points], nbytes),
            )
            for kind, nbytes in kinds
            if nbytes.any()
        ]
        return tuple(series)

    @cached_property
    def _last_start(self) -> int:
        """The first sample of the last recorder."""
        return int(self.begins[-1]) if len(self.begins) else 0

    @property
    def is_growth_known(self) -> bool:
        """Whether there are enough samples to tell growth."""
        return len(self.times) - self._last_start >= LEAST_SAMPLES

    def growth(self) -> tuple[TimelineGrowth, ...]:
        """Return the arrays that grew steadily since the last recorder started, the steepest first."""
        if not self.is_growth_known:
            return ()
        rest: dict[SeriesKind, Numbers] = {
            "other arrays": self.arrays.other_nbytes,
            "not arrays": self.use - self.array_nbytes,
        }
        return steady_growth(self.arrays, rest, self.times, self.steps, self._last_start)

    def jumps(self) -> tuple[TimelineJump, ...]:
        """Return the moments from which more bytes were in use than before, the largest first.

        Those of the same mark and allocation site are one, with the largest of them. In each of the five
        samples after a jump, more bytes were in use than in each of the five before.
        """
        if len(self.use) <= _AROUND:
            return ()
        padded = np.concatenate([np.zeros(_AROUND - 1, np.int64), self.use])
        before = np.lib.stride_tricks.sliding_window_view(padded, _AROUND).max(axis=1)[:-_AROUND]
        after = np.lib.stride_tricks.sliding_window_view(self.use[1:], _AROUND)
        rise = after.min(axis=1) - before
        rise[rise < np.ptp(after, axis=1)] = 0  # it goes on to rise
        least = max(int(self.use[self.peak_sample]) // _JUMP_SHARE, 1)
        found: list[int] = []
        for sample in np.argsort(-rise, kind="stable")[:_MOST_RISES].tolist():
            if rise[sample] >= least and all(abs(sample - other) >= _AROUND for other in found):
                found.append(sample)
        jumps = [
            TimelineJump(
                time=float(self.times[sample + 1]),
                since=float(self.times[sample]),
                nbytes=int(rise[sample]),
                step=self.step(sample),
                mark=self._visits.of_rise(sample, int(rise[sample])),
                groups=_most(self._added(sample, sample + 1)),
            )
            for sample in found
        ]
        origins = [jump.groups[0].origin if jump.groups else None for jump in jumps]
        # Without a mark or an origin, jumps have nothing in common.
        groups = by_key(
            ((jump.mark, origin) if jump.mark or origin else sample, jump)
            for sample, jump, origin in zip(found, jumps, origins, strict=True)
        )
        alike = [replace(jumps_alike[0], count=len(jumps_alike)) for jumps_alike in groups.values()]
        return tuple(alike[:_MOST_JUMPS])

    def marks(self) -> tuple[TimelineMark, ...]:
        """Return the marks, those that added most first, then those that kept most."""
        by_name = by_key((visit.span.name, visit) for visit in self._visits)
        marks = [_mark(name, visits) for name, visits in by_name.items()]
        marks.sort(key=lambda mark: (-(mark.added_nbytes or 0), -(mark.kept_nbytes or 0), mark.times[0]))
        return tuple(
            replace(mark, groups=self._added_in(most_added(by_name[mark.name])))
            for mark in marks[:_MOST_MARKS]
        )

    def _added_in(self, visit: Visit | None) -> tuple[TimelineGroup, ...]:
        """Return arrays that were allocated in a part of the program, at least.

        The sample before it is compared if arrays only became more since. What was allocated until its begin
        may be of any group. Else, arrays from before its first sample are left out.
        """
        if visit is None or visit.first == visit.stop:
            return ()
        highest = visit.first + int(np.argmax(self.use[visit.first : visit.stop]))
        before = visit.first - 1
        if visit.begin is not None and before >= 0:
            earlier = visit.begin - int(self.use[before])
            added = self._added(before, highest)
            rise = int(self.use[highest]) - int(self.use[before])
            if earlier >= 0 and sum(group.nbytes for group in added) == rise:
                return _most(least for group in added if (least := _at_least(group, earlier)) is not None)
        return _most(self._added(visit.first, highest))

    def _added(self, before: int, after: int) -> list[TimelineGroup]:
        """Return the arrays that one sample has more than another."""
        if before == after:
            return []
        two = self.samples.arrays(self._sites, np.array([before, after]))
        return [
            _group(site, max(int(counts[1] - counts[0]), 0), int(nbytes[1] - nbytes[0]))
            for site, counts, nbytes in two.by_site()
            if nbytes[1] > nbytes[0]
        ]


def _mark(name: str, visits: Sequence[Visit]) -> TimelineMark:
    """Return the parts of the program with one name, without groups."""
    most = most_added(visits)
    return TimelineMark(
        name=name,
        count=len(visits),
        times=tuple(visit.span.start for visit in visits[:_MOST_TIMES]),
        added_nbytes=None if most is None else most.added,
        kept_nbytes=kept_nbytes(visits),
        peak_nbytes=max((visit.peak for visit in visits if visit.peak is not None), default=None),
    )


def _at_least(group: TimelineGroup, earlier: int) -> TimelineGroup | None:
    """Return the arrays of a group that are not among some bytes from before; None for none."""
    least = group.nbytes - earlier
    if least <= 0 or not group.count:
        return None
    each = group.nbytes // group.count
    count = -(-least // each)
    return replace(group, count=count, nbytes=count * each)


def _most(groups: Iterable[TimelineGroup]) -> tuple[TimelineGroup, ...]:
    return tuple(sorted(groups, key=lambda group: -group.nbytes)[:_MOST_OF_JUMP])


def _per_minute(times: Times, nbytes: Numbers) -> float | None:
    """Return the change after the first third of some samples; None if they tell no trend yet."""
    first = len(times) // _STARTING
    seconds = float(times[-1] - times[first])
    if len(times) < LEAST_SAMPLES or seconds < _LEAST_TREND:
        return None
    return float(nbytes[-1] - nbytes[first]) * 60 / seconds


def _group(site: Site, count: int, nbytes: int) -> TimelineGroup:
    return TimelineGroup(origin=site.origin, content=site.content or "", count=count, nbytes=nbytes)


def _groups(alive: ArraysOfDevice) -> tuple[TimelineGroup, ...]:
    """Return the arrays of one sample, the most bytes first."""
    groups = (
        TimelineGroup(
            origin=site.origin, content=site.content or "", count=int(counts[0]), nbytes=int(nbytes[0])
        )
        for site, counts, nbytes in alive.by_site()
    )
    return tuple(sorted(groups, key=lambda group: -group.nbytes))


def _plain(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


_MOST_PARTS = 120
_SAMPLES_OF_PART = 6
_FALLS = 2
"""The bytes that stay must be at least so many times the largest fall."""
_LEAST_RISES = 4
"""Number of parts in which arrays must rise. A model and its optimizer are allocated in one or two."""


def steady_growth(
    arrays: ArraysOfDevice, rest: Mapping[SeriesKind, Numbers], times: Times, steps: Numbers, first: int
) -> tuple[TimelineGrowth, ...]:
    """Return what grew steadily, the steepest first, then what was freed or stopped.

    Args:
        arrays: Live arrays of a device in each sample.
        rest: Other bytes in each sample, which may grow as well.
        times: Time of each sample.
        steps: Last step before each sample.
        first: First sample to look at.
    """
    count = min(_MOST_PARTS, (len(times) - first) // _SAMPLES_OF_PART)
    bounds = np.linspace(first, len(times), count + 1).astype(np.int64)[:-1]
    # Steps that begin again with each epoch do not tell how many there were.
    ascends = (steps[first + 1 :] >= steps[first:-1]).all()
    steps_of_parts = steps[bounds] if ascends else np.full(count, NO_STEP)
    kinds: dict[Site, SeriesKind] = {Site(None, kind): kind for kind in rest}
    # Arrays that stay in a part are in at least every second of its samples.
    sites = _sites(arrays, least=_LEAST_RISES * ((len(times) - first) // count // 2))
    numbers = itertools.chain(sites, ((site, rest[kind], rest[kind]) for site, kind in kinds.items()))
    found_curves = ((site, _Curve.of(counts, nbytes, bounds)) for site, counts, nbytes in numbers)
    curves = {site: curve for site, curve in found_curves if curve.rises >= _LEAST_RISES}

    def levels(part: int) -> dict[Site, Level]:
        return {
            site: Level(int(curve.counts[part]), int(curve.nbytes[part]))
            for site, curve in curves.items()
            if curve.nbytes[part]
        }

    trends = Trends(levels(0))
    for part in range(1, count):
        trends.add(levels(part))
    found = [
        _grown(site, kinds.get(site, "origin"), curves[site], trend, times[bounds], steps_of_parts)
        for site, trend in trends.growing().items()
    ]
    return tuple(sorted(found, key=lambda grown: (grown.is_over, -grown.nbytes_per_minute)))


class _Curve(NamedTuple):
    """What stayed of some arrays at each part of a record: the least number and bytes from there on."""

    counts: Numbers
    nbytes: Numbers
    freed_in: int | None
    """Part in which most of the bytes were freed for good. From there, the curve stays at its height: a list
    of a function that returns was growing until then."""

    @property
    def rises(self) -> int:
        """The number of parts in which the bytes rose."""
        return int(np.count_nonzero(np.diff(self.nbytes) > 0))

    @staticmethod
    def of(counts: Numbers, nbytes: Numbers, bounds: Numbers) -> _Curve:
        counts, nbytes = _least(counts, bounds), _least(nbytes, bounds)
        highest = len(nbytes) - 1 - int(np.argmax(nbytes[::-1]))
        freed = np.flatnonzero(nbytes[highest:] < nbytes[highest] // 2)
        counts[highest:], nbytes[highest:] = counts[highest], nbytes[highest]
        stays = np.minimum.accumulate(nbytes[::-1])[::-1]
        largest_fall = np.max(np.maximum.accumulate(nbytes) - nbytes)
        if _FALLS * largest_fall > stays[-1] - stays[0]:
            counts, stays = np.zeros_like(counts), np.zeros_like(stays)  # it comes and goes
        counts = np.minimum.accumulate(counts[::-1])[::-1]
        return _Curve(counts, stays, highest + int(freed[0]) if len(freed) else None)


def _least(values: Numbers, bounds: Numbers) -> Numbers:
    """Return the least value of each part, other than single low ones."""
    found: Numbers = np.minimum.reduceat(np.maximum(values, np.append(values[1:], values[-1:])), bounds)
    return found


def _sites(arrays: ArraysOfDevice, least: int) -> Iterator[tuple[Site, Numbers, Numbers]]:
    """Yield the number and the bytes of each dtype and shape of a line, and of each line as a whole.

    Args:
        arrays: Live arrays of a device in each sample.
        least: Number of samples in which they must be.
    """
    for origin, sites in arrays.sites.lines():
        for place in sites:
            if arrays.entry_count(one := range(place, place + 1)) >= least:
                yield arrays.sites.sites[place], *arrays.numbers(one)
        if origin is not None and arrays.entry_count(sites) >= least:
            yield Site(origin, None), *arrays.numbers(sites)


def _grown(
    site: Site, kind: SeriesKind, curve: _Curve, trend: Trend, times: Times, steps: Numbers
) -> TimelineGrowth:
    nbytes = curve.nbytes
    # A site that was freed has been at its height since.
    stop = len(nbytes) if trend.stopped_at is None else trend.stopped_at + 1
    begin = int(np.argmax(nbytes > nbytes[0])) - 1
    begin = begin + 1 if not nbytes[begin] else begin  # its first array does not count
    # The least bytes of a part that grows are those of its first sample.
    grown = nbytes[begin:stop]
    later = slice(begin + len(grown) // _STARTING, stop)
    then, steps_then = times[later], steps[later]
    is_freed = curve.freed_in is not None
    return TimelineGrowth(
        origin=site.origin,
        content=site.content if kind == "origin" else None,
        kind=kind,
        start_nbytes=int(grown[0]),
        end_nbytes=int(grown[-1]),
        nbytes_per_minute=60 * (_slope(then, nbytes[later]) or 0.0),
        nbytes_per_step=None if NO_STEP in steps_then else _slope(steps_then, nbytes[later]),
        stopped_at=None if trend.stopped_at is None or is_freed else float(times[stop - 1]),
        freed_at=float(times[curve.freed_in]) if curve.freed_in is not None else None,
    )


def _slope(places: Times | Numbers, values: Numbers) -> float | None:
    """Return the slope of a line through some points, by least squares; None for points at one place."""
    x = np.asarray(places, np.float64) - float(places[0])
    spread = x - x.mean()
    variance = float(spread @ spread)
    return float(spread @ (values - values.mean())) / variance if variance else None
