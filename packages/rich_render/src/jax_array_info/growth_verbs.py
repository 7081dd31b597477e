"""The function that prints what has come and gone."""

from __future__ import annotations

from jax_array_info_core import ArrayTracker, GrowthReport
from jax_array_info_core.collecting import deliver

from .growth_table import growth_table
from .verbs import _print


def print_growth(growth: ArrayTracker, *, collect: bool = False, max_rows: int | None = 100) -> None:
    """Print what has come and gone since a tracker was entered.

    First the lines of your code whose arrays rose at every step, in number or in bytes; then what is new
    and what was freed by the line that made it, each with the bytes that the fullest device holds of it;
    then what the devices hold, buffers that arrays share counted once.

    Args:
        growth: What ``track_arrays`` has returned, inside its block or after it.
        collect: Run ``gc.collect()`` once, first, and tell what only that has freed.
        max_rows: How many lines of code the table has; what is left is one row more. None for all.

    Raises:
        TrackerError: (a RuntimeError) the tracker has not been entered.
        ValueError: ``max_rows`` is negative.
    """

    def show(report: GrowthReport) -> None:
        _print(lambda console: growth_table(report, max_rows=max_rows, encoding=console.encoding))

    deliver(growth.report(collect=collect), show)
