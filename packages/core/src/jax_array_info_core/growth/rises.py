"""Whose arrays have risen at every step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .census import Maker, Sort, by_maker

_ENOUGH = 2
"""How often something must have risen before it is said to rise."""


class Level(NamedTuple):
    """What is alive of the arrays of one maker."""

    arrays: int
    nbytes: int
    """Their bytes on all devices of this process: of arrays that are made on one device after the other, the
    fullest device alone holds more at some steps only."""


_Levels = Mapping[Maker, Level]
_NOTHING = Level(0, 0)


def levels_of(counts: Mapping[Sort, int]) -> dict[Maker, Level]:
    """Return what is alive of each maker."""
    return {
        maker: Level(
            sum(sorts.values()),
            sum(
                count * sort.kind.shard_nbytes * len(sort.kind.local_devices) for sort, count in sorts.items()
            ),
        )
        for maker, sorts in by_maker(counts).items()
    }


class Rises:
    """Figures that run along with the steps: as many as there are makers, however many the steps.

    The first step is a beginning: what it makes may live on for good. What it has risen by is in no
    average, and who did not rise then may still have risen at every step since.
    """

    def __init__(self, entry: _Levels) -> None:
        self.steps = 0
        self._last = self._first = entry
        self._at_first: frozenset[tuple[Maker, str]] = frozenset()
        self._since: frozenset[tuple[Maker, str]] = frozenset()

    def add(self, levels: _Levels) -> None:
        """Take note of what is alive after a step."""
        risen = frozenset(
            (maker, what)
            for maker, level in levels.items()
            for what, now, then in zip(Level._fields, level, self._last.get(maker, _NOTHING), strict=True)
            if now > then
        )
        self.steps += 1
        self._last = levels
        if self.steps == 1:
            self._first, self._at_first = levels, risen
        else:
            self._since = risen if self.steps == _ENOUGH else self._since & risen

    def makers(self) -> frozenset[Maker]:
        """Return whose arrays, or bytes, rose at every step but perhaps the first, and at least twice."""
        risen = self._since & self._at_first if self.steps == _ENOUGH else self._since
        return frozenset(maker for maker, _ in risen)

    def per_step(self, maker: Maker) -> tuple[float, float] | None:
        """Return by how many arrays and bytes a step has raised what is alive of a maker, on average.

        None with fewer than two steps.
        """
        if self.steps < _ENOUGH:
            return None
        first, last = (levels.get(maker, _NOTHING) for levels in (self._first, self._last))
        steps = self.steps - 1
        return (last.arrays - first.arrays) / steps, (last.nbytes - first.nbytes) / steps
