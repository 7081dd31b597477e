"""What has come and gone since a moment, and what rises from step to step."""

from __future__ import annotations

import functools
import gc
from collections import Counter
from typing import Any, Literal, NamedTuple, Self

from ..errors import TrackerError
from ..holders.cycles import cycles_round
from ..holders.search import OnProgress, checked_seconds
from ..live.device_bytes import DeviceBytes, device_bytes, profile_nbytes
from ..live.report import known_origins
from ..reading_lock import one_at_a_time
from ..reports.growth import CollectedArrays, GrowthReport, OriginGrowth
from .snapshot import Census, Maker, Sort, by_maker, held_nbytes, kind_counts, largest_content, sort_of
from .trends import NO_RISE, Rises, levels_of

_MOST_SORTS = 4096
"""How many sorts of arrays a tracker remembers, not to work out again what arrays of them take."""


def track_arrays(platform: str | None = None) -> ArrayTracker:
    """Return a tracker that tells what has come and gone since it was entered.

    >>> import jax.numpy as jnp
    >>> with track_arrays() as growth:
    ...     kept = []
    ...     for batch in range(3):
    ...         kept.append(jnp.zeros(256))
    ...         growth.step()
    >>> [(origin.count, origin.nbytes_per_step) for origin in growth.report().origins]
    [(3, 1024.0)]

    Args:
        platform: The platform to look at, such as ``"cpu"``; the default one when None.
    """
    return ArrayTracker(platform)


class _Entry(NamedTuple):
    """What there was when a tracker was entered."""

    census: Census
    held: DeviceBytes
    rises: Rises
    """From then on."""


class _Collection(NamedTuple):
    """What the garbage collector has done for a report."""

    freed: tuple[CollectedArrays, ...]
    cycles: Literal["not asked", "complete", "incomplete"]
    """Whether all cycles are told that held them."""


_NO_COLLECTION = _Collection((), "not asked")


