"""Peaks, growth, jumps and marks in the history of one device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from ..grouping import by_key
from ..live.census import Site
from ..reports.timeline import (
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
from .steady_growth import steady_growth

_AROUND = 5
"""Number of samples before and after a jump."""
_JUMP_SHARE = 20
"""A jump is at least this part of the peak: one twentieth."""
_MOST_JUMPS, _MOST_OF_JUMP = 10, 3
_MOST_RISES = 1000
"""Number of samples that are looked at for jumps, those with the largest rises."""
_MOST_MARKS, _MOST_TIMES = 100, 480
_LEAST_TREND = 10.0
"""Least number of seconds between the samples of a change per minute."""


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
        lines: dict[object, list[tuple[Site, Numbers]]] = {}
        counts_of: Counter[object] = Counter()
        for site, counts, nbytes in alive.by_site():
            lines.setdefault(site.origin or site.content, []).append((site, nbytes))
            counts_of[site.origin or site.content] += int(counts[-1])
        sums = {key: np.sum([nbytes for _, nbytes in parts], axis=0) for key, parts in lines.items()}
        largest = sorted(sums, key=lambda key: -int(sums[key].max()))
        shown = sorted(largest[:MAX_SERIES], key=lambda key: -int(sums[key][at_peak]))
        others = alive.other_nbytes + sum((sums[key] for key in largest[MAX_SERIES:]), np.int64(0))
        rest = self.use[points] - others - sum((sums[key] for key in shown), np.int64(0))
        series = [
            TimelineSeries(
                origin=lines[key][0][0].origin,
                content=lines[key][0][0].content if len(lines[key]) == 1 else None,
                nbytes=_plain(sums[key]),
                count=counts_of[key],
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
        jumps: dict[object, list[TimelineJump]] = {}
        for sample in found:
            jump = TimelineJump(
                time=float(self.times[sample + 1]),
                since=float(self.times[sample]),
                nbytes=int(rise[sample]),
                step=self.step(sample),
                mark=self._visits.of_rise(sample, int(rise[sample])),
                groups=_most(self._added(sample, sample + 1)),
            )
            origin = jump.groups[0].origin if jump.groups else None
            # Without a mark or an origin, jumps have nothing in common.
            jumps.setdefault((jump.mark, origin) if jump.mark or origin else sample, []).append(jump)
        alike = [replace(jumps_alike[0], count=len(jumps_alike)) for jumps_alike in jumps.values()]
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
    """Return the change from the first to the last of some samples; None if they tell no trend yet."""
    seconds = float(times[-1] - times[0])
    return float(nbytes[-1] - nbytes[0]) * 60 / seconds if seconds >= _LEAST_TREND else None


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
