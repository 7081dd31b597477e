"""The report on all live arrays."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from types import NoneType
from typing import Any

from ...base.errors import UnsupportedValueError, require
from ...base.grouping import by_key, sums_by_key
from ...base.reading_lock import one_at_a_time
from ...facts.reports.live import LiveArrayGroup, LiveArrayReport
from ...facts.reports.origin import MOST_CALLERS
from ...geometry.layouts.dtypes import type_text
from ..holders.search import Holders, OnProgress, checked_seconds, find_holders
from ..labels import bases_of_views, labels_by_id
from .census import Census, Kind, device_bytes, known_origins, profile_nbytes

_Key = tuple[Kind, str | None, str | None]
"""Kind, label and, for a view, the array whose buffers it shares."""
_GroupKey = tuple[Any, ...]
"""The values that the arrays of a group share."""


class LiveArrays:
    """Live arrays, read and counted once."""

    def __init__(self, arrays: Sequence[Any], *, origins: bool) -> None:
        self._arrays = arrays
        labels = labels_by_id()
        bases = {
            view: labels.get(id(base)) or type_text(base.dtype, base.shape)
            for view, base in bases_of_views(arrays).items()
        }
        self._columns: tuple[Iterable[Any], ...] = (
            Census(callers=MOST_CALLERS if origins else None).kinds(arrays),
            [labels.get(id(array)) for array in arrays] if labels else repeat(None),
            [bases.get(id(array)) for array in arrays] if bases else repeat(None),
        )
        # The keys are counted as they come: storing 10,000 of them would take longer than counting.
        self._counts: Counter[_Key] = Counter(zip(*self._columns, strict=False))

    def counts(self) -> Counter[Kind]:
        """Return the number of arrays of each kind. Views take no memory and are left out."""
        return sums_by_key((kind, count) for (kind, _, base), count in self._counts.items() if base is None)

    def groups(self, holders: Holders | None = None) -> tuple[LiveArrayGroup, ...]:
        """Return groups of arrays that differ at most in their devices, the largest first.

        Args:
            holders: What refers to each array; None without a search for it.
        """
        keys_of = by_key((_shown(*key), key) for key in self._counts)
        held = {} if holders is None else self._held(holders)
        groups = [self._group(keys, held.get(shown, {})) for shown, keys in keys_of.items()]
        return tuple(sorted(groups, key=_largest_first))

    def _held(self, holders: Holders) -> dict[_GroupKey, dict[str, Any]]:
        """Return the fields of each group that say what refers to its arrays."""
        rows = zip(self._arrays, *self._columns, strict=False)
        group_of = {id(array): _shown(*key) for array, *key in rows}
        # The first path to one of the arrays of a group comes last, and replaces the others.
        paths = {group_of[number]: path for number, path in reversed(holders.paths.items())}
        garbage = Counter(group_of[number] for number in holders.garbage)
        known = holders.paths.keys() | holders.garbage
        unheld = Counter(group for number, group in group_of.items() if number not in known)
        return {
            group: {
                "holder": paths.get(group),
                "unheld_count": unheld[group],
                "garbage_count": garbage[group],
            }
            for group in group_of.values()
        }

    def _group(self, keys: Sequence[_Key], held: Mapping[str, Any]) -> LiveArrayGroup:
        kind, label, views_of = keys[0]
        device_counts = sums_by_key(
            (device, self._counts[key]) for key in keys for device in key[0].local_devices
        )
        return dataclasses.replace(
            kind.template,
            shard_nbytes=kind.template.shard_nbytes if views_of is None else 0,
            label=label,
            count=sum(self._counts[key] for key in keys),
            device_counts=tuple(sorted(device_counts.items())),
            views_of=views_of,
            **held,
        )


def _shown(kind: Kind, *others: Any) -> _GroupKey:
    """Return the key of the group of an array: all but its devices, and whether any is in this process."""
    return (kind.template, bool(kind.local_devices), *others)


def _largest_first(group: LiveArrayGroup) -> tuple[Any, ...]:
    origin = group.origin
    where = (origin.file, origin.line) if origin else ("", 0)
    return (
        -group.local_nbytes,
        group.shape,
        group.dtype,
        group.label or "",
        -group.count,
        group.sharding,
        group.memory_kind or "",
        where,
        group.views_of or "",
    )


def live_array_report(
    platform: str | None = None,
    *,
    device: Any = None,
    origins: bool = False,
    referrers: bool = False,
    max_seconds: float | None = 5.0,
    on_progress: OnProgress | None = None,
) -> LiveArrayReport:
    """Return the live arrays of this process and their bytes per device.

    The report covers the arrays of ``jax.live_arrays()``. Views, such as the shards that
    ``array.addressable_shards`` creates, form separate groups with ``views_of`` and 0 bytes. Other shared
    buffers are counted once in ``device_nbytes``, which comes from the backend's memory profile.

    The call never waits for a computation, adds no array and keeps none alive. It takes a few µs per array.
    With ``referrers``, it searches all objects of the program, which takes a second or more per million
    objects.

    >>> import jax.numpy as jnp
    >>> weights = jnp.zeros((7, 11))
    >>> [group.count for group in live_array_report().groups if group.shape == (7, 11)]
    [1]

    Args:
        platform: The platform, such as ``"cpu"``. Defaults to that of ``device``, or JAX's default backend.
        device: A device of ``jax.local_devices()``. The report then covers the arrays that have a shard on
            it, and their bytes there. Defaults to all devices of this process.
        origins: Whether to add the allocation site of each group: the innermost line outside JAX, the
            standard library, ``config.hidden_modules`` and installed packages other than
            ``config.user_packages``.
        referrers: Whether to add a reference path to an array of each group, the shortest that begins at a
            name of the user. Paths begin at variables of modules or running functions, closures, generators
            or classes.
        max_seconds: Time limit of the search for referrers, in seconds. None removes the limit.
        on_progress: Function that is called repeatedly during the search, with the seconds since its start.

    Raises:
        UnsupportedValueError: (a ValueError) If ``device`` is not a device of ``platform`` in this process.
        ValueError: If ``max_seconds`` is negative or not a number.
    """
    import jax

    checked_seconds(max_seconds)
    require(platform, (str, NoneType), 'the name of a platform, such as "cpu"')
    devices = jax.local_devices(backend=platform or getattr(device, "platform", None))
    platform = devices[0].platform
    if device is not None and device not in devices:
        raise UnsupportedValueError(
            f"device={device!r} is not a {platform} device of this process: "
            "pass one of jax.local_devices(), such as jax.local_devices()[0]"
        )
    with one_at_a_time():
        # First, since the list of arrays keeps them alive.
        profile = profile_nbytes(platform)
        arrays = jax.live_arrays(platform)
        if device is not None:
            arrays = [array for array in arrays if device in array.sharding.device_set]
        live = LiveArrays(arrays, origins=origins)
        held = device_bytes(devices, profile, live.counts())
        holders = (
            find_holders(arrays, max_seconds=max_seconds, on_progress=on_progress) if referrers else None
        )
        groups = live.groups(holders)
        if device is not None:
            groups = tuple(
                dataclasses.replace(group, device_counts=_of_device(device, group.device_counts))
                for group in groups
            )
        del live, arrays
    return LiveArrayReport(
        platform=platform,
        visible_devices=jax.device_count(platform),
        groups=groups,
        array_count=sum(group.count for group in groups),
        device_nbytes=_of_device(device, held.on_devices),
        nbytes_source=held.source,
        host_nbytes=_of_device(device, held.in_host),
        origins=known_origins() if origins else "not asked",
        holders="not asked" if holders is None else "complete" if holders.is_complete else "incomplete",
        device=None if device is None else device.id,
    )


def _of_device(device: Any, numbers: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Return the pairs of device id and number that are those of a device; all of them for None."""
    return tuple(pair for pair in numbers if device is None or pair[0] == device.id)
