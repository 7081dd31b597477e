"""A tracker of the live arrays over the steps of a program."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, Self

from ..errors import TrackerError
from ..holders.search import OnProgress, checked_seconds
from ..live.device_totals import DeviceBytes, device_bytes, profile_nbytes
from ..live.report import known_origins
from ..reading_lock import one_at_a_time
from ..reports.growth import GrowthReport
from .collection import Collection, collect_arrays
from .report import origin_growths
from .snapshot import Snapshot, allocation_of, type_counts
from .trends import Trends, levels_of

_MOST_ALLOCATIONS = 4096
"""The most allocations that a tracker caches, with their bytes."""


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
    """
    return ArrayTracker(platform)


class _Entry(NamedTuple):
    """The live arrays at the entry of a tracker."""

    snapshot: Snapshot
    held: DeviceBytes
    trends: Trends
    """The trends over the steps since entry."""


class ArrayTracker:
    """Tracker of the arrays allocated and freed since it was entered. ``track_arrays`` returns it.

    It holds only weak references to arrays and keeps none alive. It never waits for a computation, and costs
    nothing between steps. Entering it again starts over. It can be used from any thread.
    """

    def __init__(self, platform: str | None = None) -> None:
        self._platform = platform
        self._allocation_of = functools.lru_cache(maxsize=_MOST_ALLOCATIONS)(allocation_of)
        self._entry: _Entry | None = None
        self._latest: Snapshot | None = None

    def __enter__(self) -> Self:
        with one_at_a_time():
            self._latest = None
            snapshot, held = self._measured()
            self._entry = _Entry(snapshot, held, Trends(levels_of(snapshot.counts)))
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
            trends.add(levels_of(self._snapshot(self._live_arrays()).counts))

    def report(
        self,
        *,
        collect: bool = False,
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
            max_seconds: With ``collect``, time limit of the search for the reference cycles, in seconds. None
                removes the limit.
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
            collection = Collection()
            if collect:
                collection = collect_arrays(
                    self._live_arrays, self._snapshot, max_seconds=max_seconds, on_progress=on_progress
                )
            snapshot, held = self._measured()
            before, steps = entry.snapshot, entry.trends.steps
            origins = origin_growths(
                snapshot.counts_without(before), before.counts_without(snapshot), entry.trends
            )
        return GrowthReport(
            platform=jax.local_devices(backend=self._platform)[0].platform,
            steps=steps,
            origins=origins,
            count_before=before.counts.total(),
            count=snapshot.counts.total(),
            nbytes_before=entry.held.on_devices,
            nbytes=held.on_devices,
            host_nbytes_before=entry.held.in_host,
            host_nbytes=held.in_host,
            nbytes_source=held.source if held.source == entry.held.source else "arrays",
            origins_known=known_origins(),
            collected=collect,
            freed_by_collection=collection.freed,
            cycles=collection.cycles,
            view_count=snapshot.view_count,
        )

    def _entered(self) -> _Entry:
        if self._entry is None:
            raise TrackerError("the tracker has not been entered: write `with track_arrays() as growth:`")
        return self._entry

    def _live_arrays(self) -> list[Any]:
        import jax

        arrays: list[Any] = jax.live_arrays(self._platform)
        return arrays

    def _snapshot(self, arrays: list[Any]) -> Snapshot:
        self._latest = Snapshot(arrays, self._allocation_of, self._latest)
        return self._latest

    def _measured(self) -> tuple[Snapshot, DeviceBytes]:
        """Return a snapshot, and the bytes on each device."""
        import jax

        profile = profile_nbytes(self._platform)
        snapshot = self._snapshot(self._live_arrays())
        devices = jax.local_devices(backend=self._platform)
        return snapshot, device_bytes(devices, profile, type_counts(snapshot.counts))
