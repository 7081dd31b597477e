"""How what is alive is read: by one thread at a time, and what each device holds of it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from .population import Kind, host_nbytes, local_nbytes
from .profile import buffer_nbytes

_reading = threading.RLock()
_LONGEST_READING = 5.0


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Let threads read what is alive one after the other.

    Each reader keeps the arrays that it reads alive for as long as that takes: readers that overlap
    without end would keep all of them for ever. Who waits in vain (for a thread that a fork has not
    taken along) goes on alone.
    """
    acquired = _reading.acquire(timeout=_LONGEST_READING)
    try:
        yield
    finally:
        if acquired:
            _reading.release()


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
        profile: What ``profile_nbytes`` has returned, before the arrays were read.
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
    """Return the bytes on each device by its name, from the backend's profile; None where it has none.

    To be called before ``jax.live_arrays``, whose list keeps the arrays until it is read.
    """
    import jax

    try:
        profile = jax.profiler.device_memory_profile(platform)
    except Exception:
        # Backends without a profile raise what they like (XlaRuntimeError, NotImplementedError).
        return None
    return buffer_nbytes(profile)
