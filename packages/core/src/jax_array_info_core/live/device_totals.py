"""Bytes on each device of this process, from the backend's memory profile or summed over the arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ..profiles.report import buffer_nbytes
from .array_bytes import ShardedType, local_nbytes


class DeviceBytes(NamedTuple):
    """The bytes of the live arrays on the devices of this process."""

    on_devices: tuple[tuple[int, int], ...]
    """``(device id, bytes)`` of each device, without host memory."""

    in_host: tuple[tuple[int, int], ...]
    """``(device id, bytes)`` of the devices that have arrays in host memory."""

    source: Literal["profile", "arrays"]
    """``profile``: from the backend's memory profile; ``arrays``: summed over the arrays."""


def device_bytes(
    devices: Sequence[Any], profile: Mapping[str, int] | None, counts: Iterable[tuple[ShardedType, int]]
) -> DeviceBytes:
    """Return the bytes of the live arrays on each device.

    Args:
        devices: The devices of one platform in this process.
        profile: The result of ``profile_nbytes``. It must be taken before ``jax.live_arrays()``, whose list
            keeps arrays alive that other code drops meanwhile.
        counts: Sharded types, each with a number of live arrays. A type may occur several times.
    """
    defaults = {device.id: device.default_memory().kind for device in devices}
    in_host: list[tuple[ShardedType, int]] = []
    on_device: list[tuple[ShardedType, int]] = []
    for array_type, count in counts:
        (in_host if _is_in_host_memory(array_type, defaults) else on_device).append((array_type, count))
    host, nbytes = local_nbytes(in_host), local_nbytes(on_device)
    if profile is not None:
        # The profile does not separate memory kinds. The sum over the arrays in host memory is too large
        # where they share buffers, so the arrays on the device give a lower bound.
        least = _least_nbytes(array_type for array_type, _ in on_device)
        for device in devices:
            profiled = profile.get(str(device), 0)
            nbytes[device.id] = min(profiled, max(profiled - host[device.id], least[device.id]))
            host[device.id] = min(host[device.id], profiled - nbytes[device.id])
    return DeviceBytes(
        tuple((device.id, nbytes[device.id]) for device in devices),
        tuple((device.id, host[device.id]) for device in devices if host[device.id]),
        "arrays" if profile is None else "profile",
    )


def _least_nbytes(array_types: Iterable[ShardedType]) -> Counter[int]:
    """Return a lower bound of the bytes on each device: shards of different sizes share no buffer."""
    sizes = {
        (device, array_type.template.shard_nbytes)
        for array_type in array_types
        for device in array_type.local_devices
    }
    nbytes: Counter[int] = Counter()
    for device, size in sizes:
        nbytes[device] += size
    return nbytes


def _is_in_host_memory(array_type: ShardedType, defaults: Mapping[int, str | None]) -> bool:
    """Return whether arrays are in host memory on devices that have another default memory kind."""
    memory_kind = array_type.template.memory_kind
    is_default = all(memory_kind == defaults.get(device) for device in array_type.local_devices)
    return "host" in (memory_kind or "") and not is_default


def profile_nbytes(platform: str | None) -> dict[str, int] | None:
    """Return the bytes on each device by its name, or None where the backend has no memory profile."""
    import jax

    try:
        return buffer_nbytes(jax.profiler.device_memory_profile(platform))
    except Exception:
        # Backends without a memory profile raise different errors (XlaRuntimeError, NotImplementedError).
        # In a signal handler, protobuf may be only partly imported.
        return None
