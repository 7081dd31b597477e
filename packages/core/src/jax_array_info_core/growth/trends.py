"""Arrays that rise from step to step."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ..reports.origin import Origin
from .snapshot import Maker, Sort

_SEVERAL = 2
"""How often something must have risen before it is said to rise."""

_MOST_GONE = 4096
"""How many makers are remembered of which nothing is alive any more."""


class Level(NamedTuple):
    """A number of arrays, and one of bytes."""

    arrays: int
    nbytes: int
    """Their bytes on all devices of this process: of arrays that are made on one device after the other, the
    fullest device alone holds more at some steps only."""


_Levels = Mapping[Maker, Level]
_NOTHING = Level(0, 0)


def levels_of(counts: Mapping[Sort, int]) -> dict[Maker, Level]:
    """Return what is alive of each line, and of each dtype and shape of a line."""
    levels: dict[Maker, Level] = {}
    for sort, count in counts.items():
        nbytes = count * sort.kind.shard_nbytes * len(sort.kind.local_devices)
        for maker in {sort.content, sort.line}:
            arrays_before, nbytes_before = levels.get(maker, _NOTHING)
            levels[maker] = Level(arrays_before + count, nbytes_before + nbytes)
    return levels


class Rise(NamedTuple):
    """How the arrays of a maker have risen."""

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


NO_RISE = Rise(False, 0, _NOTHING)


class _Run(NamedTuple):
    """The steps after the first of what is alive."""

    rises: Level
    """At how many of them arrays rose, and at how many bytes."""

    fell: bool
    """Whether bytes fell at one of them."""


class Rises:
    """Figures that run along with the steps: as many as there are makers, however many the steps.

    The first step is warm-up: what it makes may live on for good. What it has risen by is in no
    average, and what did not rise then may still have risen at every step since.
    """

    def __init__(self, entry: _Levels) -> None:
        self.steps = 0
        self._entry = self._first = self._last = entry
        self._runs: dict[Maker, _Run] = {}
        self._gone: dict[Maker, None] = {}

    def add(self, levels: _Levels) -> None:
        """Take note of what is alive after a step."""
        self.steps += 1
        if self.steps == 1:
            self._first = levels
        else:
            self._runs = {maker: self._run(maker, now) for maker, now in levels.items()}
            self._gone |= dict.fromkeys(self._last.keys() - levels.keys())
            while len(self._gone) > _MOST_GONE:
                del self._gone[next(iter(self._gone))]
        self._last = levels

    def _run(self, maker: Maker, now: Level) -> _Run:
        then = self._last.get(maker, _NOTHING)
        rises, fell = self._runs.get(maker) or _Run(_NOTHING, maker in self._gone)
        risen = Level(
            rises.arrays + (now.arrays > then.arrays),
            rises.nbytes + (now.nbytes > then.nbytes),
        )
        return _Run(risen, fell or now.nbytes < then.nbytes)

    def risen(self) -> dict[Maker, Rise]:
        """Return what rose: the dtypes and shapes of a line that did, or all of it where that rose oftener.

        So a history that gets longer is one rise, though each of its lengths is another shape.
        """
        found = {maker: rise for maker in self._runs if (rise := self._rise(maker)).rank}
        ranks: dict[Origin | None, int] = {}
        for maker, rise in found.items():
            if maker.content is not None:
                ranks[maker.origin] = max(rise.rank, ranks.get(maker.origin, 0))
        whole = {
            maker.origin
            for maker, rise in found.items()
            if maker.content is None and rise.rank > ranks.get(maker.origin, 0)
        }
        return {
            maker: rise for maker, rise in found.items() if (maker.content is None) == (maker.origin in whole)
        }

    def _rise(self, maker: Maker) -> Rise:
        entry, first, last = (
            levels.get(maker, _NOTHING) for levels in (self._entry, self._first, self._last)
        )
        run = self._runs[maker]
        since = [rises == self.steps - 1 for rises in run.rises]
        rose_first = [now > then for now, then in zip(first, entry, strict=True)]
        if self.steps <= _SEVERAL:
            since = [all(both) for both in zip(since, rose_first, strict=True)]
        if run.fell or run.rises.nbytes < _SEVERAL:
            return Rise(any(since), 0, _NOTHING)
        before = entry if rose_first[1] else first
        by = Level(last.arrays - before.arrays, last.nbytes - before.nbytes)
        return Rise(any(since), run.rises.nbytes + rose_first[1], by)

    def per_step(self, maker: Maker, without: Collection[Maker] = ()) -> tuple[float, float] | None:
        """Return by how many arrays and bytes a step has raised what is alive of a maker, on average.

        None with fewer than two steps.

        Args:
            maker: The line, or dtype and shape.
            without: What is left out of the line.
        """
        if self.steps < _SEVERAL:
            return None
        (arrays, nbytes), *others = (self._gain(one) for one in (maker, *without))
        steps = self.steps - 1
        return (
            (arrays - sum(other.arrays for other in others)) / steps,
            (nbytes - sum(other.nbytes for other in others)) / steps,
        )

    def _gain(self, maker: Maker) -> Level:
        first, last = (levels.get(maker, _NOTHING) for levels in (self._first, self._last))
        return Level(last.arrays - first.arrays, last.nbytes - first.nbytes)
