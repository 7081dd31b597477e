"""What each device of this process holds: by the backend's own profile, or added up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from .population import Kind, host_nbytes, local_nbytes
from .profile import buffer_nbytes


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
    host = host_nbytes(counts, {device.id: device.default_memory().kind for device in devices})
    if profile is None:
        nbytes: Mapping[int, int] = local_nbytes(counts)
    else:
        nbytes = {device.id: profile.get(str(device), 0) for device in devices}
    return DeviceBytes(
        tuple((device.id, max(nbytes[device.id] - host[device.id], 0)) for device in devices),
        tuple((device.id, host[device.id]) for device in devices if host[device.id]),
        "arrays" if profile is None else "profile",
    )


def profile_nbytes(platform: str | None) -> dict[str, int] | None:
    """Return the bytes on each device by its name, from the backend's profile; None where it has none."""
    import jax

    try:
        profile = jax.profiler.device_memory_profile(platform)
    except Exception:
        # Backends without a profile raise what they like (XlaRuntimeError, NotImplementedError).
        return None
    return buffer_nbytes(profile)