class ArrayTracker:
    """Tells what has come and gone since it was entered; made by ``track_arrays``.

    It knows arrays by weak references: it keeps none alive, waits for no computation, and costs nothing
    between its steps. Entered again, it begins again. Any thread may call it.
    """

    def __init__(self, platform: str | None = None) -> None:
        self._platform = platform
        self._sort_of = functools.lru_cache(maxsize=_MOST_SORTS)(sort_of)
        self._entry: _Entry | None = None

    def __enter__(self) -> Self:
        with one_at_a_time():
            profile = profile_nbytes(self._platform)
            census = Census(self._live_arrays(), self._sort_of)
            counts = census.counts()
            self._entry = _Entry(census, self._held(profile, counts), Rises(levels_of(counts)))
            self._latest = census
        return self

    def __exit__(self, *_: object) -> None:
        """Leave all as it is: a report after the block is about the moment when it is asked for."""

    def step(self) -> None:
        """Take note of what is alive at the end of a step.

        Takes about a microsecond for an array that was alive after the step before, a few for a new one.
        What is remembered does not grow with the number of steps.

        Raises:
            TrackerError: (a RuntimeError) the tracker has not been entered.
        """
        with one_at_a_time():
            self._entered().rises.add(levels_of(self._look().counts()))

    def report(
        self,
        *,
        collect: bool = False,
        max_seconds: float | None = 5.0,
        on_progress: OnProgress | None = None,
    ) -> GrowthReport:
        """Return what has come and gone since the tracker was entered, inside its block or after it.

        Arrays that are alive and were not at entry are new; those that were alive at entry and are not
        any more, also as they were deleted or donated, are freed. What was born and died in between is
        not seen. Both are told by the line of the user's code that made them, in bytes on the device that
        holds the most; with steps also by how much each line's arrays rose from one to the next, in bytes on
        all devices of this process together, and which rose at every one, or at several without ever falling:
        there, arrays of one line are told apart by dtype and shape. Views, as ``addressable_shards`` makes
        them, take no memory and are only counted.

        Args:
            collect: Run ``gc.collect()`` once, first, and tell what only that has freed: arrays in
                reference cycles. To Python an array on a device is a small object, which does not make
                its collector run sooner. What other threads let go meanwhile is taken for its work too.
            max_seconds: With ``collect``, after how many seconds to end the search for the cycles that held
                these; None for no bound.
            on_progress: Called while that search runs, with the seconds that it has taken so far.

        Raises:
            TrackerError: (a RuntimeError) the tracker has not been entered.
            SearchError: (a ValueError) ``max_seconds`` is no number of seconds.
        """
        import jax

        checked_seconds(max_seconds)
        with one_at_a_time():
            entry = self._entered()
            collection = self._collect(max_seconds, on_progress) if collect else _NO_COLLECTION
            profile = profile_nbytes(self._platform)
            census = self._look()
            held = self._held(profile, census.counts())
            new, freed = census.counts_without(entry.census), entry.census.counts_without(census)
            steps, origins = entry.rises.steps, _origins(new, freed, entry.rises)
        return GrowthReport(
            platform=jax.local_devices(backend=self._platform)[0].platform,
            steps=steps,
            origins=origins,
            count_before=len(entry.census),
            count=len(census),
            nbytes_before=entry.held.on_devices,
            nbytes=held.on_devices,
            nbytes_source=held.source if held.source == entry.held.source else "arrays",
            origins_known=known_origins(),
            collected=collect,
            freed_by_collection=collection.freed,
            cycles=collection.cycles,
            view_count=census.view_count,
        )

    def _entered(self) -> _Entry:
        if self._entry is None:
            raise TrackerError("the tracker has not been entered: write `with track_arrays() as growth:`")
        return self._entry

    def _live_arrays(self) -> list[Any]:
        import jax

        arrays: list[Any] = jax.live_arrays(self._platform)
        return arrays

    def _look(self) -> Census:
        """Return what is alive now."""
        self._latest = Census(self._live_arrays(), self._sort_of, self._latest)
        return self._latest

    def _held(self, profile: dict[str, int] | None, counts: Counter[Sort]) -> DeviceBytes:
        import jax

        return device_bytes(jax.local_devices(backend=self._platform), profile, kind_counts(counts))

    def _collect(self, max_seconds: float | None, on_progress: OnProgress | None) -> _Collection:
        """Run the garbage collector, and return what only that has freed."""
        arrays = self._live_arrays()
        cycles = cycles_round(arrays, max_seconds=max_seconds, on_progress=on_progress)
        census = Census(arrays, self._sort_of, self._latest)
        del arrays
        without_it = census.gone()
        gc.collect()
        census.know_again(self._live_arrays(), without_it)
        self._latest = census
        freed: dict[tuple[Maker, str | None], Counter[Sort]] = {}
        for key, sort in census.gone().items():
            if key not in without_it:
                freed.setdefault((sort.line, cycles.paths.get(key)), Counter())[sort] += 1
        found = [
            CollectedArrays(
                origin=maker.origin,
                content=largest_content(counts),
                count=counts.total(),
                device_nbytes=held_nbytes(counts),
                cycle=cycle,
            )
            for (maker, cycle), counts in freed.items()
        ]
        return _Collection(
            tuple(sorted(found, key=lambda arrays: (-arrays.nbytes, -arrays.count, arrays.content))),
            "complete" if cycles.is_complete else "incomplete",
        )


def _origins(new: Counter[Sort], freed: Counter[Sort], rises: Rises) -> tuple[OriginGrowth, ...]:
    """Return what the arrays of each line have done, those first that rose."""
    risen = rises.risen()
    new_of, freed_of = by_maker(new, risen), by_maker(freed, risen)
    found = []
    for maker in {**new_of, **freed_of, **risen}:
        born, gone = new_of.get(maker, {}), freed_of.get(maker, {})
        rise = risen.get(maker, NO_RISE)
        apart = [other for other in risen if other != maker and Maker(other.origin, None) == maker]
        count_per_step, nbytes_per_step = rises.per_step(maker, apart) or (None, None)
        growth = OriginGrowth(
            origin=maker.origin,
            content=largest_content(born or gone) if born or gone else None,
            count=sum(born.values()),
            device_nbytes=held_nbytes(born),
            freed_count=sum(gone.values()),
            freed_device_nbytes=held_nbytes(gone),
            count_per_step=count_per_step,
            nbytes_per_step=nbytes_per_step,
            rose_every_step=rise.is_at_every_step,
            rose_steps=rise.steps,
            rose_count=rise.by.arrays,
            rose_nbytes=rise.by.nbytes,
            rose_content=maker.content if maker in risen else None,
        )
        found.append(growth)
    return tuple(sorted(found, key=_rising_first))


def _rising_first(growth: OriginGrowth) -> tuple[object, ...]:
    return (
        not growth.rose_every_step,
        -(growth.nbytes_per_step or 0) if growth.rose_every_step else 0,
        -growth.rose_nbytes,
        -growth.nbytes,
        -growth.freed_nbytes,
        -growth.count,
        str(growth.origin),
        growth.content or "",
    )
