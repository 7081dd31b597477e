"""Growth of the live arrays between two moments, and over the steps of a program."""

from __future__ import annotations

import gc
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from types import MappingProxyType, NoneType
from typing import Any, Literal, NamedTuple, Self, TypedDict

from ...base.config import shown_callers
from ...base.errors import TrackerError, require
from ...base.grouping import by_key, sums_by_key
from ...base.reading_lock import one_at_a_time
from ...compat.jitted import attribute_dicts
from ...facts.reports.growth import CollectedArrays, GrowthReport, OriginGrowth
from ...facts.reports.origin import Origin
from ..holders.search import OnProgress, checked_seconds, find_holders
from .census import (
    Alive,
    Census,
    DeviceBytes,
    Kind,
    array_number,
    device_bytes,
    known_origins,
    levels_of,
    local_nbytes,
    profile_nbytes,
)
from .trends import NO_TREND, Site, Trends


def site_of(kind: Kind, separate: Container[Site]) -> Site:
    """Return the line of a kind; its site with dtype and shape if that is one of the separate ones."""
    return kind.site if kind.site in separate else kind.line


def by_site(counts: Mapping[Kind, int], separate: Container[Site]) -> dict[Site, dict[Kind, int]]:
    """Return the kinds of arrays of each line, each with its number of arrays.

    Args:
        counts: The number of arrays of each kind.
        separate: The sites with dtype and shape to list separately from the other arrays of their lines.
    """
    sites: dict[Site, dict[Kind, int]] = {}
    for kind, count in counts.items():
        sites.setdefault(site_of(kind, separate), {})[kind] = count
    return sites


class Called(TypedDict):
    """An allocation site with its callers."""

    origin: Origin | None
    caller_count: int


def called(site: Site, counts: Mapping[Kind, int]) -> Called:
    """Return a line with the callers that made most of some of its arrays, and the number of such callers."""
    callers = sums_by_key(
        (kind.template.origin.callers if kind.template.origin else (), count)
        for kind, count in counts.items()
    )
    if site.origin is None or not callers:
        return Called(origin=site.origin, caller_count=1)
    origin = replace(site.origin, callers=max(callers, key=callers.__getitem__))
    return Called(origin=origin, caller_count=len(callers))


def largest_content(counts: Mapping[Kind, int]) -> str:
    """Return dtype and shape of the arrays that take the most bytes on a device of this process."""
    return str(
        max(
            (kind.template.shard_nbytes * count if kind.local_devices else 0, kind.site.content)
            for kind, count in counts.items()
        )[1]
    )


def held_nbytes(counts: Mapping[Kind, int]) -> tuple[tuple[int, int], ...]:
    """Return ``(device id, bytes)`` of some arrays for each device of this process that has any of them."""
    return tuple(sorted(local_nbytes(counts).items()))


def collect_arrays(census: Census, live_arrays: Callable[[], list[Any]]) -> tuple[CollectedArrays, ...]:
    """Run the garbage collector, and return the arrays that it freed and reference counting had not.

    Args:
        census: The census of the arrays.
        live_arrays: Returns all live arrays.

    Returns:
        The arrays by allocation site, the most bytes first.
    """
    census.update(live_arrays)
    # Reference counting freed some meanwhile, not the collection below.
    census.update(live_arrays)
    before = census.alive
    # The collector clears weak references before it calls __del__, which may resurrect an object and all that
    # it refers to. Arrays that are held here keep theirs. One with attributes may be in a cycle itself.
    held = [array for array in live_arrays() if not any(attribute_dicts(array))]
    gc.collect()
    held.clear()
    census.update(live_arrays)
    gone = (before.kinds[number] for number in before.owners - census.alive.owners)
    freed = {line: Counter(kinds) for line, kinds in by_key((kind.line, kind) for kind in gone).items()}
    collected = [
        CollectedArrays(
            **called(site, counts),
            content=largest_content(counts),
            count=counts.total(),
            device_nbytes=held_nbytes(counts),
        )
        for site, counts in freed.items()
    ]
    return tuple(sorted(collected, key=lambda arrays: (-arrays.nbytes, -arrays.count, arrays.content)))


_MOST_SEARCHED = 1000
"""The most arrays of a site whose referrers are searched, the oldest ones: the newest may have others that
refer to them for one step only."""


class Referrers(NamedTuple):
    """What refers to new arrays."""

    paths: Mapping[Site, str | None] = MappingProxyType({})
    """A reference path to an array of each site, or None where none was found."""

    garbage_counts: Mapping[Site, int] = MappingProxyType({})
    """The number of arrays of each site that only reference cycles keep alive."""

    holders: Literal["not asked", "complete", "incomplete"] = "not asked"
    """Whether the search was complete."""


