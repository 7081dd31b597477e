"""Arrays that only the garbage collector frees."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from ..holders.cycles import find_cycles
from ..holders.search import OnProgress
from ..reports.growth import CollectedArrays
from .snapshot import Allocation, Site, Snapshot, held_nbytes, largest_content


class Collection(NamedTuple):
    """A run of the garbage collector."""

    freed: tuple[CollectedArrays, ...] = ()
    """The arrays that only it has freed, the most bytes first."""

    cycles: Literal["not asked", "complete", "incomplete"] = "not asked"
    """Whether all reference cycles that held them were found."""


def collect_arrays(
    live_arrays: Callable[[], list[Any]],
    snapshot_of: Callable[[list[Any]], Snapshot],
    *,
    max_seconds: float | None,
    on_progress: OnProgress | None,
) -> Collection:
    """Run the garbage collector, and return what only that has freed.

    Args:
        live_arrays: Returns all live arrays.
        snapshot_of: Returns their snapshot.
        max_seconds: After how many seconds to end the search for cycles; None for no bound.
        on_progress: Called while the search runs, with the seconds so far.
    """
    arrays = live_arrays()
    cycles = find_cycles(arrays, max_seconds=max_seconds, on_progress=on_progress)
    snapshot = snapshot_of(arrays)
    del arrays
    # These die without a collection.
    snapshot.remove_gone()
    gc.collect()
    snapshot.know_again(live_arrays())
    freed: dict[tuple[Site, str | None], Counter[Allocation]] = {}
    for key, allocation in snapshot.remove_gone().items():
        freed.setdefault((allocation.line, cycles.paths.get(key)), Counter())[allocation] += 1
    found = [
        CollectedArrays(
            origin=site.origin,
            content=largest_content(counts),
            count=counts.total(),
            device_nbytes=held_nbytes(counts),
            cycle=cycle,
        )
        for (site, cycle), counts in freed.items()
    ]
    return Collection(
        tuple(sorted(found, key=lambda arrays: (-arrays.nbytes, -arrays.count, arrays.content))),
        "complete" if cycles.is_complete else "incomplete",
    )
