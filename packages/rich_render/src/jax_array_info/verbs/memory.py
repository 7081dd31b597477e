"""Functions that print live arrays, their growth and the memory of devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jax_array_info_core import (
    ArrayTracker,
    devices_report,
    live_array_report,
    memory_profile_report,
    memory_report,
)
from jax_array_info_core.base.errors import require_report
from jax_array_info_core.errors import UnsupportedValueError
from jax_array_info_core.facts.pages.folds import MaxRows
from jax_array_info_core.facts.reports.live import By, check_totals_by
from jax_array_info_core.reports import (
    DevicesReport,
    GrowthReport,
    LiveArrayReport,
    MemoryProfileReport,
    MemoryReport,
)

from .show import print_table, progress_line, refuse_with, verb


@verb
def pretty_memory_stats(device: Any, override: Mapping[str, Any] | None = None) -> None:
    """Print the allocator statistics of a device as a table.

    If the device has no statistics, as on CPU, one line with the reason is printed.

    >>> import jax
    >>> from jax_array_info import pretty_memory_stats
    >>> device = jax.devices()[0]
    >>> pretty_memory_stats(device)
    no memory statistics for cpu:0: not reported by the cpu backend
    >>> pretty_memory_stats(device, {"num_allocs": 222, "bytes_in_use": 3 * 2**30})
             Memory Stats of cpu:0
                   222 allocs
    ┏━━━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━━━┓
    ┃ name         ┃    size ┃ size (raw) ┃
    ┡━━━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━━━┩
    │ bytes_in_use │ 3.0 GiB │ 3221225472 │
    └──────────────┴─────────┴────────────┘

    Args:
        device: A device, as in ``jax.local_devices()``, or a ``MemoryReport``.
        override: Statistics to print instead of ``device.memory_stats()``, with sizes in bytes. The mapping
            is not changed.
    """
    if isinstance(device, MemoryReport):
        refuse_with(MemoryReport, ["override="] if override is not None else [])
    print_table(device if isinstance(device, MemoryReport) else memory_report(device, override))


@verb
def print_memory_stats(devices: Any | Iterable[Any] | None = None) -> None:
    """Print the memory statistics of devices, one row per device.

    ``in use``, ``peak`` and ``limit`` come from the device's allocator. A bar shows the limit in three parts:
    memory in use, the additional memory that was in use at the peak, and the rest. ``in arrays`` is the size
    of the live arrays in the device's default memory, with shared buffers counted once. ``not in arrays`` is
    the rest of the memory in use: executables, temporaries and fragmentation. For a backend without
    statistics, such as CPU, only ``in arrays`` is known. On two CPU devices:

    >>> import jax, jax.numpy as jnp
    >>> from jax_array_info import print_memory_stats
    >>> weights = jnp.zeros((512, 512))
    >>> print_memory_stats(jax.devices()[:2])
    1.0 MiB in arrays on the fullest device; the memory in use is not known
                        device memory
    ┏━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━┓
    ┃ device ┃                       in use ┃ in arrays ┃
    ┡━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━┩
    │ cpu:0  │ not reported by this backend │   1.0 MiB │
    │ cpu:1  │ not reported by this backend │     0.0 B │
    └────────┴──────────────────────────────┴───────────┘

    It allocates no device memory and does not wait for computations.

    Args:
        devices: One device or several, as in ``jax.devices()``. Defaults to ``jax.local_devices()``, the
            devices of this process. A ``DevicesReport`` is printed as it is.

    Raises:
        UnsupportedValueError: (a ValueError) If one of them is not a device.
    """
    if devices is None:
        import jax

        devices = jax.local_devices()
    print_table(devices if isinstance(devices, DevicesReport) else devices_report(devices))


@verb
def print_memory_profile(
    data: bytes | bytearray | memoryview | MemoryProfileReport | None = None, *, max_rows: MaxRows = "fit"
) -> None:
    """Print device memory by the source line that allocated it, then the executables by source line.

    The source line is the innermost one outside JAX, the standard library, ``config.hidden_modules`` and
    installed packages other than ``config.user_packages``. Devices with the same bytes and number of buffers
    for a line share a row: ``per device`` and ``count`` apply to each of them. The ``all lines`` rows show
    the sum of all buffers on each device. Shared buffers are counted once. The ``size`` of executables is
    ``?`` if the backend does not report it, as on CPU.

    >>> import jax.numpy as jnp
    >>> from jax_array_info import print_memory_profile
    >>> weights = jnp.zeros((512, 512))
    >>> print_memory_profile()
    buffers take at most 1.0 MiB per device
                   buffers by source line
    ┏━━━━━━━━━━━━┳━━━━━━━┳━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━┓
    ┃ per device ┃ count ┃ device ┃ line                ┃
    ┡━━━━━━━━━━━━╇━━━━━━━╇━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━┩
    │    1.0 MiB │     1 │ cpu:0  │ train.py:3 <module> │
    ├────────────┼───────┼────────┼─────────────────────┤
    │    1.0 MiB │       │ cpu:0  │ all lines           │
    └────────────┴───────┴────────┴─────────────────────┘
    ...

    It allocates no device memory and does not wait for computations.

    Args:
        data: A pprof profile, as ``jax.profiler.save_device_memory_profile`` writes it, from any machine, or
            a ``MemoryProfileReport``. If None, the default backend of this process is profiled.
        max_rows: Maximum number of source lines. One more row shows the sum of the remaining lines, on the
            devices where this sum is largest. None shows all.

    Raises:
        ProfileError: (a ValueError) If the profile is damaged, too large (limits: 64 MiB uncompressed,
            10,000,000 frames) or not a memory profile from JAX, or if the
            backend provides no profile.
        UnsupportedValueError: (a ValueError) If ``data`` is not bytes.
        ValueError: If ``max_rows`` is negative.
    """
    report = data if isinstance(data, MemoryProfileReport) else memory_profile_report(data)
    print_table(report, max_rows=max_rows)


@verb
def print_array_stats(
    report: LiveArrayReport | bool | None = None,
    *,
    device: Any = None,
    hide_small_arrays: bool = False,
    max_rows: MaxRows = "fit",
    by: By = "shape",
    origins: bool = False,
    referrers: bool = False,
    specs: bool = False,
    max_seconds: float | None = 5.0,
) -> None:
    """Print a table of all live arrays, the largest first.

    ``size`` is the size of one array on one device; in the panel of ``sharding_info``, it is the global size.
    ``✔`` means that the array is on several devices, sharded or replicated. Its global size, which
    counts each element once, and the number of replicas of each shard follow. Arrays with the same
    value in every column and the same sharding share a row, with their number after the shape (``×2``)
    and ``each`` after the size.
    Scalars have one row per dtype, below the other arrays: ``2×s`` means two scalars, and ``size`` is their
    sum. Arrays that are on one device other than the first, or on a part of the devices, name their devices.
    The last row is the total on the fullest device, which is named if the rows do not add up to it. On 8 CPU
    devices:

    >>> import jax, jax.numpy as jnp, numpy as np
    >>> from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    >>> from jax_array_info import print_array_stats
    >>> mesh = Mesh(np.reshape(jax.devices(), 8), ("data",))
    >>> zeros = [np.zeros((1024, 512), np.float32) for _ in range(2)]
    >>> moments = [jax.device_put(array, NamedSharding(mesh, P("data"))) for array in zeros]
    >>> head = jax.device_put(np.zeros((512, 512), np.float32), NamedSharding(mesh, P()))
    >>> print_array_stats()
                                  allocated jax arrays
    ┏━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┓
    ┃ size           ┃ shape          ┃ dtype   ┃             sharded              ┃
    ┡━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┩
    │ 1.0 MiB        │ (512, 512)     │ float32 │   replicated (1.0 MiB total, 8   │
    │                │                │         │       replicas over data)        │
    │ 256.0 KiB each │ (1024, 512) ×2 │ float32 │        ✔ (2.0 MiB total)         │
    ├────────────────┼────────────────┼─────────┼──────────────────────────────────┤
    │ 1.5 MiB        │                │         │                                  │
    └────────────────┴────────────────┴─────────┴──────────────────────────────────┘
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
        report: A ``LiveArrayReport``, which is printed with the origins and referrers that it has. None lists
            the arrays that are alive now. A bool is ``hide_small_arrays``.
        device: A device, as in ``jax.local_devices()``: lists only the arrays that have a shard on it, and
            the last row is their total on it.
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
        referrers: Whether to show what refers to the arrays of a row, in the column ``held by``: the shortest
            reference path to one of them that begins at a name of the user. Paths have forms such as
            ``train.state.params['w']``, ``main() local batch``,
            ``closure of make_step.<locals>.step: params`` or ``generator prefetch local next_batch``. The
            search visits every object of the program and takes a second or more per million objects. On a
            terminal, a line on stderr shows its progress after the first second.
        specs: Whether to show the partition spec of every sharded array, such as ``P('data', None)``. By
            default, a row shows its spec only if another row is otherwise identical.
        max_seconds: Time limit of the search for referrers, in seconds. None removes the limit.

    Raises:
        UnsupportedValueError: (a ValueError) If ``report`` is something else, or ``device`` is not a device
            of this process.
        ValueError: If ``by`` is not one of the values above, ``max_rows`` is negative, or ``max_seconds`` is
            not a number of seconds.
    """
    check_totals_by(by)
    hides = hide_small_arrays or report is True
    if report is None or isinstance(report, bool):
        with progress_line("searching for referrers", max_seconds) as on_progress:
            report = live_array_report(
                device=device,
                origins=origins or by == "origin",
                referrers=referrers,
                max_seconds=max_seconds,
                on_progress=on_progress,
            )
    else:
        require_report(report, LiveArrayReport)
        asked = (("device=", device is not None), ("origins=", origins), ("referrers=", referrers))
        refuse_with(LiveArrayReport, [name for name, is_asked in asked if is_asked])
    if by == "origin" and report.origins == "not asked":
        raise UnsupportedValueError("the report has no allocation sites: make it with origins=True")
    print_table(report, by=by, hide_small_arrays=hides, max_rows=max_rows, specs=specs)


@verb
def print_growth(
    growth: ArrayTracker | GrowthReport,
    *,
    collect: bool = False,
    referrers: bool = False,
    max_rows: MaxRows = "fit",
    max_seconds: float | None = 5.0,
) -> None:
    """Print the arrays allocated and freed since a tracker was entered.

    - The first lines name the allocation sites where the number of live arrays, or their bytes, increased in
      every step. Sites where the bytes increased in several steps and never fell come next. The bytes in
      all these lines are summed over the devices of this process. The first step is treated as warm-up: it
      need not show an increase, and it is excluded from the growth per step.
    - The table lists the arrays allocated and freed at each allocation site since the tracker was entered,
      including those of the first step. Each size is summed over the devices of this process.
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
    +1 array, +1.0 KiB (sum over 8 devices) per step, made at train.py:6 <module>:
    float32[256]
                      new and freed jax arrays after 100 steps
    ┏━━━━━┳━━━━━━━━━━━┳━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━┓
    ┃ new ┃  new size ┃ freed ┃ freed size ┃ largest      ┃ made at             ┃
    ┡━━━━━╇━━━━━━━━━━━╇━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━┩
    │ 100 │ 100.0 KiB │       │            │ float32[256] │ train.py:6 <module> │
    └─────┴───────────┴───────┴────────────┴──────────────┴─────────────────────┘
                  Sizes are sums over the devices of this process.
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
        referrers: Whether to end the line of each site where arrays increased with a referrer of these
            arrays, such as ``held by train.losses[0:100]``, and the number of further ones: of the oldest
            1000 arrays. The search visits every object of the program.
        max_seconds: Time limit of the search for referrers, in seconds. None removes the limit. On a
            terminal, a line on stderr shows its progress after the first second.

    Raises:
        TrackerError: (a RuntimeError) If the tracker has not been entered.
        UnsupportedValueError: (a ValueError) If ``growth`` is neither a tracker nor its report.
        ValueError: If ``max_rows`` is negative, or ``max_seconds`` is not a number of seconds.
    """
    if not isinstance(growth, ArrayTracker | GrowthReport):
        raise UnsupportedValueError(f"expected a tracker from track_arrays(), got {type(growth)}")
    if isinstance(growth, ArrayTracker):
        with progress_line("searching for referrers", max_seconds) as on_progress:
            growth = growth.report(
                collect=collect, referrers=referrers, max_seconds=max_seconds, on_progress=on_progress
            )
    else:
        asked = (("collect=", collect), ("referrers=", referrers))
        refuse_with(GrowthReport, [name for name, is_asked in asked if is_asked])
    print_table(growth, max_rows=max_rows)
