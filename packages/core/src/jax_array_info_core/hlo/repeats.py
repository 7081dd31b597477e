"""Repeated parts of the stacks and names that XLA forms when it inlines loops and calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

_T = TypeVar("_T")


def without_repeats(entries: Iterable[_T]) -> list[_T]:
    """Return a sequence in which each part that immediately follows an equal part is left out.

    >>> without_repeats("abcbcbcd")
    ['a', 'b', 'c', 'd']
    """
    kept: list[_T] = []
    for entry in entries:
        kept.append(entry)
        for size in range(1, len(kept) // 2 + 1):
            if kept[-1] == kept[-1 - size] and kept[-size:] == kept[-2 * size : -size]:
                del kept[-size:]
                break
    return kept
