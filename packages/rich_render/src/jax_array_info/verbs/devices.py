"""Functions that print device memory: allocator statistics and memory profiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jax_array_info.tables.folds import check_max_rows
from jax_array_info_core import devices_report, memory_profile_report, memory_report
from jax_array_info_core.reports import DevicesReport, MemoryProfileReport, MemoryReport

from ..tables.devices import memory_profile_tables, memory_stats_table, memory_table
from .show import print_table, silent_at_exit


@silent_at_exit
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
    report = device if isinstance(device, MemoryReport) else memory_report(device, override)
    print_table(report, lambda report, _: memory_table(report))


@silent_at_exit
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
    report = devices if isinstance(devices, DevicesReport) else devices_report(devices)
    print_table(report, lambda report, width: memory_stats_table(report, width=width))


@silent_at_exit
def print_memory_profile(
    data: bytes | bytearray | memoryview | MemoryProfileReport | None = None, *, max_rows: int | None = 100
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
        ProfileError: (a ValueError) If the profile is damaged, too large (limits: 256 MiB uncompressed,
            1,000,000 protobuf messages, 10,000,000 frames) or not a memory profile from JAX, or if the
            backend provides no profile.
        UnsupportedValueError: (a ValueError) If ``data`` is not bytes.
        ValueError: If ``max_rows`` is negative.
    """
    check_max_rows(max_rows)
    report = data if isinstance(data, MemoryProfileReport) else memory_profile_report(data)
    print_table(report, lambda report, _: memory_profile_tables(report, max_rows=max_rows))
