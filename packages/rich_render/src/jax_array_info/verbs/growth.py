"""The function that prints what has come and gone."""

from __future__ import annotations

from jax_array_info_core import ArrayTracker, UnsupportedValueError
from jax_array_info_core.delivery import deliver
from jax_array_info_core.reports.rows import check_max_rows

from ..tables.growth import growth_table
from .progress import progress_line
from .show import show_rendered, silent_at_exit


@silent_at_exit
def print_growth(
    growth: ArrayTracker,
    *,
    collect: bool = False,
    max_rows: int | None = 100,
    max_seconds: float | None = 5.0,
) -> None:
    """Print what has come and gone since a tracker was entered.

    First the lines of your code whose arrays rose at every step, in number or in bytes on all devices of
    this process together, then those whose bytes rose at several steps and never fell; then what is new and
    what was freed by the line that made it, each with the bytes that the fullest device holds of it; then
    what the devices hold, buffers that arrays share counted once. Views, as ``addressable_shards`` makes
    them, take no memory: their number alone is told.

    Args:
        growth: What ``track_arrays`` has returned, inside its block or after it.
        collect: Run ``gc.collect()`` once, first, and tell what only that has freed.
        max_rows: How many lines of code to tell of what rose, of what is new or freed, and of what the
            collector has freed; what is left of each is one line more. None for all.
        max_seconds: With ``collect``, after how many seconds to end the search for the reference cycles that
            held what it has freed; None for no bound. A line on stderr, where that is a terminal, shows the
            progress after a second.

    Raises:
        TrackerError: (a RuntimeError) the tracker has not been entered.
        UnsupportedValueError: (a ValueError) it is no tracker.
        ValueError: ``max_rows`` is negative, ``max_seconds`` is no number of seconds.
    """
    if not isinstance(growth, ArrayTracker):
        raise UnsupportedValueError(f"is no tracker of track_arrays(), got {type(growth)}")
    check_max_rows(max_rows)
    with progress_line("searching for reference cycles", max_seconds) as on_progress:
        report = growth.report(collect=collect, max_seconds=max_seconds, on_progress=on_progress)
    deliver(report, lambda report: show_rendered(growth_table(report, max_rows=max_rows)))
