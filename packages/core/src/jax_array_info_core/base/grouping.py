"""Values and sums by a key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def by_key(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """Return the values of each key. Keys are in the order of their first value.

    >>> by_key([("a", 1), ("b", 2), ("a", 3)])
    {'a': [1, 3], 'b': [2]}
    """
    groups: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def sums_by_key(pairs: Iterable[tuple[_Key, int]]) -> Counter[_Key]:
    """Return the sum of the numbers of each key. Keys are in the order of their first number.

    >>> sums_by_key([("a", 1), ("b", 2), ("a", 3)])
    Counter({'a': 4, 'b': 2})
    """
    sums: Counter[_Key] = Counter()
    for key, number in pairs:
        sums[key] += number
    return sums
