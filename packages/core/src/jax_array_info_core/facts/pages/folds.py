"""Rows that a table shows, and paths and reference paths folded over numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Literal, TypeAlias, TypeVar

from ...base.grouping import by_key
from ...base.quantities import format_device_ids
from ...base.text import clipped, plain_text

_T = TypeVar("_T")

MaxRows: TypeAlias = 'int | Literal["fit"] | None'
"""Maximum number of rows of each list; None for all, ``"fit"`` for as many as 40 lines hold."""


def check_max_rows(max_rows: object) -> None:
    """Raise TypeError for a value that ``MaxRows`` does not have, and ValueError for a negative number."""
    if max_rows == "fit":
        return
    if not isinstance(max_rows, int | None) or isinstance(max_rows, bool):
        raise TypeError(f"max_rows must be an integer, None or 'fit', got {plain_text(max_rows, repr)}")
    if max_rows is not None and max_rows < 0:
        raise ValueError(f"max_rows must be at least 0, or None for all rows, got {max_rows}")


def split_rows(rows: Sequence[_T], max_rows: int | None) -> tuple[Sequence[_T], Sequence[_T]]:
    """Return the first rows, which are shown, and the remaining rows.

    Args:
        rows: All rows.
        max_rows: Maximum number of rows to show; None for all.
    """
    shown = rows[:max_rows]
    return shown, rows[len(shown) :]


_QUOTED = re.compile(r"('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")[^/]*", re.DOTALL)
_NUMBER = re.compile(r"(?<![^/._])(0|[1-9][0-9]{0,17})(?![^/._])")
_MOST_NUMBERS = 50
"""Numbers of a path that can be indices, the first ones."""
_LONGEST_QUOTED = 2000
"""Paths longer than this, in characters, are split at each ``/``: the search for quotes is quadratic."""
_LONGEST_RANGES = 24
"""Maximum length of several ranges of numbers in one path, in characters."""


def path_keys(path: str) -> tuple[str, ...]:
    """Return the keys of a path, as they are written: quoted keys stay in quotes.

    >>> path_keys("params/'a/b'/0")
    ('params', "'a/b'", '0')
    """
    if len(path) > _LONGEST_QUOTED or ("'" not in path and '"' not in path):
        return tuple(path.split("/"))
    keys, start = [], 0
    while start <= len(path):
        quoted = _QUOTED.match(path, start)
        stop = quoted.end() if quoted else path.find("/", start)
        stop = len(path) if stop < 0 else stop
        keys.append(path[start:stop])
        start = stop + 1
    return tuple(keys)


def path_pieces(path: str) -> tuple[str, ...]:
    """Return a path as text, number, text, number, …, text.

    A number is a whole key, or stands between ``.``, ``_`` and the ends of a key.

    >>> path_pieces("layers/0/block_12/w2")
    ('layers/', '0', '/block_', '12', '/w2')
    """
    return tuple(_NUMBER.split(path, _MOST_NUMBERS))


def number_ranges(numbers: Collection[int], least: int) -> Iterator[tuple[str, list[int]]]:
    """Yield numbers as text, such as ``0-31`` or ``0-62:2``, with the numbers that the text stands for.

    Irregular numbers become several texts, one for each run of consecutive numbers.

    Args:
        numbers: Different numbers.
        least: Smallest number of them to write as one text; fewer are written one by one.
    """
    ordered = sorted(numbers)
    if len(ordered) < least:
        runs = [[number] for number in ordered]
    else:
        is_long = len(format_device_ids(ordered)) > _LONGEST_RANGES
        runs = [*consecutive(ordered)] if is_long else [ordered]
    for run in runs:
        is_consecutive = run[-1] - run[0] == len(run) - 1 > 0
        yield f"{run[0]}-{run[-1]}" if is_consecutive else format_device_ids(run), run


def consecutive(ordered: list[int]) -> Iterator[list[int]]:
    """Yield ascending numbers in runs without gaps."""
    for _, run in groupby(enumerate(ordered), lambda place: place[1] - place[0]):
        yield [number for _, number in run]


def folded_paths(paths: Sequence[str], facts: Sequence[Hashable]) -> list[tuple[str, list[int]]]:
    """Return paths, with those that differ only in indices folded, in the order of their first leaf.

    Args:
        paths: Paths of leaves.
        facts: Facts of each leaf. Paths are folded only if these are equal.

    Returns:
        The paths, each with the positions in ``paths`` of the leaves that it stands for, ascending.

    >>> folded_paths(["layers/0/w", "layers/1/w", "head"], ["a", "a", "b"])
    [('layers/0-1/w', [0, 1]), ('head', [2])]
    """
    numbers: dict[Hashable, int] = {}
    groups = [
        _Group(path_pieces(clipped(path)), numbers.setdefault(fact, len(numbers)), [index])
        for index, (path, fact) in enumerate(zip(paths, facts, strict=True))
    ]
    longest = max((len(group.pieces) for group in groups), default=1)
    for place in range(longest - 2, 0, -2):
        groups = _folded_at(groups, place)
    groups.sort(key=lambda group: group.members[0])
    return [("".join(group.pieces), group.members) for group in groups]


def folded(
    things: Sequence[_T], fact: Callable[[_T], Hashable], path: Callable[[_T], str] = attrgetter("path")
) -> list[tuple[str, list[_T]]]:
    """Return paths, with those that differ only in indices folded, each with the things that it stands for.

    Args:
        things: What has paths.
        fact: Function that returns the facts of a thing. Paths are folded only if these are equal.
        path: Function that returns its path.
    """
    folds = folded_paths([*map(path, things)], [*map(fact, things)])
    return [(text, [things[index] for index in members]) for text, members in folds]


@dataclass(slots=True)
class _Group:
    """Leaves that agree in everything but the numbers in their paths."""

    pieces: tuple[str, ...]
    """Text, number, text, number, …, text of the path."""

    facts: int
    """Number of the facts that the leaves share."""

    members: list[int]
    """Positions of the leaves, ascending."""


def _folded_at(groups: list[_Group], place: int) -> list[_Group]:
    """Return groups with those that differ only in the number at one place folded into one."""

    def key(group: _Group) -> Hashable:
        is_short = place >= len(group.pieces)
        return id(group) if is_short else (group.facts, group.pieces[:place], group.pieces[place + 1 :])

    folded = []
    for alike in by_key((key(group), group) for group in groups).values():
        if len(alike) == 1:
            folded.append(alike[0])
            continue
        first = alike[0].pieces
        members = by_key((int(group.pieces[place]), member) for group in alike for member in group.members)
        # In a name, as in ``wi_0`` and ``wi_1``, a number is an index if there are at least three.
        is_key = first[place - 1].endswith("/") or (place == 1 and not first[0])
        is_index = is_key and (first[place + 1].startswith("/") or not first[place + 1])
        for text, run in number_ranges(members, least=2 if is_index else 3):
            pieces = (*first[:place], text, *first[place + 1 :])
            folded.append(_Group(pieces, alike[0].facts, sorted(m for n in run for m in members[n])))
    return folded


_PATH = re.compile(r"(?<!\S)([^\s/]*+/\S*)")
"""A path in a text; in a group, so that ``split`` keeps it."""


def without_indices(text: str) -> str:
    """Return a text without the numbers in its paths, to compare texts on leaves that differ in indices."""
    return _PATH.sub(lambda match: re.sub(r"[0-9]+", "#", match[0]), text)


def folded_text(texts: Sequence[str]) -> str:
    """Return texts that are equal ``without_indices`` as one, with the indices of all in its paths."""
    columns = zip(*(_PATH.split(text) for text in texts), strict=True)
    return "".join(
        column[0] if len(set(column)) == 1 else folded_paths(column, [None] * len(column))[0][0]
        for column in columns
    )
