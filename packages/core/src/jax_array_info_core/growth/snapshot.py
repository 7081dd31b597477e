"""The arrays that are alive at one moment, known by weak references."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..arrays.views import bases_of_views
from ..layouts.dtypes import type_text
from ..live.kinds import Kind, kind_of, local_nbytes
from ..origins.origins import array_origins
from ..reports.origin import Origin


class Maker(NamedTuple):
    """What arrays are counted by: the line that made them, their dtype and shape, or both."""

    origin: Origin | None
    """The line; None where it is not known."""

    content: str | None
    """Dtype and shape, as ``float32[4,4]``; None for all that the line made."""


@dataclass(frozen=True, slots=True, eq=False)
class Sort:
    """What arrays of one kind have in common that one line has made."""

    kind: Kind
    content: Maker
    """The line, and their dtype and shape."""

    @property
    def line(self) -> Maker:
        """The line alone; dtype and shape where it is not known."""
        return Maker(self.content.origin, None) if self.content.origin else self.content


def sort_of(shape: tuple[int, ...], dtype: Any, sharding: Any, origin: Origin | None) -> Sort:
    """Return what arrays have in common of which these are the same."""
    return Sort(kind_of(shape, dtype, sharding), Maker(origin, type_text(dtype, shape)))


@dataclass(slots=True, eq=False)
class _Seen:
    """One array: the same object in each census that has it."""

    reference: weakref.ref[Any]
    sort: Sort


class Census:
    """The arrays that are alive at one moment, without views of others, which take no memory.

    None is kept alive, and nothing runs when one dies.
    """

    def __init__(
        self,
        arrays: Sequence[Any],
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
        views = frozenset(bases_of_views(arrays))
        owners = [array for array in arrays if id(array) not in views] if views else arrays
        self.view_count = len(arrays) - len(owners)
        # By id, as arrays have no hash. An id may come to belong to another array, a reference does not.
        self._seen: dict[int, _Seen] = {}
        for array in owners:
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


def by_maker(counts: Mapping[Sort, int], apart: Container[Maker] = ()) -> dict[Maker, dict[Sort, int]]:
    """Return the sorts of each line, each with its number.

    Args:
        counts: How many arrays there are of each sort.
        apart: The dtypes and shapes to keep apart from the other arrays of their lines.
    """
    makers: dict[Maker, dict[Sort, int]] = {}
    for sort, count in counts.items():
        maker = sort.content if sort.content in apart else sort.line
        makers.setdefault(maker, {})[sort] = count
    return makers


def largest_content(counts: Mapping[Sort, int]) -> str:
    """Return dtype and shape of the sort that takes the most bytes."""
    sort = max(counts, key=lambda sort: (sort.kind.local_nbytes * counts[sort], sort.content.content))
    return str(sort.content.content)


def kind_counts(counts: Mapping[Sort, int]) -> Counter[Kind]:
    """Return how many arrays there are of each kind."""
    kinds: Counter[Kind] = Counter()
    for sort, count in counts.items():
        kinds[sort.kind] += count
    return kinds


def held_nbytes(counts: Mapping[Sort, int]) -> tuple[tuple[int, int], ...]:
    """Return ``(device id, bytes)`` of what each device of this process holds of some arrays."""
    return tuple(sorted(local_nbytes(kind_counts(counts)).items()))
