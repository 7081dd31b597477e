"""Trends of live arrays over the steps of a program."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ...facts.reports.origin import Origin

_SEVERAL = 2
"""The least number of rises that count as a trend."""

_MOST_GONE = 4096
"""The most sites without live arrays that are remembered."""


class Site(NamedTuple):
    """An allocation site: a source line, a dtype and shape, or both."""

    origin: Origin | None
    """The source line; None where it is not known."""

    content: str | None
    """Dtype and shape, such as ``float32[4,4]``; None for all arrays of the line."""


class Level(NamedTuple):
    """A number of arrays and their bytes."""

    arrays: int
    nbytes: int
    """Bytes on all devices of this process in total. Where arrays are allocated on one device after another,
    the fullest device alone would not grow at every step."""

    def since(self, before: Level) -> Level:
        """Return the growth from an earlier level to this one."""
        return Level(self.arrays - before.arrays, self.nbytes - before.nbytes)


_Levels = Mapping[Site, Level]
_NOTHING = Level(0, 0)


class Trend(NamedTuple):
    """The growth of the arrays of a site."""

    is_at_every_step: bool
    """Whether the number of arrays, or their bytes, rose at every step, and at least twice. The first step
    may be an exception."""

    steps: int
    """The number of steps at which the bytes rose. 0 if they ever fell after the first step, or rose fewer
    than two times after it."""

    by: Level
    """The total growth at these steps."""

    stopped_at: int | None = None
    """The last step at which the bytes rose, if they have not since, for at least twice as many steps as ever
    between two rises: a buffer of a bounded length is full. None while they may rise again."""

    @property
    def rank(self) -> int:
        """The strength of the evidence for a leak.

        3 for a rise at every step, 2 for several rises without a fall, 1 if these have stopped, 0 for none.
        """
        if self.is_at_every_step:
            return 3
        return 0 if not self.steps else 2 if self.stopped_at is None else 1


NO_TREND = Trend(False, 0, _NOTHING)


class _Run(NamedTuple):
    """The changes at a site with live arrays over the steps after the first."""

    rises: Level
    """The number of steps at which the arrays rose, and the number at which the bytes rose."""

    fell: bool
    """Whether the bytes fell at any of these steps."""

    last: int
    """The last step at which the bytes rose, the first step included; 0 if they never did."""

    longest: int
    """The most steps from one such rise to the next."""


class Trends:
    """Running trends of each site. Their memory does not grow with the number of steps.

    The first step is treated as warm-up, since its arrays may stay alive for good reason. It is excluded from
    the averages. A site that did not rise in it can still count as rising at every step.
    """

    def __init__(self, entry: _Levels) -> None:
        self.steps = 0
        self._entry = self._first = self._last = entry
        self._runs: dict[Site, _Run] = {}
        self._gone: dict[Site, None] = {}

    def add(self, levels: _Levels) -> None:
        """Add a step.

        Args:
            levels: The levels after it.
        """
        self.steps += 1
        if self.steps == 1:
            self._first = levels
        else:
            self._runs = {site: self._run(site, now) for site, now in levels.items()}
            self._gone |= dict.fromkeys(self._last.keys() - levels.keys())
            while len(self._gone) > _MOST_GONE:
                del self._gone[next(iter(self._gone))]
        self._last = levels

    def _run(self, site: Site, now: Level) -> _Run:
        arrays, nbytes = now.since(self._last.get(site, _NOTHING))
        run = self._runs.get(site)
        if run is None:
            rose_first = self._first.get(site, _NOTHING).nbytes > self._entry.get(site, _NOTHING).nbytes
            run = _Run(_NOTHING, site in self._gone, last=int(rose_first), longest=0)
        rises = Level(run.rises.arrays + (arrays > 0), run.rises.nbytes + (nbytes > 0))
        last, longest = run.last, run.longest
        if nbytes > 0:
            last, longest = self.steps, max(longest, self.steps - last if last else 0)
        return _Run(rises, run.fell or nbytes < 0, last, longest)

    def growing(self) -> dict[Site, Trend]:
        """Return the trends of the sites that rose, by dtype and shape of a line.

        Where a line as a whole has stronger evidence than any one of its shapes, it is returned instead. A
        history that gets longer is such a case, since each length is another shape.
        """
        trends = {site: trend for site in self._runs if (trend := self._trend(site)).rank}
        ranks: dict[Origin | None, int] = {}
        for site, trend in trends.items():
            if site.content is not None:
                ranks[site.origin] = max(trend.rank, ranks.get(site.origin, 0))
        merged = {
            site.origin
            for site, trend in trends.items()
            if site.content is None and trend.rank > ranks.get(site.origin, 0)
        }
        return {
            site: trend for site, trend in trends.items() if (site.content is None) == (site.origin in merged)
        }

    def _trend(self, site: Site) -> Trend:
        entry, first, last = (levels.get(site, _NOTHING) for levels in (self._entry, self._first, self._last))
        run = self._runs[site]
        since = [rises == self.steps - 1 for rises in run.rises]
        rose_first = [growth > 0 for growth in first.since(entry)]
        if self.steps <= _SEVERAL:
            since = [all(both) for both in zip(since, rose_first, strict=True)]
        if run.fell or run.rises.nbytes < _SEVERAL:
            return Trend(any(since), 0, _NOTHING)
        before = entry if rose_first[1] else first
        has_stopped = not any(since) and self.steps - run.last >= _SEVERAL * run.longest
        stopped_at = run.last if has_stopped else None
        return Trend(any(since), run.rises.nbytes + rose_first[1], last.since(before), stopped_at)

    def per_step(self, site: Site, without: Collection[Site] = ()) -> tuple[float, float] | None:
        """Return the average growth of a site per step, in arrays and bytes; None with fewer than two steps.

        Args:
            site: The site.
            without: Sites of the same line to leave out.
        """
        if self.steps < _SEVERAL:
            return None
        growth, *others = (
            self._last.get(place, _NOTHING).since(self._first.get(place, _NOTHING))
            for place in (site, *without)
        )
        for other in others:
            growth = growth.since(other)
        return growth.arrays / (self.steps - 1), growth.nbytes / (self.steps - 1)
