"""Function that prints live arrays."""

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

    ``size`` is the size of one array on one device. ``sharded`` has the size of the global array and the
    number of replicas of each shard. Arrays that agree in every column and in their sharding share a row:
    ``×2`` after the shape counts them. Scalars follow, counted by dtype (``2×s``). The last row is the total
    on the fullest device. On 8 CPU devices:

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
    ┃ fullest device ┃ all devices ┃ arrays ┃ dtype   ┃
    ┡━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━╇━━━━━━━━╇━━━━━━━━━┩
    │        1.5 MiB │    12.0 MiB │      3 │ float32 │
    ├────────────────┼─────────────┼────────┼─────────┤
    │        1.5 MiB │             │        │         │
    └────────────────┴─────────────┴────────┴─────────┘

    - On terminals of more than 80 columns, ``of total`` is each row's share of the fullest device, if the
      table has room for it.
    - Arrays that ``array.addressable_shards`` made are ``views of`` that array. They share its memory and
      count 0 bytes.
    - Arrays in host memory have a total of their own, ``in host memory``.

    Args:
        hide_small_arrays: Whether to fold unlabelled arrays under 3 KiB per device into one row.
        max_rows: Maximum number of rows of arrays. One more row has the rest. None shows all.
        by: Property that the arrays of a row share: ``"shape"`` (with every other column), ``"origin"``
            (their allocation site), ``"device"``, ``"dtype"`` or ``"sharding"``. For an origin, dtype or
            sharding, ``fullest device`` is their size on the device that holds most of them, and
            ``all devices`` the sum over devices. With several processes, that is ``local devices``, the
            sum over the devices of this process.
        origins: Whether to show the allocation site of each array, in the column ``made at``: the innermost
            line outside jax, flax, optax, equinox, the standard library and ``config.hidden_modules``.
        holders: Whether to show the referrers of each array, in the column ``held by``: at most five
            reference paths such as ``train.state.params['w']``, ``main() local batch``,
            ``closure of make_step.<locals>.step: params`` or ``generator prefetch local next_batch``. The
            search visits every object of the program and takes a second or more per million objects. On a
            terminal, a line on stderr shows its progress after the first second.
        specs: Whether to show the partition spec of every sharded array, such as ``P('data', None)``. By
            default, only rows that differ in nothing else show it.
        max_seconds: Time limit of the search for referrers, in seconds. None removes the limit.

    Raises:
        ValueError: ``by`` is none of these, ``max_rows`` is negative, or ``max_seconds`` is not a number of
            seconds.
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
