"""Snapshots of the live arrays, through weak references."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypedDict

from ..arrays.labels import bases_of_views
from ..config import shown_callers
from ..grouping import sums_by_key
from ..layouts.dtypes import type_text
from ..live.report import ShardedType, local_nbytes, sharded_type
from ..origins.origins import array_origins
from ..reports.origin import Origin, SourceLine


class Site(NamedTuple):
    """An allocation site: a source line, a dtype and shape, or both."""

    origin: Origin | None
    """The source line; None where it is not known."""

    content: str | None
    """Dtype and shape, such as ``float32[4,4]``; None for all arrays of the line."""


@dataclass(frozen=True, slots=True, eq=False)
class Allocation:
    """The sharded type and the allocation site that several arrays share."""

    array_type: ShardedType
    site: Site
    """The source line, with dtype and shape."""

    callers: tuple[SourceLine, ...]
    """The lines that called it, nearest first. The steps of a program may be calls on several lines, so that
    they do not belong to the site."""

    @property
    def line(self) -> Site:
        """The source line alone, or dtype and shape where the line is not known."""
        return Site(self.site.origin, None) if self.site.origin else self.site


def allocation_of(shape: tuple[int, ...], dtype: Any, sharding: Any, origin: Origin | None) -> Allocation:
    """Return the allocation of an array by its shape, dtype, sharding and source line."""
    site = Site(origin and replace(origin, callers=()), type_text(dtype, shape))
    return Allocation(sharded_type(shape, dtype, sharding), site, origin.callers if origin else ())


@dataclass(slots=True, eq=False)
class _Seen:
    """An array in a snapshot. Successive snapshots share this object."""

    reference: weakref.ref[Any]
    allocation: Allocation


class Snapshot:
    """The arrays that are alive at one moment. Views take no memory and are left out.

    It keeps no array alive, and adds no callback to an array's end.
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
            allocation_of: The function ``allocation_of`` with a cache.
            before: An earlier snapshot. Arrays that it contains are not read again.
        """
        views = bases_of_views(arrays)
        owners = [array for array in arrays if id(array) not in views] if views else arrays
        self.view_count = len(arrays) - len(owners)
        # By id, since arrays have no hash. The id of a live array is unique.
        self._seen: dict[int, _Seen] = {} if before is None else before._seen.copy()
        self.counts: Counter[Allocation] = Counter() if before is None else before.counts.copy()
        """The number of arrays of each allocation."""
        self._remove([key for key, seen in self._seen.items() if seen.reference() is None])
        new = [array for array in owners if id(array) not in self._seen]
        if len(self._seen) + len(new) > len(owners):
            # jax.live_arrays() does not list deleted arrays, even while something refers to them.
            self._remove(self._seen.keys() - set(map(id, owners)))
        origin_of = array_origins(callers=shown_callers())
        for array in new:
            allocation = allocation_of(array.shape, array.dtype, array.sharding, origin_of(array))
            self._seen[id(array)] = _Seen(weakref.ref(array), allocation)
            self.counts[allocation] += 1

    def counts_without(self, other: Snapshot) -> Counter[Allocation]:
        """Return the number of arrays of each allocation that another snapshot does not contain."""
        return Counter(
            seen.allocation for key, seen in self._seen.items() if seen is not other._seen.get(key)
        )

    def ids_without(self, other: Snapshot, sites: Container[Site]) -> dict[Site, list[int]]:
        """Return the ids of the arrays of some sites that another snapshot does not contain, oldest first."""
        found: dict[Site, list[int]] = {}
        for key, seen in self._seen.items():
            site = site_of(seen.allocation, sites)
            if site in sites and seen is not other._seen.get(key):
                found.setdefault(site, []).append(key)
        return found

    def alive(self, ids: Iterable[int]) -> list[Any]:
        """Return those of some arrays of the snapshot that are alive."""
        references = [self._seen[key].reference for key in ids]
        return [array for reference in references if (array := reference()) is not None]

    def remove_gone(self) -> dict[int, Allocation]:
        """Remove the arrays that were freed or deleted meanwhile, and return them by their former ``id``."""
        return self._remove([key for key, seen in self._seen.items() if _is_gone(seen.reference)])

    def _remove(self, keys: Iterable[int]) -> dict[int, Allocation]:
        removed = {key: self._seen.pop(key).allocation for key in keys}
        self.counts -= Counter(removed.values())
        return removed

    def restore_references(self, arrays: Iterable[Any]) -> None:
        """Restore the weak references to arrays that survived a garbage collection.

        The collector clears weak references before it calls ``__del__``, which may resurrect an object and
        everything that it refers to.

        Args:
            arrays: All live arrays, right after a collection.
        """
        for array in arrays:
            seen = self._seen.get(id(array))
            if seen is None or seen.reference() is not None:
                continue
            # A new array may have the same id. Different dtype and shape rule that out.
            if seen.allocation.site.content == type_text(array.dtype, array.shape):
                seen.reference = weakref.ref(array)


def _is_gone(reference: weakref.ref[Any]) -> bool:
    array = reference()
    return array is None or array.is_deleted()


def site_of(allocation: Allocation, separate: Container[Site]) -> Site:
    """Return the line of an allocation; its site with dtype and shape if that is one of the separate ones."""
    return allocation.site if allocation.site in separate else allocation.line


def by_site(
    counts: Mapping[Allocation, int], separate: Container[Site] = ()
) -> dict[Site, dict[Allocation, int]]:
    """Return the allocations of each line, each with its number of arrays.

    Args:
        counts: The number of arrays of each allocation.
        separate: The sites with dtype and shape to list separately from the other arrays of their lines.
    """
    sites: dict[Site, dict[Allocation, int]] = {}
    for allocation, count in counts.items():
        sites.setdefault(site_of(allocation, separate), {})[allocation] = count
    return sites


class Called(TypedDict):
    """An allocation site with its callers."""

    origin: Origin | None
    caller_count: int


def called(site: Site, counts: Mapping[Allocation, int]) -> Called:
    """Return a line with the callers that made most of some of its arrays, and the number of such callers."""
    callers = sums_by_key((allocation.callers, count) for allocation, count in counts.items())
    if site.origin is None or not callers:
        return Called(origin=site.origin, caller_count=1)
    origin = replace(site.origin, callers=max(callers, key=callers.__getitem__))
    return Called(origin=origin, caller_count=len(callers))


def largest_content(counts: Mapping[Allocation, int]) -> str:
    """Return dtype and shape of the arrays that take the most bytes on a device of this process."""
    sizes = [
        (
            allocation.array_type.template.shard_nbytes * count if allocation.array_type.local_devices else 0,
            allocation.site.content,
        )
        for allocation, count in counts.items()
    ]
    return str(max(sizes)[1])


def type_counts(counts: Mapping[Allocation, int]) -> list[tuple[ShardedType, int]]:
    """Return sharded types, each with a number of arrays. A type may occur several times."""
    return [(allocation.array_type, count) for allocation, count in counts.items()]


def held_nbytes(counts: Mapping[Allocation, int]) -> tuple[tuple[int, int], ...]:
    """Return ``(device id, bytes)`` of some arrays for each device of this process that has any of them."""
    return tuple(sorted(local_nbytes(type_counts(counts)).items()))
