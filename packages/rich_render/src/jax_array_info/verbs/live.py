"""The function that prints the live arrays."""

from __future__ import annotations

from jax_array_info_core import (
    live_array_report,
)
from jax_array_info_core.delivery import deliver
from jax_array_info_core.reports.live_totals import By, check_totals_by

from ..style import ForConsole
from ..tables.live import live_array_table
from .progress import progress_line
from .show import show_rendered, silent_at_exit


@silent_at_exit
def print_array_stats(
    hide_small_arrays: bool = False,
    *,
    max_rows: int | None = 100,
    by: By = "shape",
    origins: bool = False,
    holders: bool = False,
    specs: bool = False,
    max_seconds: float | None = 5.0,
) -> None:
    """Print a table of all live arrays, the largest first.

    ``size`` is what one device holds of an array, ``sharded`` its whole size and the number of replicas
    of each shard; arrays alike in all columns and in sharding are one row. Arrays that a program has made
    by reading ``array.addressable_shards`` are ``views of`` that array, and count 0 bytes of their own.
    Below them are the scalars by dtype, and what the fullest device holds. On a terminal of more than 80
    columns, ``share`` is how much of that a row takes, where there is room for it.

    Args:
        hide_small_arrays: Fold unlabelled arrays under 3 KiB a device into one row.
        max_rows: How many rows of arrays to show; what is left is one row more. None for all.
        by: What the arrays of a row have in common: ``shape`` (and all else that the columns show),
            ``origin``, ``device``, ``dtype`` or ``sharding``; for others than ``shape`` a row has what
            the fullest device holds of them, what all devices of this process hold, and how many.
        origins: Say which line of your code made the arrays. Frames of jax, flax, optax, equinox, the
            standard library and ``config.hidden_modules`` are passed over.
        holders: Say which names lead to the arrays: ``train.state.params['w']``, ``main() local batch``,
            ``closure of make_step.<locals>.step: params``, ``generator prefetch local next_batch``. This
            searches all objects of the program, which takes a second or more for a million of them. A line
            on stderr, where that is a terminal, shows the progress after a second.
        specs: Show the partition spec of each sharded row, such as ``P('data', None)``; otherwise only rows
            that differ in nothing else have it.
        max_seconds: After how many seconds to end that search; None for no bound.

    Raises:
        ValueError: ``by`` is none of these, ``max_rows`` is negative, ``max_seconds`` is no number.
    """
    check_totals_by(by)
    with progress_line("searching for referrers", max_seconds) as on_progress:
        report = live_array_report(
            origins=origins or by == "origin",
            holders=holders,
            max_seconds=max_seconds,
            on_progress=on_progress,
        )
    deliver(
        report,
        lambda report: show_rendered(
            ForConsole(
                lambda _, options: live_array_table(
                    report,
                    by=by,
                    hide_small_arrays=hide_small_arrays,
                    max_rows=max_rows,
                    specs=specs,
                    width=options.max_width,
                )
            )
        ),
    )
