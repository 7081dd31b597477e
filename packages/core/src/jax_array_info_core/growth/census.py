"""The arrays that are alive at one moment, known by weak references."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..memory.model import Origin
from ..memory.origins import array_origins
from ..memory.population import Kind, kind_of, local_nbytes

Maker = Origin | str
"""The line that made arrays; where it is not known their dtype and shape, as ``float32[4,4]``."""


@dataclass(frozen=True, slots=True, eq=False)
class Sort:
    """What arrays of one kind have in common that one line has made."""

    kind: Kind
    origin: Origin | None

    @property
    def content(self) -> str:
        """Dtype and shape, as ``float32[4,4]``."""
        return f"{self.kind.dtype}[{','.join(map(str, self.kind.shape))}]"

    @property
    def maker(self) -> Maker:
        """Who made them."""
        return self.origin or self.content


def sort_of(shape: tuple[int, ...], dtype: Any, sharding: Any, origin: Origin | None) -> Sort:
    """Return what arrays have in common of which these are the same."""
    return Sort(kind_of(shape, dtype, sharding), origin)


@dataclass(slots=True, eq=False)
class _Seen:
    """One array: the same object in each census that has it."""

    reference: weakref.ref[Any]
    sort: Sort


class Census:
    """The arrays that are alive at one moment.

    None is kept alive, and nothing runs when one dies.
    """

    def __init__(
        self,
        arrays: Iterable[Any],
        sort_of: Callable[..., Sort],
        before: Census | None = None,
    ) -> None:
        """Take note of arrays.

        Args:
            arrays: What is alive.
            sort_of: The function of that name, or one that remembers what it has returned.
            before: An earlier census: what was alive then is not looked at again.
        """
        origin_of = array_origins()
        known = {} if before is None else before._seen
        # By id, as arrays have no hash. An id may come to belong to another array, a reference does not.
        self._seen: dict[int, _Seen] = {}
        for array in arrays:
            seen = known.get(id(array))
            if seen is None or seen.reference() is not array:
                sort = sort_of(array.shape, array.dtype, array.sharding, origin_of(array))
                seen = _Seen(weakref.ref(array), sort)
            self._seen[id(array)] = seen

    def __len__(self) -> int:
        return len(self._seen)

    def counts(self) -> Counter[Sort]:
        """Return how many there are of each sort."""
        return Counter(seen.sort for seen in self._seen.values())

    def counts_without(self, other: Census) -> Counter[Sort]:
        """Return how many there are of each sort that are not in another census."""
        there = other._seen
        return Counter(seen.sort for key, seen in self._seen.items() if seen is not there.get(key))

    def know_again(self, arrays: Iterable[Any], gone: Container[int]) -> None:
        """Take note of what is alive after all, though the garbage collector has cleared the reference to it.

        It does so before it calls a ``__del__``, which may bring back an object and what that holds.

        Args:
            arrays: What is alive right after a collection.
            gone: The ids of those that had died before it.
        """
        for array in arrays:
            seen = self._seen.get(id(array))
            if seen is None or seen.reference() is not None or id(array) in gone:
                continue
            # Not another one that was made meanwhile, as far as that can be told.
            if (seen.sort.kind.shape, seen.sort.kind.dtype) == (array.shape, str(array.dtype)):
                seen.reference = weakref.ref(array)

    def gone(self) -> dict[int, Sort]:
        """Return those that have died, or were deleted, since: their sorts by what was their ``id``."""
        return {key: seen.sort for key, seen in self._seen.items() if _is_gone(seen.reference)}


def _is_gone(reference: weakref.ref[Any]) -> bool:
    array = reference()
    return array is None or array.is_deleted()


def by_maker(counts: Mapping[Sort, int]) -> dict[Maker, dict[Sort, int]]:
    """Return the sorts of each maker, each with its number."""
    makers: dict[Maker, dict[Sort, int]] = {}
    for sort, count in counts.items():
        makers.setdefault(sort.maker, {})[sort] = count
    return makers


def largest_content(counts: Mapping[Sort, int]) -> str:
    """Return dtype and shape of the sort that takes the most bytes."""
    return max(counts, key=lambda sort: (sort.kind.local_nbytes * counts[sort], sort.content)).content


def kind_counts(counts: Mapping[Sort, int]) -> Counter[Kind]:
    """Return how many arrays there are of each kind."""
    kinds: Counter[Kind] = Counter()
    for sort, count in counts.items():
        kinds[sort.kind] += count
    return kinds


def held_nbytes(counts: Mapping[Sort, int]) -> tuple[tuple[int, int], ...]:
    """Return ``(device id, bytes)`` of what each device of this process holds of some arrays."""
    return tuple(sorted(local_nbytes(kind_counts(counts)).items()))
