"""Devices: names, processes, memory kinds and the default device."""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter
from typing import Any

import numpy as np

from ..errors import LayoutError
from ..layouts.layout import Placement, Processes
from ..text import plain_text
from .array_facts import DeviceFacts


def device_name(device: object) -> str:
    """Return the name of a device; ``TFRT_CPU_2``, as in JAX up to 0.9, becomes ``cpu:2`` as in newer JAX."""
    return plain_text(device).replace("TFRT_CPU_", "cpu:")


def placement(devices: Collection[Any]) -> Placement:
    """Return the ids, the platform and the processes of some devices.

    Raises:
        LayoutError: If ``devices`` is empty.
    """
    if not devices:
        raise LayoutError("the mesh is empty: a sharding needs at least one device")
    ids = np.fromiter(map(attrgetter("id"), devices), np.int64, len(devices))
    owners = np.fromiter(map(attrgetter("process_index"), devices), np.int64, len(devices))
    processes: Processes = ()
    if (owners != owners[0]).any():
        processes = tuple(
            (int(owner), tuple(np.sort(ids[owners == owner]).tolist())) for owner in np.unique(owners)
        )
    return Placement(ids, next(iter(devices)).platform, processes)


def device_facts(devices: Collection[Any], ids: Any, processes: Processes) -> DeviceFacts:
    """Return the facts about the devices of an array.

    Args:
        devices: The devices.
        ids: Their ids, a numpy array of any shape.
        processes: The device ids of each process; empty if all belong to one process.
    """
    local, single = local_first(devices), len(devices) == 1
    here = local.client.process_index()
    return DeviceFacts(
        ids=tuple(np.sort(ids, axis=None).tolist()),
        name=device_name(local) if single else None,
        is_default=not single or _is_default_device(local),
        default_memory_kind=default_memory_kind(local),
        visible=_visible_devices(local.platform),
        process=here if processes or local.process_index != here else None,
    )


def _visible_devices(platform: str) -> int | None:
    """Return the number of devices of a platform; None for a platform that is only a compilation target."""
    import jax

    try:
        return jax.device_count(platform)
    except RuntimeError:
        return None


def _is_default_device(device: Any) -> bool:
    """Return whether a device is JAX's default device, or the default device of its platform."""
    import jax

    default = jax.config.jax_default_device
    if default is None or isinstance(default, str):
        try:
            default = jax.local_devices(backend=default or device.platform)[0]
        except RuntimeError:
            return False
    return bool(device == default)


def local_first(devices: Collection[Any]) -> Any:
    """Return the first device of this process, or the first of all if this process has none."""
    first = next(iter(devices))
    # The device's own backend has the process index; it may not be the default backend.
    here = first.client.process_index()
    return next((device for device in devices if device.process_index == here), first)


def default_memory_kind(device: Any) -> str | None:
    """Return a device's default memory kind; None if its backend has no memory kinds."""
    try:
        return str(device.default_memory().kind)
    except Exception:
        # Backends without memory kinds raise different errors, most of them XlaRuntimeError.
        return None
