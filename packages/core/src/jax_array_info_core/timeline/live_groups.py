"""Groups of the live arrays, counted from sample to sample without keeping an array alive."""

from __future__ import annotations

import heapq
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter, is_
from typing import Any, TypeVar

from .. import compat
from ..config import shown_callers
from ..live.report import sharded_type
from ..origins.origins import array_origins
from ..reports.record import RecordGroup
from .in_use import LocalDevices

MOST_BYTES = 50
"""Number of groups with the most bytes in a sample."""
MOST_RISEN = 14
"""Number of further groups in a sample, those that increased the most often."""

_LONGEST = 0.0025
"""Seconds after which other threads run."""
_READ = 10
"""Number of arrays that are read between two looks at the clock."""
_SEARCHED = 500
"""Number of arrays that are searched for views before other threads run."""
_MOST_KNOWN = 4096
"""Number of combinations of shape, dtype, sharding and traceback that are remembered."""

_T = TypeVar("_T")
_identity = object.__hash__
"""Identity of an object as a number. ``id`` is slower once JAX is imported, and arrays have no hash."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class LiveGroup:
    """Live arrays that agree in allocation site, shape, dtype and sharding."""

    facts: RecordGroup
    """Its line of a record, with 0 for its number."""

    array_nbytes: int
    """Bytes of one array on all devices of this process."""

    count: int = 0
    """Number of live arrays."""

    last_count: int = 0
    """Number of live arrays in the sample before."""

    rises: int = 0
    """Number of samples in which the arrays became more, less those in which they became fewer: a model is
    allocated once, a leak rises again and again."""

    @property
    def nbytes(self) -> int:
        """Bytes on all devices of this process."""
        return self.count * self.array_nbytes


class LiveGroups:
    """Groups of the live arrays of this process. Views take no memory and are left out.

    Each array is read once, when it is new. Arrays are told apart by their weak references: two arrays share
    none, not even one after the other at the same address, as long as the references are kept.
    """

    def __init__(self, devices: Sequence[Any]) -> None:
        """Begin without arrays.

        Args:
            devices: Devices of this process, of one platform.
        """
        self._local = LocalDevices(devices)
        self._references: dict[int, weakref.ref[Any]] = {}
        self._views: set[int] = set()
        self._group_of: dict[int, LiveGroup] = {}
        self._groups: weakref.WeakValueDictionary[RecordGroup, LiveGroup] = weakref.WeakValueDictionary()
        self._known: dict[tuple[Any, ...], LiveGroup] = {}
        self._origin_of = array_origins(callers=shown_callers())
        self._is_first = True
        self.live: set[LiveGroup] = set()
        """Groups with live arrays."""
        self.count = 0
        """Number of live arrays."""
        self.device_nbytes = [0] * len(devices)
        """Bytes of the live arrays on each device. A buffer that several arrays share counts for each."""

    def update(self, live_arrays: Callable[[], Iterable[Any]], pause: Callable[[], None]) -> int:
        """Count the arrays that are alive now.

        Args:
            live_arrays: Returns all live arrays.
            pause: Lets other threads run. No array is kept alive meanwhile.

        Returns:
            Number of new arrays that were freed in a pause, before they were read: they are not counted.
        """
        turn = _Turn(pause)
        latest = list(map(weakref.ref, live_arrays()))
        if len(latest) == len(self._references) and all(map(is_, latest, self._references.values())):
            return 0
        references = dict(zip(map(_identity, latest), latest, strict=True))
        # The former references are kept until here: their numbers are not used again before.
        former, self._references = self._references, references
        gone, new = former.keys() - references.keys(), references.keys() - former.keys()
        lost = sum(self._read(piece) for piece in turn.pieces(new, _READ))
        known = self._group_of.keys()
        views = self._find_views(turn) if new or self._views else set()
        no_more = (gone | (views - new)) & known - self._views
        # A view whose base is gone holds the memory.
        counted = (new | self._views) & references.keys() & known - views
        self._count(no_more, -1, turn)
        self._count(counted, 1, turn)
        for key in gone:
            self._group_of.pop(key, None)
        self._views = views & references.keys()
        for group in self.live:
            if self._is_first:
                group.last_count = group.count
            group.rises += (group.count > group.last_count) - (group.count < group.last_count)
            group.last_count = group.count
        self._is_first = False
        return lost

    def largest(self, pause: Callable[[], None]) -> list[LiveGroup]:
        """Return the groups with the most bytes, then others that increased the most often."""
        found = heapq.nlargest(MOST_BYTES, self.live, key=attrgetter("nbytes"))
        pause()
        others = (group for group in self.live.difference(found) if group.rises > 0)
        return found + heapq.nlargest(MOST_RISEN, others, key=attrgetter("rises", "nbytes"))

    def _find_views(self, turn: _Turn) -> set[int]:
        """Return the numbers of the arrays that share the buffers of another."""
        views: set[int] = set()
        for references in turn.pieces(self._references.values(), _SEARCHED):
            # In a function: none of its variables keeps an array alive afterwards.
            views.update(map(_identity, _references_to_views(references)))
        return views

    def _read(self, keys: Iterable[int]) -> int:
        """Find the groups of new arrays, and return the number of those that are gone already."""
        lost = 0
        for key in keys:
            array = self._references[key]()
            if array is None:
                lost += 1
                continue
            facts = (array.shape, array.dtype, array.sharding, compat.traceback_of(array))
            group = self._known.get(facts)
            if group is None:
                if len(self._known) >= _MOST_KNOWN:
                    self._known.clear()
                    self._origin_of = array_origins(callers=shown_callers())
                group = self._known[facts] = self._group(array)
            self._group_of[key] = group
        return lost

    def _group(self, array: Any) -> LiveGroup:
        array_type, origin = sharded_type(array.shape, array.dtype, array.sharding), self._origin_of(array)
        template = array_type.template
        devices = self._local.places(array_type)
        key = RecordGroup(
            id=0,
            shape=template.shape,
            dtype=template.dtype,
            sharding=template.sharding,
            memory_kind=template.memory_kind,
            # Steps may be calls on several lines, which do not belong to the site.
            origin=origin and replace(origin, callers=()),
            shard_nbytes=template.shard_nbytes,
            devices=tuple(devices),
        )
        group = self._groups.get(key)
        if group is None:
            group = LiveGroup(replace(key, origin=origin), template.shard_nbytes * len(devices))
            self._groups[key] = group
        return group

    def _count(self, keys: Iterable[int], sign: int, turn: _Turn) -> None:
        """Add arrays to their groups, or remove them."""
        for piece in turn.pieces(keys, _SEARCHED):
            self._add(Counter(map(self._group_of.__getitem__, piece)), sign)

    def _add(self, counts: Counter[LiveGroup], sign: int) -> None:
        for group, number in counts.items():
            group.count += sign * number
            self.count += sign * number
            for place in group.facts.devices:
                self.device_nbytes[place] += sign * number * group.facts.shard_nbytes
            (self.live.add if group.count else self.live.discard)(group)


def _references_to_views(references: Iterable[weakref.ref[Any]]) -> list[weakref.ref[Any]]:
    """Return weak references to the views of some arrays, which may be gone."""
    arrays = [array for array in (reference() for reference in references) if array is not None]
    return [weakref.ref(view) for view, _ in compat.shard_views(arrays)]


class _Turn:
    """A turn of this thread with Python's lock, which ends after 2.5 milliseconds with a pause."""

    def __init__(self, pause: Callable[[], None]) -> None:
        self._pause = pause
        self._start = time.perf_counter()

    def pieces(self, values: Iterable[_T], size: int) -> Iterator[list[_T]]:
        """Yield the values in pieces, with pauses between them."""
        rest = iter(values)
        while piece := list(islice(rest, size)):
            yield piece
            if time.perf_counter() - self._start > _LONGEST:
                self._pause()
                self._start = time.perf_counter()
