"""Function that prints the growth of live arrays."""

from __future__ import annotations

from jax_array_info.tables.folds import check_max_rows
from jax_array_info_core import ArrayTracker
from jax_array_info_core.errors import UnsupportedValueError
from jax_array_info_core.reports import GrowthReport

from ..tables.growth import growth_table
from .progress import progress_line
from .show import print_table, silent_at_exit


@silent_at_exit
def print_growth(
    growth: ArrayTracker | GrowthReport,
    *,
    collect: bool = False,
    max_rows: int | None = 100,
    max_seconds: float | None = 5.0,
) -> None:
    """Print the arrays allocated and freed since a tracker was entered.

    - The first lines name the allocation sites where the number of live arrays, or their bytes, increased in
      every step. Sites where the bytes increased in several steps and never fell come next. The bytes in
      all these lines are summed over the devices of this process. The first step is treated as warm-up: it
      need not show an increase, and it is excluded from the growth per step.
    - The table lists the arrays allocated and freed at each allocation site since the tracker was entered,
      including those of the first step. Each size is for the device on which the arrays take the most bytes.
    - The last lines show the bytes in live arrays on each device. Shared buffers are counted once.

    Views, such as the arrays that ``addressable_shards`` creates, take no memory. Only their number is
    printed.

    >>> import jax.numpy as jnp
    >>> from jax_array_info import print_growth, track_arrays
    >>> losses = []
    >>> with track_arrays() as growth:
    ...     for step in range(100):
    ...         losses.append(jnp.zeros(256))
    ...         growth.step()
    >>> print_growth(growth)
    +1 array, +1.0 KiB per step, made at train.py:6 <module>: float32[256]
    Growth is summed over 8 devices.
                      new and freed jax arrays after 100 steps
    ┏━━━━━┳━━━━━━━━━━━┳━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━┓
    ┃ new ┃  new size ┃ freed ┃ freed size ┃ largest      ┃ made at             ┃
    ┡━━━━━╇━━━━━━━━━━━╇━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━┩
    │ 100 │ 100.0 KiB │       │            │ float32[256] │ train.py:6 <module> │
    └─────┴───────────┴───────┴────────────┴──────────────┴─────────────────────┘
                         Sizes are the maximum per device.
    100 new arrays, 0 freed, 100 alive, 0 at the start
    CPU 0: 100.0 KiB, 100.0 KiB more than at the start
    CPU 1-7: 0.0 B each, same as at the start

    Args:
        growth: The tracker that ``track_arrays`` returned, inside its ``with`` block or after it, or
            its report.
        collect: Whether to run ``gc.collect()`` first, and to print the arrays that it freed: those that only
            reference cycles kept alive. The lines on growth per step, which come first, still count these
            arrays, because the steps precede the collection.
        max_rows: Maximum number of allocation sites in each part: growing arrays, new and freed arrays,
            arrays freed by the garbage collector. One more line sums the remaining sites. None shows all.
        max_seconds: With ``collect``, time limit of the search for the reference cycles that kept arrays
            alive, in seconds. None removes the limit. On a terminal, a line on stderr shows its progress
            after the first second.

    Raises:
        TrackerError: (a RuntimeError) If the tracker has not been entered.
        UnsupportedValueError: (a ValueError) If ``growth`` is not a tracker.
        ValueError: If ``max_rows`` is negative, or ``max_seconds`` is not a number of seconds.
    """
    if not isinstance(growth, ArrayTracker | GrowthReport):
        raise UnsupportedValueError(f"expected a tracker from track_arrays(), got {type(growth)}")
    check_max_rows(max_rows)
    if isinstance(growth, GrowthReport):
        print_table(growth, lambda report, _: growth_table(report, max_rows=max_rows))
        return
    with progress_line("searching for reference cycles", max_seconds) as on_progress:
        report = growth.report(collect=collect, max_seconds=max_seconds, on_progress=on_progress)
    print_table(report, lambda report, _: growth_table(report, max_rows=max_rows))
