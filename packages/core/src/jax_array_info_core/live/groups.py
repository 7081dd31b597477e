"""Live arrays that a report shows together."""

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
from .array_bytes import Kind, kind_of

_Key = tuple[Kind, str | None, Origin | None, str | None]
"""Kind, label and origin of an array, and the array whose view it is."""


class LiveArrays:
    """Live arrays, read once and counted."""

    def __init__(self, arrays: Sequence[Any], *, origins: bool) -> None:
        self._arrays = arrays
        self._columns = _columns(arrays, origins)
        # An array's tuple is passed on, not kept: 10,000 of them would cost more than counting.
        self._counts: Counter[_Key] = Counter(zip(*self._columns, strict=False))

    def kind_counts(self) -> list[tuple[Kind, int]]:
        """Return kinds, each with a number of arrays, without views, which take no memory."""
        return [(kind, count) for (kind, _, _, base), count in self._counts.items() if base is None]

    def groups(self, holders: Mapping[int, Sequence[str]] | None = None) -> tuple[LiveArrayGroup, ...]:
        """Return arrays that differ at most in their devices together, the largest first.

        Args:
            holders: The paths to each array by its ``id``; None where that was not asked.
        """
        keys_of: dict[tuple[Any, ...], list[_Key]] = {}
        for key in self._counts:
            keys_of.setdefault(_shown(*key), []).append(key)
        paths_of: dict[tuple[Any, ...], list[Sequence[str]]] = {}
        if holders is not None:
            # jax.live_arrays lists the newest first. People count from the oldest.
            for array, *key in reversed(list(zip(self._arrays, *self._columns, strict=False))):
                paths_of.setdefault(_shown(*key), []).append(holders.get(id(array), ()))
        groups = [self._group(keys, paths_of.get(shown, ())) for shown, keys in keys_of.items()]
        return tuple(sorted(groups, key=_largest_first))

    def _group(self, keys: Sequence[_Key], paths: Sequence[Sequence[str]]) -> LiveArrayGroup:
        kind, label, origin, views_of = keys[0]
        device_counts: Counter[int] = Counter()
        for key in keys:
            for device in key[0].local_devices:
                device_counts[device] += self._counts[key]
        # The first path of each array comes first: the others say less that is new.
        first = [path for found in paths for path in found[:1]]
        more = [path for found in paths for path in found[1:]]
        return dataclasses.replace(
            kind.one,
            shard_nbytes=kind.one.shard_nbytes if views_of is None else 0,
            label=label,
            count=sum(self._counts[key] for key in keys),
            device_counts=tuple(sorted(device_counts.items())),
            origin=origin,
            holders=tuple(dict.fromkeys([*first, *more])),
            unheld_count=sum(not found for found in paths),
            views_of=views_of,
        )


def _columns(arrays: Sequence[Any], origins: bool) -> tuple[Iterable[Any], ...]:
    """Return the parts of the keys of some arrays: all kinds, then all labels, and so on."""
    cached_kind = functools.cache(kind_of)
    kinds = [cached_kind(array.shape, array.dtype, array.sharding) for array in arrays]
    labels = labels_by_id()
    bases = {
        view: labels.get(id(base)) or type_text(base.dtype, base.shape)
        for view, base in bases_of_views(arrays).items()
    }
    nothing = repeat(None)
    return (
        kinds,
        [labels.get(id(array)) for array in arrays] if labels else nothing,
        list(map(array_origins(), arrays)) if origins else nothing,
        [bases.get(id(array)) for array in arrays] if bases else nothing,
    )


def _shown(kind: Kind, *others: Any) -> tuple[Any, ...]:
    """Return all that a group shows of its arrays: not the devices, but whether they are on any here."""
    return (kind.one, bool(kind.local_devices), *others)


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
