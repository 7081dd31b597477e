"""Function that prints live arrays."""

from __future__ import annotations

from jax_array_info_core import (
    live_array_report,
)
from jax_array_info_core.reports.live import By, check_totals_by

from ..tables.live import live_array_table
from .progress import progress_line
from .show import print_table, silent_at_exit


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

    ``size`` is the size of one array on one device; in the panel of ``sharding_info``, it is the global size.
    ``✔`` means that the array is on several devices, sharded or replicated. Its global size, which
    counts each element once, and the number of replicas of each shard follow. Arrays with the same
    value in every column and the same sharding share a row, with their number after the shape (``×2``).
    Scalars have one row per dtype, below the other arrays: ``2×s`` means two scalars, and ``size`` is their
    sum. The last row is the total on the fullest device. On 8 CPU devices:

    >>> import jax, jax.numpy as jnp, numpy as np
    >>> from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    >>> from jax_array_info import print_array_stats
    >>> mesh = Mesh(np.reshape(jax.devices(), 8), ("data",))
    >>> zeros = [np.zeros((1024, 512), np.float32) for _ in range(2)]
    >>> moments = [jax.device_put(array, NamedSharding(mesh, P("data"))) for array in zeros]
    >>> head = jax.device_put(np.zeros((512, 512), np.float32), NamedSharding(mesh, P()))
    >>> print_array_stats()
                              allocated jax arrays
    ┏━━━━━━━━━━━┳━━━━━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┓
    ┃ size      ┃ shape          ┃ dtype   ┃            sharded            ┃
    ┡━━━━━━━━━━━╇━━━━━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┩
    │ 1.0 MiB   │ (512, 512)     │ float32 │ ✔ (1.0 MiB total, 8 replicas) │
    │ 256.0 KiB │ (1024, 512) ×2 │ float32 │       ✔ (2.0 MiB total)       │
    ├───────────┼────────────────┼─────────┼───────────────────────────────┤
    │ 1.5 MiB   │                │         │                               │
    └───────────┴────────────────┴─────────┴───────────────────────────────┘
    >>> print_array_stats(by="dtype")
               allocated jax arrays by dtype
    ┏━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━┳━━━━━━━━┳━━━━━━━━━┓
    ┃ max per device ┃ all devices ┃ arrays ┃ dtype   ┃
    ┡━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━╇━━━━━━━━╇━━━━━━━━━┩
    │        1.5 MiB │    12.0 MiB │      3 │ float32 │
    ├────────────────┼─────────────┼────────┼─────────┤
    │        1.5 MiB │             │        │         │
    └────────────────┴─────────────┴────────┴─────────┘

    - On terminals wider than 80 columns, a column named ``of total`` is added if it fits: the bytes
      of all arrays of the row on the fullest device, as a fraction of the last row.
    - Arrays that come from ``array.addressable_shards`` are listed as ``views of`` that array. They share its
      memory and count as 0 bytes. In grouped tables, the ``arrays`` column counts them too.
    - The last row does not include arrays in host memory. The row ``in host memory``, above it, shows their
      total.

    Args:
        hide_small_arrays: Whether to sum unlabeled arrays under 3 KiB per device in one row.
        max_rows: Maximum number of rows of arrays. One more row sums the remaining arrays. None shows all.
        by: Grouping of the rows: ``"shape"`` (arrays that match in every column), ``"origin"`` (allocation
            site), ``"device"``, ``"dtype"`` or ``"sharding"``. For an origin, dtype or sharding,
            ``max per device`` is the size of the arrays of the row on one device: the one where they take the
            most bytes, which may be a different one in each row. ``all devices`` is their total over all
            devices, including replicas. With several processes, this column is ``local devices``, the total
            over the devices of this process.
        origins: Whether to show the allocation site of each array, in the column ``made at``: the innermost
            line outside JAX, the standard library, ``config.hidden_modules`` and installed packages other
            than ``config.user_packages``.
        holders: Whether to show the Python referrers of each array, in the column ``held by``: at most five
            reference paths, fewer if they would take more than ``max_rows`` lines, such as
            ``train.state.params['w']``, ``main() local batch``,
            ``closure of make_step.<locals>.step: params`` or ``generator prefetch local next_batch``. The
            search visits every object of the program and takes a second or more per million objects. On a
            terminal, a line on stderr shows its progress after the first second.
        specs: Whether to show the partition spec of every sharded array, such as ``P('data', None)``. By
            default, a row shows its spec only if another row is otherwise identical.
        max_seconds: Time limit of the search for referrers, in seconds. None removes the limit.

    Raises:
        ValueError: If ``by`` is not one of the values above, ``max_rows`` is negative, or ``max_seconds`` is
            not a number of seconds.
    """
    check_totals_by(by)
    with progress_line("searching for referrers", max_seconds) as on_progress:
        report = live_array_report(
            origins=origins or by == "origin",
            holders=holders,
            max_seconds=max_seconds,
            on_progress=on_progress,
        )
    print_table(
        report,
        lambda report, width: live_array_table(
            report,
            by=by,
            hide_small_arrays=hide_small_arrays,
            max_rows=max_rows,
            specs=specs,
            width=width,
        ),
    )
