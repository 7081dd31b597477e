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

    The report covers the arrays of ``jax.live_arrays()``. Views, such as the shards that
    ``array.addressable_shards`` creates, form separate groups with ``views_of`` and 0 bytes. Other shared
    buffers are counted once in ``device_nbytes``, which comes from the backend's memory profile.

    The call never waits for a computation, adds no array and keeps none alive. It takes a few µs per array.
    With ``holders``, it searches all objects of the program, which takes a second or more per million
    objects.

    >>> import jax.numpy as jnp
    >>> weights = jnp.zeros((7, 11))
    >>> [group.count for group in live_array_report().groups if group.shape == (7, 11)]
    [1]

    Args:
        platform: The platform, such as ``"cpu"``. Defaults to JAX's default backend.
        origins: Whether to add the allocation site of each group: the innermost line outside JAX, the
            standard library, ``config.hidden_modules`` and installed packages other than
            ``config.user_packages``.
        holders: Whether to add the reference paths to the arrays of each group. They begin at variables of
            modules or running functions, closures, generators or classes.
        max_seconds: Time limit of the search for referrers, in seconds. None removes the limit.
        on_progress: Function that is called repeatedly during the search, with the seconds since its start.

    Raises:
        ValueError: If ``max_seconds`` is negative or not a number.
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
