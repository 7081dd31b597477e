"""What each device of this process holds: by the backend's own profile, or added up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ..profiles.report import buffer_nbytes
from .kinds import Kind, local_nbytes


class DeviceBytes(NamedTuple):
    """What the devices of this process hold."""

    on_devices: tuple[tuple[int, int], ...]
    """``(device id, bytes)`` of each device, without what is in host memory."""

    in_host: tuple[tuple[int, int], ...]
    """``(device id, bytes)`` of those that have arrays in host memory."""

    source: Literal["profile", "arrays"]
    """Whether they are the backend's own, or sums over the arrays."""


def device_bytes(
    devices: Sequence[Any], profile: Mapping[str, int] | None, counts: Mapping[Kind, int]
) -> DeviceBytes:
    """Return what each of some devices holds.

    Args:
        devices: The devices of a platform that are this process's.
        profile: What ``profile_nbytes`` has returned, called before ``jax.live_arrays``, whose list keeps
            arrays alive that others let go.
        counts: How many arrays of each kind are alive.
    """
    defaults = {device.id: device.default_memory().kind for device in devices}
    in_host = {kind: count for kind, count in counts.items() if _is_in_host_memory(kind, defaults)}
    on_device = {kind: count for kind, count in counts.items() if kind not in in_host}
    host = local_nbytes(in_host)
    if profile is None:
        nbytes: Mapping[int, int] = local_nbytes(on_device)
    else:
        taken = {device.id: profile.get(str(device), 0) for device in devices}
        nbytes = _without_host(taken, host, _least_nbytes(on_device))
        host = Counter({device: taken[device] - nbytes[device] for device in host})
    return DeviceBytes(
        tuple((device.id, nbytes.get(device.id, 0)) for device in devices),
        tuple((device.id, host[device.id]) for device in devices if host[device.id]),
        "arrays" if profile is None else "profile",
    )


def _without_host(
    taken: Mapping[int, int], host: Mapping[int, int], least: Mapping[int, int]
) -> dict[int, int]:
    """Return what is taken on each device, without host memory.

    The profile does not say which memory it means. What the arrays in host memory take is known as a
    sum, which is too much where they share buffers; what is on the device is at least so much.
    """
    return {
        device: min(nbytes, max(nbytes - host.get(device, 0), least.get(device, 0)))
        for device, nbytes in taken.items()
    }


def _least_nbytes(counts: Iterable[Kind]) -> Counter[int]:
    """Return what arrays take at least on each device: those of different sizes share no buffer."""
    sizes = {(device, kind.shard_nbytes) for kind in counts for device in kind.local_devices}
    nbytes: Counter[int] = Counter()
    for device, size in sizes:
        nbytes[device] += size
    return nbytes


def _is_in_host_memory(kind: Kind, defaults: Mapping[int, str | None]) -> bool:
    """Return whether arrays of a kind are in host memory, where that is not their devices' default."""
    is_default = all(kind.memory_kind == defaults.get(device) for device in kind.local_devices)
    return "host" in (kind.memory_kind or "") and not is_default


def profile_nbytes(platform: str | None) -> dict[str, int] | None:
    """Return the bytes on each device by its name, from the backend's profile; None where it has none."""
    import jax

    try:
        return buffer_nbytes(jax.profiler.device_memory_profile(platform))
    except Exception:
        # Backends without a profile raise what they like (XlaRuntimeError, NotImplementedError); a signal
        # that comes while protobuf is imported finds half of it.
        return None
