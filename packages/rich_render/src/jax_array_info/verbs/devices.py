"""The functions that print the memory of devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jax_array_info_core import (
    DevicesReport,
    devices_report,
    memory_profile_report,
    memory_report,
)
from jax_array_info_core.delivery import deliver
from jax_array_info_core.reports.rows import check_max_rows

from ..style import ForConsole
from ..tables.devices import memory_stats_table, memory_table
from ..tables.profile import memory_profile_tables
from .show import show_rendered, silent_at_exit


@silent_at_exit
def pretty_memory_stats(device: Any, override: Mapping[str, Any] | None = None) -> None:
    """Print the memory statistics of a device as a table, or one line that says why there are none.

    Args:
        device: A device, as in ``jax.local_devices()``.
        override: Stands in for ``device.memory_stats()``, and is left as it is.
    """
    deliver(memory_report(device, override), lambda report: show_rendered(memory_table(report)))


@silent_at_exit
def print_memory_stats(devices: Any | Iterable[Any] | None = None) -> None:
    """Print a table of the memory of devices, a row each.

    Bytes in use, the peak and the limit are those of the device's allocator; the bar is what is in use,
    then what was at the peak. ``arrays`` is what live arrays take of it, buffers that they share counted
    once, and ``other`` what is left: executables, temporaries. A backend that reports nothing, as
    that of CPU, has its live arrays all the same. Nothing is waited for, no array is added.

    Args:
        devices: A device or several, as in ``jax.devices()``; all of this process when None.

    Raises:
        UnsupportedValueError: (a ValueError) one is no device.
    """
    if devices is None:
        import jax

        devices = jax.local_devices()
    deliver(devices_report(devices), _show_memory_stats)


def _show_memory_stats(report: DevicesReport) -> None:
    show_rendered(ForConsole(lambda _, options: memory_stats_table(report, width=options.max_width)))


@silent_at_exit
def print_memory_profile(
    data: bytes | bytearray | memoryview | None = None, *, max_rows: int | None = 100
) -> None:
    """Print what each line of your code holds on each device, the most bytes first; then the executables.

    A line is the innermost frame that is not of jax, flax, optax, equinox, the standard library or
    ``config.hidden_modules``; devices on which it holds the same are one row. Buffers that arrays share
    count once. Nothing is waited for, no array is added.

    Args:
        data: A profile, as ``jax.profiler.save_device_memory_profile`` writes it, of this or another
            machine; one of this process's default backend is taken when None.
        max_rows: How many lines to show; what is left is one row more, with what the fullest devices hold of
            it together. None for all.

    Raises:
        ProfileError: (a ValueError) the data are damaged, no memory profile of JAX's, more than 256 MiB
            unpacked or more than 1,000,000 messages; or the backend takes none.
        UnsupportedValueError: (a ValueError) they are no bytes.
        ValueError: ``max_rows`` is negative.
    """
    check_max_rows(max_rows)
    deliver(
        memory_profile_report(data),
        lambda report: show_rendered(memory_profile_tables(report, max_rows=max_rows)),
    )
