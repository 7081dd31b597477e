"""Devices: their names, processes, memory kinds, and which of them is the default."""

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
    """Return a device's own name; the ``TFRT_CPU_2`` of jax ≤0.9 is written ``cpu:2`` as on newer ones."""
    return plain_text(device).replace("TFRT_CPU_", "cpu:")


def placement(devices: Collection[Any]) -> Placement:
    """Return ids, platform and processes of some devices.

    Raises:
        LayoutError: there are none.
    """
    if not devices:
        raise LayoutError("a sharding without devices holds nothing: its mesh is empty")
    ids = np.fromiter(map(attrgetter("id"), devices), np.int64, len(devices))
    owners = np.fromiter(map(attrgetter("process_index"), devices), np.int64, len(devices))
    processes: Processes = ()
    if (owners != owners[0]).any():
        processes = tuple(
            (int(owner), tuple(np.sort(ids[owners == owner]).tolist())) for owner in np.unique(owners)
        )
    return Placement(ids, next(iter(devices)).platform, processes)


def device_facts(devices: Collection[Any], ids: Any, processes: Processes) -> DeviceFacts:
    """Return what is told of the devices that hold an array.

    Args:
        devices: The devices.
        ids: Their ids, a numpy array of any shape.
        processes: Which are whose, where there are several processes.
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
    """Return how many devices of a platform the process sees; None for one that is only compiled for."""
    import jax

    try:
        return jax.device_count(platform)
    except RuntimeError:
        return None


def _is_default_device(device: Any) -> bool:
    """Return whether JAX puts on a device what is not told where to go on its platform."""
    import jax

    chosen = jax.config.jax_default_device
    if chosen is None or isinstance(chosen, str):
        try:
            chosen = jax.local_devices(backend=chosen or device.platform)[0]
        except RuntimeError:
            return False
    return bool(device == chosen)


def local_first(devices: Collection[Any]) -> Any:
    """Return one of some devices, of this process where it has any."""
    first = next(iter(devices))
    # The backend of a device tells the process; it need not be the default backend.
    here = first.client.process_index()
    return next((device for device in devices if device.process_index == here), first)


def default_memory_kind(device: Any) -> str | None:
    """Return the memory that a device uses when none is asked for, None where its backend has no kinds."""
    try:
        return str(device.default_memory().kind)
    except Exception:
        # Whatever a backend without memory kinds raises (XlaRuntimeError, a RuntimeError, on most).
        return None
