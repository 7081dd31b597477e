"""Reference paths, those that differ in one index folded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

from ..grouping import by_key
from ..text import clipped
from .folds import consecutive, path_pieces

_LEAST_FOLDED = 3
"""Minimum number of paths, with consecutive indices, that are folded into one."""
_MOST_INDICES = 50
"""Indices of a path that are folded, the first ones."""
_INDEX = re.compile(r"'(?:[^'\\]++|\\.)*+'|\"(?:[^\"\\]++|\\.)*+\"|\[[0-9]+\]")
"""A key in quotes, or an index."""


def folded_references(paths: Iterable[str]) -> list[str]:
    """Return paths, with those that differ in one index folded: ``meter.hist['hidden'][0:20]``.

    A number in a key counts as an index, as in trees: ``params['layers_0-23']``.

    A folded path takes the place of its first path.
    """
    folded = list(dict.fromkeys(map(clipped, paths)))
    most = max((len(_indices(path)) for path in folded), default=0)
    for place in reversed(range(min(most, _MOST_INDICES))):
        folded = list(_folded_at(place, folded))
    return folded


def _indices(path: str) -> list[tuple[int, int]]:
    """Return beginning and end of each index, and of each number in a key."""
    found: list[tuple[int, int]] = []
    for match in _INDEX.finditer(path):
        ends = accumulate(map(len, path_pieces(match[0][1:-1])), initial=match.start() + 1)
        found += [*pairwise(ends)][1::2]
    return found


def _folded_at(place: int, paths: Sequence[str]) -> Iterator[str]:
    """Yield paths, with those folded that have consecutive indices at a place."""
    for around, numbers in by_key(_without_index(path, place) for path in paths).items():
        for run in consecutive(sorted(numbers)):
            texts = [*map(str, run)]
            if len(run) >= _LEAST_FOLDED:
                end = f":{run[-1] + 1}" if around[0].endswith("[") else f"-{run[-1]}"
                texts = [f"{run[0]}{end}"]
            yield from (text.join(around) for text in texts)


def _without_index(path: str, place: int) -> tuple[tuple[str, ...], int]:
    """Return a path without its index at a place, and the index; the whole path if it has no such index."""
    found = _indices(path)
    if len(found) <= place:
        return (path,), 0
    start, end = found[place]
    return (path[:start], path[end:]), int(path[start:end])
