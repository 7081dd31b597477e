"""The report on all live arrays."""

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
    """Return the live arrays of this process and their bytes per device.

    Never waits for a computation, adds no array and keeps none alive. The arrays are the ones that
    ``jax.live_arrays()`` lists. Views, such as the shards that ``array.addressable_shards`` creates, form
    groups of their own, with ``views_of`` and 0 bytes. Other shared buffers are counted once in
    ``device_nbytes``, which comes from the backend's memory profile. Takes about 2 µs per array, and more
    with ``origins``. ``holders`` searches all objects of the program: a second or more per million objects.

    >>> import jax.numpy as jnp
    >>> weights = jnp.zeros((7, 11))
    >>> [group.count for group in live_array_report().groups if group.shape == (7, 11)]
    [1]

    Args:
        platform: The platform, such as ``"cpu"``; None for the default one.
        origins: Whether to add the allocation site of each group: the innermost line of user code. Frames of
            jax, flax, optax, equinox, the standard library and ``config.hidden_modules`` are skipped.
        holders: Whether to add the reference paths to the arrays of each group, which begin at variables of
            modules and running functions, closures, generators or classes.
        max_seconds: The time limit for the search for referrers, in seconds; None for no limit.
        on_progress: Called repeatedly while that search runs, with the seconds since its start.

    Raises:
        SearchError: (a ValueError) ``max_seconds`` is negative or not a number.
    """
    import jax

    checked_seconds(max_seconds)
    devices = jax.local_devices(backend=platform)
    with one_at_a_time():
        # First, since the list of arrays keeps them alive.
        profile = profile_nbytes(platform)
        arrays = jax.live_arrays(platform)
        live = LiveArrays(arrays, origins=origins)
        held = device_bytes(devices, profile, live.type_counts())
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
    """Return whether JAX records the allocation sites of arrays."""
    return "known" if compat.has_tracebacks() else "not told by this jax"
