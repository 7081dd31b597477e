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
from .snapshot import Snapshot, allocation_of, kind_counts
from .trends import Trends, levels_of

_MOST_ALLOCATIONS = 4096
"""How many allocations a tracker remembers, so as not to compute their bytes again."""


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
    """What was alive when a tracker was entered."""

    snapshot: Snapshot
    held: DeviceBytes
    trends: Trends
    """The steps since."""


class ArrayTracker:
    """Tells what has come and gone since it was entered; made by ``track_arrays``.

    It knows arrays by weak references: it keeps none alive, waits for no computation, and costs nothing
    between its steps. Entered again, it begins again. Any thread may call it.
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
        """Leave all as it is: a report after the block is about the moment when it is asked for."""

    def step(self) -> None:
        """Take note of what is alive at the end of a step.

        Takes about a microsecond for an array that was alive after the step before, a few for a new one.
        What is remembered does not grow with the number of steps.

        Raises:
            TrackerError: (a RuntimeError) the tracker has not been entered.
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
        return snapshot, device_bytes(devices, profile, kind_counts(snapshot.counts))
