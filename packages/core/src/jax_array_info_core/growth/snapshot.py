"""Snapshots of the live arrays, by weak references."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..arrays.views import bases_of_views
from ..layouts.dtypes import type_text
from ..live.array_bytes import Kind, kind_of, local_nbytes
from ..origins.origins import array_origins
from ..reports.origin import Origin


class Site(NamedTuple):
    """An allocation site: a line of source, a dtype and shape, or both."""

    origin: Origin | None
    """The line; None where it is not known."""

    content: str | None
    """Dtype and shape, as ``float32[4,4]``; None for all that the line made."""


@dataclass(frozen=True, slots=True, eq=False)
class Allocation:
    """What arrays of one kind from one line have in common."""

    kind: Kind
    site: Site
    """The line, with dtype and shape."""

    @property
    def line(self) -> Site:
        """The line alone; dtype and shape where it is not known."""
        return Site(self.site.origin, None) if self.site.origin else self.site


def allocation_of(shape: tuple[int, ...], dtype: Any, sharding: Any, origin: Origin | None) -> Allocation:
    """Return what arrays of a shape, dtype, sharding and line have in common."""
    return Allocation(kind_of(shape, dtype, sharding), Site(origin, type_text(dtype, shape)))


@dataclass(slots=True, eq=False)
class _Seen:
    """One array: the same object in each snapshot that has it."""

    reference: weakref.ref[Any]
    allocation: Allocation


class Snapshot:
    """The arrays that are alive at one moment, without views of others, which take no memory.

    None is kept alive, and nothing runs when one dies.
    """

    def __init__(
        self,
        arrays: Sequence[Any],
        allocation_of: Callable[..., Allocation],
        before: Snapshot | None = None,
    ) -> None:
        """Take a snapshot.

        Args:
            arrays: All live arrays.
            allocation_of: The function of that name with a cache.
            before: An earlier snapshot: of its arrays only the references are read.
        """
        views = bases_of_views(arrays)
        owners = [array for array in arrays if id(array) not in views] if views else arrays
        self.view_count = len(arrays) - len(owners)
        # By id, as arrays have no hash. No other array has the id of one that is alive.
        self._seen: dict[int, _Seen] = {} if before is None else before._seen.copy()
        self.counts: Counter[Allocation] = Counter() if before is None else before.counts.copy()
        """The number of arrays of each allocation."""
        self._remove([key for key, seen in self._seen.items() if seen.reference() is None])
        new = [array for array in owners if id(array) not in self._seen]
        if len(self._seen) + len(new) > len(owners):
            # Deleted arrays are not listed, though something refers to them.
            self._remove(self._seen.keys() - set(map(id, owners)))
        origin_of = array_origins()
        for array in new:
            allocation = allocation_of(array.shape, array.dtype, array.sharding, origin_of(array))
            self._seen[id(array)] = _Seen(weakref.ref(array), allocation)
            self.counts[allocation] += 1

    def counts_without(self, other: Snapshot) -> Counter[Allocation]:
        """Return the number of arrays of each allocation that are not in another snapshot."""
        return Counter(
            seen.allocation for key, seen in self._seen.items() if seen is not other._seen.get(key)
        )

    def remove_gone(self) -> dict[int, Allocation]:
        """Remove the arrays that have died or were deleted since; return them by what was their ``id``."""
        return self._remove([key for key, seen in self._seen.items() if _is_gone(seen.reference)])

    def _remove(self, keys: Iterable[int]) -> dict[int, Allocation]:
        removed = {key: self._seen.pop(key).allocation for key in keys}
        self.counts -= Counter(removed.values())
        return removed

    def know_again(self, arrays: Iterable[Any]) -> None:
        """Refer again to arrays that are alive though the garbage collector has cleared the reference.

        It does so before it calls a ``__del__``, which may bring back an object and what that holds.

        Args:
            arrays: All live arrays, right after a collection.
        """
        for array in arrays:
            seen = self._seen.get(id(array))
            if seen is None or seen.reference() is not None:
                continue
            # Not another one that was made meanwhile, as far as that can be told.
            if seen.allocation.site.content == type_text(array.dtype, array.shape):
                seen.reference = weakref.ref(array)


def _is_gone(reference: weakref.ref[Any]) -> bool:
    array = reference()
    return array is None or array.is_deleted()


def by_site(
    counts: Mapping[Allocation, int], apart: Container[Site] = ()
) -> dict[Site, dict[Allocation, int]]:
    """Return the allocations of each line, each with its number.

    Args:
        counts: The number of arrays of each allocation.
        apart: The dtypes and shapes to keep apart from the other arrays of their lines.
    """
    sites: dict[Site, dict[Allocation, int]] = {}
    for allocation, count in counts.items():
        site = allocation.site if allocation.site in apart else allocation.line
        sites.setdefault(site, {})[allocation] = count
    return sites


def largest_content(counts: Mapping[Allocation, int]) -> str:
    """Return dtype and shape of the arrays that take the most bytes on a device of this process."""
    sizes = [
        (
            allocation.kind.one.shard_nbytes * count if allocation.kind.local_devices else 0,
            allocation.site.content,
        )
        for allocation, count in counts.items()
    ]
    return str(max(sizes)[1])


def kind_counts(counts: Mapping[Allocation, int]) -> list[tuple[Kind, int]]:
    """Return kinds, each with a number of arrays."""
    return [(allocation.kind, count) for allocation, count in counts.items()]


def held_nbytes(counts: Mapping[Allocation, int]) -> tuple[tuple[int, int], ...]:
    """Return ``(device id, bytes)`` of what each device of this process holds of some arrays."""
    return tuple(sorted(local_nbytes(kind_counts(counts)).items()))
