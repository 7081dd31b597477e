"""Arrays that grow steadily over a record.

The record is divided into parts, and the least bytes of each part are compared: what is allocated within a
step, or for an evaluation, is freed again within a part.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from ..live.census import Site
from ..live.trends import Level, Trend, Trends
from ..reports.timeline import SeriesKind, TimelineGrowth
from .samples import NO_STEP, ArraysOfDevice, Numbers, Times

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
    grown, then, steps_then = nbytes[begin:stop], times[begin:stop], steps[begin:stop]
    is_freed = curve.freed_in is not None
    return TimelineGrowth(
        origin=site.origin,
        content=site.content if kind == "origin" else None,
        kind=kind,
        start_nbytes=int(grown[0]),
        end_nbytes=int(grown[-1]),
        nbytes_per_minute=60 * (_slope(then, grown) or 0.0),
        nbytes_per_step=None if NO_STEP in steps_then else _slope(steps_then, grown),
        stopped_at=None if trend.stopped_at is None or is_freed else float(times[stop - 1]),
        freed_at=float(times[curve.freed_in]) if curve.freed_in is not None else None,
    )


def _slope(places: Times | Numbers, values: Numbers) -> float | None:
    """Return the slope of a line through some points, by least squares; None for points at one place."""
    x = np.asarray(places, np.float64) - float(places[0])
    spread = x - x.mean()
    variance = float(spread @ spread)
    return float(spread @ (values - values.mean())) / variance if variance else None
