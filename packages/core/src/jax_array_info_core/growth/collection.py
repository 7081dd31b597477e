"""Arrays that only the garbage collector frees, and the reference cycles that held them."""

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
    """The arrays that it freed and reference counting had not, the most bytes first."""

    cycles: Literal["not asked", "complete", "incomplete"] = "not asked"
    """Whether the search for the reference cycles that held them was complete."""


def collect_arrays(
    live_arrays: Callable[[], list[Any]],
    snapshot_of: Callable[[list[Any]], Snapshot],
    *,
    max_seconds: float | None,
    on_progress: OnProgress | None,
) -> Collection:
    """Run the garbage collector, and return the arrays that it freed with their reference cycles.

    Args:
        live_arrays: Returns all live arrays.
        snapshot_of: Returns their snapshot.
        max_seconds: The time limit for the search for cycles, in seconds; None for no limit.
        on_progress: Called while the search runs, with the seconds since its start.
    """
    arrays = live_arrays()
    cycles = find_cycles(arrays, max_seconds=max_seconds, on_progress=on_progress)
    snapshot = snapshot_of(arrays)
    del arrays
    # Reference counting freed these, not the collection below.
    snapshot.remove_gone()
    gc.collect()
    snapshot.restore_references(live_arrays())
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
