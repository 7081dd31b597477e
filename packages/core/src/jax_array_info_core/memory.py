"""One device → MemoryReport."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from .model import MemoryReport
from .units import device_name


def memory_report(device: Any, stats: Mapping[str, Any] | None = None) -> MemoryReport:
    """Return what the allocator of a device says about its memory.

    Args:
        device: A device, as in ``jax.local_devices()``.
        stats: Stands in for ``device.memory_stats()``, and is left as it is.
    """
    reason = None
    if stats is None:
        stats, reason = _read(device)
    if stats is None:
        return MemoryReport(device_name(device), None, missing_reason=reason)
    allocations = stats.get("num_allocs")
    return MemoryReport(
        device_name(device),
        tuple((str(key), _plain(value)) for key, value in stats.items() if key != "num_allocs"),
        allocation_count=None if allocations is None else int(allocations),
    )


def _read(device: Any) -> tuple[Mapping[str, Any] | None, str | None]:
    """Return a device's statistics, or None and why there are none as far as that can be known."""
    try:
        stats = device.memory_stats()
    except Exception as error:
        # A device of another process, or whatever a plugin raises for what it lacks.
        return None, str(error).partition("\n")[0]
    if stats:
        return stats, None
    if device.platform == "gpu" and os.environ.get("XLA_PYTHON_CLIENT_ALLOCATOR") == "platform":
        return None, "XLA_PYTHON_CLIENT_ALLOCATOR=platform keeps none"
    return None, f"not reported by the {device.platform} backend"


def _plain(value: Any) -> int | float | str:
    return value if isinstance(value, (int, float, str)) else str(value)
