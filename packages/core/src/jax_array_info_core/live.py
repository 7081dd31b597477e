"""All live arrays → LiveArrayReport."""

from __future__ import annotations

from typing import Literal

from . import compat
from .memory_model import LiveArrayReport
from .population import Population
from .reading import device_bytes, one_at_a_time, profile_nbytes


def live_array_report(
    platform: str | None = None,
    *,
    origins: bool = False,
) -> LiveArrayReport:
    """Return what all arrays that are alive in this process take on each of its devices.

    Nothing is waited for, no array is added or kept alive. Arrays are those of ``jax.live_arrays``:
    shards that a program has taken from an array (``array.addressable_shards``) are listed beside
    it, but their memory counts once in ``device_nbytes``, which comes from the backend's own memory
    profile. Takes about two microseconds an array, with origins some more.

    Args:
        platform: The platform to look at, such as ``"cpu"``; the default one when None.
        origins: Say of each group which line of the user's code made it. Frames of jax, flax, optax,
            equinox, the standard library and ``config.hidden_modules`` are passed over.
    """
    import jax

    devices = jax.local_devices(backend=platform)
    with one_at_a_time():
        profile = profile_nbytes(platform)
        population = Population(jax.live_arrays(platform), origins=origins)
        held = device_bytes(devices, profile, population.kind_counts())
        count = len(population.arrays)
        groups = population.groups()
        del population
    return LiveArrayReport(
        platform=devices[0].platform,
        visible_devices=jax.device_count(platform),
        groups=groups,
        array_count=count,
        device_nbytes=held.on_devices,
        nbytes_source=held.source,
        host_nbytes=held.in_host,
        origins=known_origins() if origins else "not asked",
    )


def known_origins() -> Literal["known", "not told by this jax"]:
    """Return whether it can be known who made an array."""
    return "known" if compat.tells_tracebacks() else "not told by this jax"
