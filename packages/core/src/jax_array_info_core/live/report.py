"""All live arrays → LiveArrayReport."""

from __future__ import annotations

from typing import Literal

from .. import compat
from ..holders.search import OnProgress, checked_seconds, find_holders
from ..reading_lock import one_at_a_time
from ..reports.live import LiveArrayReport
from .device_totals import device_bytes, profile_nbytes
from .groups import LiveArrays


def live_array_report(
    platform: str | None = None,
    *,
    origins: bool = False,
    holders: bool = False,
    max_seconds: float | None = 5.0,
    on_progress: OnProgress | None = None,
) -> LiveArrayReport:
    """Return what all arrays that are alive in this process take on each of its devices.

    Nothing is waited for, no array is added or kept alive. Arrays are those of ``jax.live_arrays``.
    Shards that a program has taken from an array (``array.addressable_shards``) are among them: they are
    groups of their own, with ``views_of`` and 0 bytes. Other arrays that share a buffer count once in
    ``device_nbytes``, which comes from the backend's own memory profile. Takes about two microseconds an
    array; with origins some more; with holders a search through all objects of the program, a second or
    more for a million of them.

    Args:
        platform: The platform to look at, such as ``"cpu"``; the default one when None.
        origins: Say of each group which line of the user's code made it. Frames of jax, flax, optax,
            equinox, the standard library and ``config.hidden_modules`` are passed over.
        holders: Say of each group which names lead to its arrays: variables of modules and of functions
            that run, attributes, closures, generators, classes.
        max_seconds: After how many seconds to end the search for holders; None for no bound.
        on_progress: Called again and again while that search runs, with the seconds that it has taken so far.

    Raises:
        SearchError: (a ValueError) ``max_seconds`` is no number of seconds.
    """
    import jax

    checked_seconds(max_seconds)
    devices = jax.local_devices(backend=platform)
    with one_at_a_time():
        # First, as the list of arrays keeps them until it is read.
        profile = profile_nbytes(platform)
        arrays = jax.live_arrays(platform)
        live = LiveArrays(arrays, origins=origins)
        held = device_bytes(devices, profile, live.kind_counts())
        found = find_holders(arrays, max_seconds=max_seconds, on_progress=on_progress) if holders else None
        groups = live.groups(found and found.paths)
        del live, arrays
    return LiveArrayReport(
        platform=devices[0].platform,
        visible_devices=jax.device_count(platform),
        groups=groups,
        array_count=sum(group.count for group in groups),
        device_nbytes=held.on_devices,
        nbytes_source=held.source,
        host_nbytes=held.in_host,
        origins=known_origins() if origins else "not asked",
        holders="not asked" if found is None else "complete" if found.is_complete else "incomplete",
    )


def known_origins() -> Literal["known", "not told by this jax"]:
    """Return whether it can be known who made an array."""
    return "known" if compat.has_tracebacks() else "not told by this jax"
