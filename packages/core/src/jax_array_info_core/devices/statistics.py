"""The memory statistics of one device."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..compat.devices import device_name
from ..quantities import MAX_DIGITS
from ..reports.devices import MemoryReport
from ..text import plain_text


def memory_report(device: Any, stats: Mapping[str, Any] | None = None) -> MemoryReport:
    """Return the memory statistics of a device's allocator.

    >>> import jax
    >>> memory_report(jax.devices()[0], {"num_allocs": 2, "bytes_in_use": 512}).stats
    (('bytes_in_use', 512),)

    Args:
        device: A device, as in ``jax.local_devices()``.
        stats: Statistics to use instead of ``device.memory_stats()``, with sizes in bytes. The mapping is not
            changed.
    """
    reason: str | None = "the statistics are empty"
    if stats is None:
        stats, reason = read_stats(device)
    if not stats:
        reason = reason or f"not reported by the {device.platform} backend"
        return MemoryReport(device=device_name(device), stats=None, missing_reason=reason)
    plain = {plain_text(name): _plain(value) for name, value in stats.items()}
    allocations = plain.get("num_allocs")
    if isinstance(allocations, int):
        del plain["num_allocs"]
    return MemoryReport(
        device=device_name(device),
        stats=tuple(plain.items()),
        allocation_count=allocations if isinstance(allocations, int) else None,
    )


def read_stats(device: Any) -> tuple[Mapping[str, Any] | None, str | None]:
    """Return a device's statistics and None, or None and the reason why they are missing, if it is known."""
    try:
        stats = device.memory_stats()
    except Exception as error:
        # A device of another process, or a plugin without statistics: they raise different errors.
        return None, str(error).partition("\n")[0]
    if stats:
        return stats, None
    if device.platform == "gpu" and os.environ.get("XLA_PYTHON_CLIENT_ALLOCATOR") == "platform":
        return None, "XLA_PYTHON_CLIENT_ALLOCATOR=platform keeps none"
    return None, None


def _plain(value: Any) -> int | float | str:
    """Return a value for JSON: a Python number, or text for very large, infinite and other values."""
    if isinstance(value, (int, np.integer)) and abs(int(value)) < 10**MAX_DIGITS:
        return int(value)
    if isinstance(value, (float, np.floating)) and abs(float(value)) < float(10**MAX_DIGITS):
        return float(value)
    return plain_text(value)
