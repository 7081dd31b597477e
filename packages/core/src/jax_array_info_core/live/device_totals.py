"""Bytes on each device of this process, from the backend's profile or added up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ..profiles.report import buffer_nbytes
from .array_bytes import Kind, local_nbytes


class DeviceBytes(NamedTuple):
    """What the devices of this process hold."""

    on_devices: tuple[tuple[int, int], ...]
    """``(device id, bytes)`` of each device, without what is in host memory."""

    in_host: tuple[tuple[int, int], ...]
    """``(device id, bytes)`` of those that have arrays in host memory."""

    source: Literal["profile", "arrays"]
    """Whether they are the backend's own, or sums over the arrays."""


def device_bytes(
    devices: Sequence[Any], profile: Mapping[str, int] | None, counts: Iterable[tuple[Kind, int]]
) -> DeviceBytes:
    """Return what each of some devices holds.

    Args:
        devices: The devices of a platform that are this process's.
        profile: What ``profile_nbytes`` has returned, called before ``jax.live_arrays``, whose list keeps
            arrays alive that others let go.
        counts: Each kind of arrays that are alive, and how many they are; a kind may come again.
    """
    defaults = {device.id: device.default_memory().kind for device in devices}
    in_host: list[tuple[Kind, int]] = []
    on_device: list[tuple[Kind, int]] = []
    for kind, count in counts:
        (in_host if _is_in_host_memory(kind, defaults) else on_device).append((kind, count))
    host, nbytes = local_nbytes(in_host), local_nbytes(on_device)
    if profile is not None:
        # The profile does not say which memory it means. What the arrays in host memory take is known as a
        # sum, which is too much where they share buffers. What is on the device is at least so much.
        least = _least_nbytes(kind for kind, _ in on_device)
        for device in devices:
            taken = profile.get(str(device), 0)
            nbytes[device.id] = min(taken, max(taken - host[device.id], least[device.id]))
            host[device.id] = min(host[device.id], taken - nbytes[device.id])
    return DeviceBytes(
        tuple((device.id, nbytes[device.id]) for device in devices),
        tuple((device.id, host[device.id]) for device in devices if host[device.id]),
        "arrays" if profile is None else "profile",
    )


def _least_nbytes(kinds: Iterable[Kind]) -> Counter[int]:
    """Return what arrays take at least on each device: those of different sizes share no buffer."""
    nbytes: Counter[int] = Counter()
    for device, size in {(device, kind.one.shard_nbytes) for kind in kinds for device in kind.local_devices}:
        nbytes[device] += size
    return nbytes


def _is_in_host_memory(kind: Kind, defaults: Mapping[int, str | None]) -> bool:
    """Return whether arrays of a kind are in host memory, where that is not their devices' default."""
    is_default = all(kind.one.memory_kind == defaults.get(device) for device in kind.local_devices)
    return "host" in (kind.one.memory_kind or "") and not is_default


def profile_nbytes(platform: str | None) -> dict[str, int] | None:
    """Return the bytes on each device by its name, from the backend's profile; None where it has none."""
    import jax

    try:
        return buffer_nbytes(jax.profiler.device_memory_profile(platform))
    except Exception:
        # Backends without a profile raise what they like (XlaRuntimeError, NotImplementedError); a signal
        # that comes while protobuf is imported finds half of it.
        return None