def find_referrers(
    now: Alive,
    before: Alive,
    sites: Container[Site],
    *,
    max_seconds: float | None,
    on_progress: OnProgress | None,
) -> Referrers:
    """Return the reference paths to the arrays of some sites that are alive and were not at entry.

    Args:
        now: The arrays that are alive now.
        before: The arrays at entry.
        sites: The sites.
        max_seconds: The time limit in seconds; None for no limit.
        on_progress: Called while the search runs, with the seconds since its start.
    """
    new = now.owners - before.owners
    numbers = by_key(
        (site_of(kind, sites), number) for number, kind in reversed([*now.kinds.items()]) if number in new
    )
    numbers = {site: keys[:_MOST_SEARCHED] for site, keys in numbers.items() if site in sites}
    # No `:=`: up to Python 3.11, it would make a cell that refers to the last array.
    read = (now.references[number]() for number in chain.from_iterable(numbers.values()))
    arrays = [array for array in read if array is not None]
    holders = find_holders(arrays, max_seconds=max_seconds, on_progress=on_progress)
    id_of = {array_number(array): id(array) for array in arrays}
    ids = {site: [id_of[number] for number in keys if number in id_of] for site, keys in numbers.items()}
    paths = {
        site: _most_frequent(holders.paths[key] for key in keys if key in holders.paths)
        for site, keys in ids.items()
    }
    garbage = {site: len(holders.garbage.intersection(keys)) for site, keys in ids.items()}
    return Referrers(paths, garbage, "complete" if holders.is_complete else "incomplete")


def _most_frequent(paths: Iterable[str]) -> str | None:
    """Return the first of the most frequent paths. Paths that differ in numbers alone are alike."""
    alike = by_key((re.sub("[0-9]+", "0", path), path) for path in paths)
    return max(alike.values(), key=len)[0] if alike else None


def origin_growths(
    new: Mapping[Kind, int],
    freed: Mapping[Kind, int],
    trends: Trends,
    referrers: Referrers,
) -> tuple[OriginGrowth, ...]:
    """Return the growth of each allocation site, steady growth first.

    Args:
        new: The number of arrays of each kind that are alive now and were not at entry.
        freed: The number of arrays of each kind that were alive at entry and are not now.
        trends: The trends over the steps since entry.
        referrers: What refers to the new arrays of each site that rose.
    """
    growing = trends.growing()
    new_at, freed_at = by_site(new, growing), by_site(freed, growing)
    growths = []
    for site in {**new_at, **freed_at, **growing}:
        born, gone = new_at.get(site, {}), freed_at.get(site, {})
        trend = growing.get(site, NO_TREND)
        separate = [other for other in growing if other != site and Site(other.origin, None) == site]
        count_per_step, nbytes_per_step = trends.per_step(site, separate) or (None, None)
        growth = OriginGrowth(
            **called(site, born or gone),
            content=largest_content(born or gone) if born or gone else None,
            count=sum(born.values()),
            device_nbytes=held_nbytes(born),
            freed_count=sum(gone.values()),
            freed_device_nbytes=held_nbytes(gone),
            count_per_step=count_per_step,
            nbytes_per_step=nbytes_per_step,
            rose_every_step=trend.is_at_every_step,
            rose_steps=trend.steps,
            rose_count=trend.by.arrays,
            rose_nbytes=trend.by.nbytes,
            stopped_at=trend.stopped_at,
            rose_content=site.content if site in growing else None,
            holder=referrers.paths.get(site),
            garbage_count=referrers.garbage_counts.get(site, 0),
        )
        growths.append(growth)
    return tuple(sorted(growths, key=_rising_first))


def _rising_first(growth: OriginGrowth) -> tuple[object, ...]:
    return (
        not growth.rose_every_step,
        growth.stopped_at is not None,
        -(growth.nbytes_per_step or 0) if growth.rose_every_step else 0,
        -growth.rose_nbytes,
        -growth.nbytes,
        -growth.freed_nbytes,
        -growth.count,
        str(growth.origin),
        growth.content or "",
    )


def track_arrays(platform: str | None = None) -> ArrayTracker:
    """Return a tracker that finds the arrays allocated, and those freed, since it was entered.

    Use it in a ``with`` statement, call ``step()`` at the end of each step, and print the result with
    ``print_growth``, or get it from ``report()``.

    >>> import jax.numpy as jnp
    >>> with track_arrays() as growth:
    ...     kept = []
    ...     for batch in range(3):
    ...         kept.append(jnp.zeros(256))
    ...         growth.step()
    >>> [(origin.count, origin.nbytes_per_step) for origin in growth.report().origins]
    [(3, 1024.0)]

    Args:
        platform: The platform, such as ``"cpu"``. Defaults to JAX's default backend.

    Raises:
        UnsupportedValueError: (a ValueError) If ``platform`` is not text.
    """
    return ArrayTracker(platform)


class _Entry(NamedTuple):
    """The live arrays at the entry of a tracker."""

    alive: Alive
    held: DeviceBytes
    trends: Trends
    """The trends over the steps since entry."""


