"""Trends of live arrays over the steps of a program."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ..reports.origin import Origin
from .snapshot import Allocation, Site

_SEVERAL = 2
"""How often something must rise before it is said to."""

_MOST_GONE = 4096
"""How many sites without live arrays are remembered."""


class Level(NamedTuple):
    """A number of arrays, and one of bytes."""

    arrays: int
    nbytes: int
    """Their bytes on all devices of this process: of arrays that are made on one device after the other, the
    fullest device alone holds more at some steps only."""

    def since(self, before: Level) -> Level:
        """Return the growth from an earlier level to this one."""
        return Level(self.arrays - before.arrays, self.nbytes - before.nbytes)


_Levels = Mapping[Site, Level]
_NOTHING = Level(0, 0)


def levels_of(counts: Mapping[Allocation, int]) -> dict[Site, Level]:
    """Return what is alive of each line, and of each dtype and shape of a line."""
    levels: dict[Site, Level] = {}
    for allocation, count in counts.items():
        nbytes = count * allocation.kind.one.shard_nbytes * len(allocation.kind.local_devices)
        for site in {allocation.site, allocation.line}:
            arrays_before, nbytes_before = levels.get(site, _NOTHING)
            levels[site] = Level(arrays_before + count, nbytes_before + nbytes)
    return levels


class Trend(NamedTuple):
    """The growth of the arrays of a site."""

    is_at_every_step: bool
    """Whether arrays, or bytes, rose at every step but perhaps the first, and at least twice."""

    steps: int
    """At how many steps the bytes rose; 0 unless that is at least twice after the first step, and they
    never fell after it."""

    by: Level
    """By how much they rose at these together."""

    @property
    def rank(self) -> int:
        """How much it looks like a leak: not at all is 0."""
        return 2 if self.is_at_every_step else 1 if self.steps else 0


NO_TREND = Trend(False, 0, _NOTHING)


class _Run(NamedTuple):
    """The steps after the first, at a site with live arrays."""

    rises: Level
    """At how many of them arrays rose, and at how many bytes."""

    fell: bool
    """Whether bytes fell at one of them."""


class Trends:
    """Running figures of each site. Their number does not grow with the steps.

    The first step is warm-up: what it makes may live on for good. Its growth is in no average, and what did
    not rise then may still have risen at every step since.
    """

    def __init__(self, entry: _Levels) -> None:
        self.steps = 0
        self._entry = self._first = self._last = entry
        self._runs: dict[Site, _Run] = {}
        self._gone: dict[Site, None] = {}

    def add(self, levels: _Levels) -> None:
        """Add a step.

        Args:
            levels: What is alive after it.
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
        rises, fell = self._runs.get(site) or _Run(_NOTHING, site in self._gone)
        return _Run(Level(rises.arrays + (arrays > 0), rises.nbytes + (nbytes > 0)), fell or nbytes < 0)

    def growing(self) -> dict[Site, Trend]:
        """Return the dtypes and shapes of a line that rose, or the whole line where that rose at more steps.

        So a history that gets longer is one trend, though each of its lengths is another shape.
        """
        found = {site: trend for site in self._runs if (trend := self._trend(site)).rank}
        ranks: dict[Origin | None, int] = {}
        for site, trend in found.items():
            if site.content is not None:
                ranks[site.origin] = max(trend.rank, ranks.get(site.origin, 0))
        whole = {
            site.origin
            for site, trend in found.items()
            if site.content is None and trend.rank > ranks.get(site.origin, 0)
        }
        return {
            site: trend for site, trend in found.items() if (site.content is None) == (site.origin in whole)
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
        return Trend(any(since), run.rises.nbytes + rose_first[1], last.since(before))

    def per_step(self, site: Site, without: Collection[Site] = ()) -> tuple[float, float] | None:
        """Return the growth of a site in arrays and bytes a step, on average.

        None with fewer than two steps.

        Args:
            site: The line, or dtype and shape.
            without: The dtypes and shapes of the line to leave out.
        """
        if self.steps < _SEVERAL:
            return None
        growth, *others = (
            self._last.get(one, _NOTHING).since(self._first.get(one, _NOTHING)) for one in (site, *without)
        )
        for other in others:
            growth = growth.since(other)
        return growth.arrays / (self.steps - 1), growth.nbytes / (self.steps - 1)
