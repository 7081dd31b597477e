"""Devices and the memory statistics of their allocators."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..arrays.live.report import live_array_report
from ..base.errors import UnsupportedValueError
from ..base.quantities import LARGEST
from ..base.text import plain_text
from ..compat.shardings import default_memory_kind, device_name
from ..facts.reports.devices import DeviceReport, DevicesReport, MemoryReport


def memory_report(device: Any, stats: Mapping[str, Any] | None = None) -> MemoryReport:
    """Return the memory statistics of a device's allocator.

    >>> import jax
    >>> memory_report(jax.devices()[0], {"num_allocs": 2, "bytes_in_use": 512}).stats
    (('bytes_in_use', 512),)

    Args:
        device: A device, as in ``jax.local_devices()``.
        stats: Statistics to use instead of ``device.memory_stats()``, with sizes in bytes. The mapping is not
            changed.

    Raises:
        UnsupportedValueError: (a ValueError) If ``device`` is not a device.
    """
    if stats is None and not hasattr(device, "memory_stats"):
        raise UnsupportedValueError(f"expected a device of jax.devices(), got {type(device)}")
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
    if isinstance(value, (int, np.integer)) and abs(int(value)) <= LARGEST:
        return int(value)
    if isinstance(value, (float, np.floating)) and np.isfinite(value):
        return float(value)
    return plain_text(value)


def devices_report(devices: Any | Iterable[Any] | None = None) -> DevicesReport:
    """Return the kind and the memory statistics of one or more devices.

    The call never waits for a computation, adds no array and keeps none alive. For each platform of the
    devices, it takes as long as ``live_array_report``. If a device raises an error, its report gives the
    ``missing_reason``, and the other devices are still reported.

    >>> [device.name for device in devices_report().devices][:1]
    ['cpu:0']

    Args:
        devices: One device or several, as in ``jax.local_devices()``. Defaults to ``jax.devices()``: all
            devices of the default backend, including those of other processes, whose memory is unknown.

    Raises:
        UnsupportedValueError: (a ValueError) If an element is not a device.
    """
    import jax

    chosen = jax.devices() if devices is None else _several(devices)
    array_nbytes = {platform: _array_nbytes(platform) for platform in {device.platform for device in chosen}}
    return DevicesReport(
        devices=tuple(_device_report(device, array_nbytes[device.platform]) for device in chosen)
    )


def _several(devices: Any | Iterable[Any]) -> list[Any]:
    chosen = list(devices) if isinstance(devices, Iterable) else [devices]
    for device in chosen:
        if not hasattr(device, "device_kind"):
            raise UnsupportedValueError(f"expected a device of jax.devices(), got {type(device)}")
    return chosen


def _array_nbytes(platform: str) -> dict[int, int]:
    """Return the bytes of the live arrays on each device of a platform in this process, by device id."""
    try:
        return dict(live_array_report(platform).device_nbytes)
    except RuntimeError:
        # No such backend: these are devices of an abstract topology, or stand-ins.
        return {}


def _device_report(device: Any, array_nbytes: Mapping[int, int]) -> DeviceReport:
    is_local = device.process_index == device.client.process_index()
    stats, reason = read_stats(device) if is_local else (None, "it is another process's")
    memory = _memory(stats or {})
    in_use, arrays = memory["bytes_in_use"], array_nbytes.get(device.id)
    return DeviceReport(
        id=int(device.id),
        name=device_name(device),
        platform=str(device.platform),
        kind=str(device.device_kind),
        process=int(device.process_index),
        is_local=is_local,
        memory_kinds=_memory_kinds(device),
        default_memory_kind=default_memory_kind(device),
        **memory,
        array_nbytes=arrays,
        unexplained_nbytes=None if in_use is None or arrays is None else max(in_use - arrays, 0),
        missing_reason=None if in_use is not None else reason or "not reported by this backend",
    )


def device_memory(device: Any) -> dict[str, int | None]:
    """Return the fields of a report on the memory of a device of this process: in use, peak and limit."""
    return _memory(read_stats(device)[0] or {})


def _memory(stats: Mapping[str, Any]) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for name in ("bytes_in_use", "peak_bytes_in_use", "bytes_limit"):
        value = stats.get(name)
        is_size = isinstance(value, (int, np.integer)) and 0 <= value <= LARGEST
        found[name] = int(value) if is_size else None  # type: ignore[arg-type]
    return found


def _memory_kinds(device: Any) -> tuple[str, ...]:
    try:
        return tuple(str(memory.kind) for memory in device.addressable_memories())
    except Exception:
        # Backends without memory kinds raise different errors, as do devices of other processes.
        return ()