class ArrayTracker:
    """Tracker of the arrays allocated and freed since it was entered. ``track_arrays`` returns it.

    It holds only weak references to arrays and keeps none alive. It never waits for a computation, and costs
    nothing between steps. Entering it again starts over. It can be used from any thread.
    """

    def __init__(self, platform: str | None = None) -> None:
        require(platform, (str, NoneType), 'the name of a platform, such as "cpu"')
        self._platform = platform
        self._census = Census(callers=None)
        self._entry: _Entry | None = None

    def __enter__(self) -> Self:
        with one_at_a_time():
            self._census = Census(callers=shown_callers())
            held = self._measured()
            self._entry = _Entry(self._census.alive, held, Trends(levels_of(self._census.counts)))
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: a report after the block is about the moment of the call, as inside the block."""

    def step(self) -> None:
        """Record the live arrays at the end of a step.

        Takes about 1 µs for each array that was alive after the previous step, and a few µs for each new
        array. The tracker's memory use does not grow with the number of steps.

        Raises:
            TrackerError: (a RuntimeError) If the tracker has not been entered.
        """
        with one_at_a_time():
            trends = self._entered().trends
            self._census.update(self._live_arrays)
            trends.add(levels_of(self._census.counts))

    def report(
        self,
        *,
        collect: bool = False,
        referrers: bool = False,
        max_seconds: float | None = 5.0,
        on_progress: OnProgress | None = None,
    ) -> GrowthReport:
        """Return the arrays allocated and freed since the tracker was entered, inside its block or after it.

        New arrays are alive now but were not at entry. Freed arrays were alive at entry but are not now;
        deleted and donated arrays count as freed. Arrays that were both allocated and freed since entry do
        not appear. New and freed arrays are grouped by allocation site, with their bytes on each device.

        If ``step()`` was called at least twice, the report also contains the average growth of each
        allocation site per step, with bytes in total over all devices of this process. The first step is
        treated as warm-up and is excluded from the average. The report marks the sites where the number of
        arrays, or their bytes, increased in every step, and those where the bytes increased in several steps
        and never fell. At these sites, each dtype and shape whose arrays increased in this way has its own
        entry. Views, such as the arrays that ``addressable_shards`` creates, take no memory and appear only
        in ``view_count``.

        >>> import jax.numpy as jnp
        >>> with track_arrays() as growth:
        ...     history = jnp.zeros(256)
        >>> [(origin.count, origin.nbytes) for origin in growth.report().origins]
        [(1, 1024)]

        Args:
            collect: Whether to run ``gc.collect()`` first, and to report the arrays that it freed: those that
                only reference cycles kept alive. When Python runs the collector depends on the number of
                objects, not on the device memory that they hold, so such arrays can occupy memory for a long
                time. Arrays that other threads release during the collection are reported, too.
            referrers: Whether to add the shortest reference path to each new array of the allocation sites
                where arrays increased from step to step, to the oldest 1000 of each.
            max_seconds: Time limit of the search for referrers, in seconds. None removes the limit.
            on_progress: Function that is called repeatedly during the search, with the seconds since its
                start.

        Raises:
            TrackerError: (a RuntimeError) If the tracker has not been entered.
            ValueError: If ``max_seconds`` is negative or not a number.
        """
        import jax

        checked_seconds(max_seconds)
        with one_at_a_time():
            entry = self._entered()
            freed = collect_arrays(self._census, self._live_arrays) if collect else ()
            held = self._measured()
            now, before, trends = self._census.alive, entry.alive, entry.trends
            search = (
                find_referrers(
                    now, before, trends.growing(), max_seconds=max_seconds, on_progress=on_progress
                )
                if referrers
                else Referrers()
            )
            origins = origin_growths(now.counts_without(before), before.counts_without(now), trends, search)
            steps = trends.steps
        return GrowthReport(
            platform=jax.local_devices(backend=self._platform)[0].platform,
            steps=steps,
            origins=origins,
            count_before=len(before.owners),
            count=len(now.owners),
            nbytes_before=entry.held.on_devices,
            nbytes=held.on_devices,
            host_nbytes_before=entry.held.in_host,
            host_nbytes=held.in_host,
            nbytes_source=held.source if held.source == entry.held.source else "arrays",
            origins_known=known_origins(),
            collected=collect,
            freed_by_collection=freed,
            holders=search.holders,
            view_count=len(now.views),
        )

    def _entered(self) -> _Entry:
        if self._entry is None:
            raise TrackerError("the tracker has not been entered: write `with track_arrays() as growth:`")
        return self._entry

    def _live_arrays(self) -> list[Any]:
        import jax

        arrays: list[Any] = jax.live_arrays(self._platform)
        return arrays

    def _measured(self) -> DeviceBytes:
        """Update the census, and return the bytes on each device."""
        import jax

        profile = profile_nbytes(self._platform)
        self._census.update(self._live_arrays)
        return device_bytes(jax.local_devices(backend=self._platform), profile, self._census.counts)
