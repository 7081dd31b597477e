"""Groups of live arrays with equal properties."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

from ..arrays.labels import labels_by_id
from ..arrays.views import bases_of_views
from ..layouts.dtypes import type_text
from ..origins.origins import array_origins
from ..reports.live import LiveArrayGroup
from ..reports.origin import Origin
from .array_bytes import ShardedType, sharded_type

_Key = tuple[ShardedType, str | None, Origin | None, str | None]
"""Sharded type, label, allocation site and, for a view, the array whose buffers it shares."""


class LiveArrays:
    """Live arrays, read and counted once."""

    def __init__(self, arrays: Sequence[Any], *, origins: bool) -> None:
        self._arrays = arrays
        self._columns = _columns(arrays, origins)
        # The keys are counted as they come: storing 10,000 of them would take longer than counting.
        self._counts: Counter[_Key] = Counter(zip(*self._columns, strict=False))

    def type_counts(self) -> list[tuple[ShardedType, int]]:
        """Return sharded types, each with a number of arrays. Views take no memory and are left out."""
        return [(key[0], count) for key, count in self._counts.items() if key[3] is None]

    def groups(self, holders: Mapping[int, Sequence[str]] | None = None) -> tuple[LiveArrayGroup, ...]:
        """Return groups of arrays that differ at most in their devices, the largest first.

        Args:
            holders: The reference paths to each array by its ``id``; None without a search for them.
        """
        keys_of: dict[tuple[Any, ...], list[_Key]] = {}
        for key in self._counts:
            keys_of.setdefault(_shown(*key), []).append(key)
        paths_of: dict[tuple[Any, ...], list[Sequence[str]]] = {}
        if holders is not None:
            # jax.live_arrays() lists the newest first. Paths are listed from the oldest array.
            for array, *key in reversed(list(zip(self._arrays, *self._columns, strict=False))):
                paths_of.setdefault(_shown(*key), []).append(holders.get(id(array), ()))
        groups = [self._group(keys, paths_of.get(shown, ())) for shown, keys in keys_of.items()]
        return tuple(sorted(groups, key=_largest_first))

    def _group(self, keys: Sequence[_Key], paths: Sequence[Sequence[str]]) -> LiveArrayGroup:
        array_type, label, origin, views_of = keys[0]
        device_counts: Counter[int] = Counter()
        for key in keys:
            for device in key[0].local_devices:
                device_counts[device] += self._counts[key]
        # The first path of each array comes before any second path, which adds less.
        first = [path for found in paths for path in found[:1]]
        more = [path for found in paths for path in found[1:]]
        return dataclasses.replace(
            array_type.template,
            shard_nbytes=array_type.template.shard_nbytes if views_of is None else 0,
            label=label,
            count=sum(self._counts[key] for key in keys),
            device_counts=tuple(sorted(device_counts.items())),
            origin=origin,
            holders=tuple(dict.fromkeys([*first, *more])),
            unheld_count=sum(not found for found in paths),
            views_of=views_of,
        )


def _columns(arrays: Sequence[Any], origins: bool) -> tuple[Iterable[Any], ...]:
    """Return the columns of the keys of some arrays: sharded types, labels, allocation sites, views."""
    cached_type = functools.cache(sharded_type)
    array_types = [cached_type(array.shape, array.dtype, array.sharding) for array in arrays]
    labels = labels_by_id()
    bases = {
        view: labels.get(id(base)) or type_text(base.dtype, base.shape)
        for view, base in bases_of_views(arrays).items()
    }
    nothing = repeat(None)
    return (
        array_types,
        [labels.get(id(array)) for array in arrays] if labels else nothing,
        list(map(array_origins(), arrays)) if origins else nothing,
        [bases.get(id(array)) for array in arrays] if bases else nothing,
    )


def _shown(array_type: ShardedType, *others: Any) -> tuple[Any, ...]:
    """Return the key of the group of an array: all but its devices, and whether any is in this process."""
    return (array_type.template, bool(array_type.local_devices), *others)


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
