"""Paths that differ only in their indices, folded into one: ``layers/0-31/mlp/w``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from .tree_paths import number_ranges, path_pieces


@dataclass(slots=True)
class _Group:
    """Paths that agree in everything but their numbers."""

    pieces: tuple[str, ...]
    """Text, number, text, number, …, text of the path."""

    facts: int
    """Number of the facts that the paths share."""

    members: list[int]
    """Indices of the paths, ascending."""


def folded_paths(paths: Sequence[str], facts: Sequence[Hashable]) -> list[tuple[str, list[int]]]:
    """Return paths, those that differ only in indices folded into one, with the members of each.

    Members are positions in ``paths``. The result is in the order of the first members.

    Args:
        paths: The paths.
        facts: Everything but the path that a row for each of them shows. Only paths with equal facts are
            folded.

    >>> folded_paths(["l/0/b", "l/0/w", "l/1/b", "l/1/w", "l/2/w"], [0] * 5)
    [('l/0-1/b', [0, 2]), ('l/0-2/w', [1, 3, 4])]
    """
    numbers: dict[Hashable, int] = {}
    groups = [
        _Group(path_pieces(path), numbers.setdefault(shown, len(numbers)), [index])
        for index, (path, shown) in enumerate(zip(paths, facts, strict=True))
    ]
    longest = max((len(group.pieces) for group in groups), default=1)
    for place in range(longest - 2, 0, -2):
        groups = _folded_at(groups, place)
    groups.sort(key=lambda group: group.members[0])
    return [("".join(group.pieces), group.members) for group in groups]


def _folded_at(groups: list[_Group], place: int) -> list[_Group]:
    """Return groups with those that differ only in the number at one place folded into one."""
    alike: dict[object, list[_Group]] = defaultdict(list)
    for group in groups:
        if place >= len(group.pieces):
            alike[id(group)].append(group)
        else:
            alike[group.facts, group.pieces[:place], group.pieces[place + 1 :]].append(group)
    folded = []
    for found in alike.values():
        if len(found) == 1:
            folded.append(found[0])
            continue
        first = found[0].pieces
        members: dict[int, list[int]] = defaultdict(list)
        for group in found:
            members[int(group.pieces[place])] += group.members
        # In a name, as in ``wi_0`` and ``wi_1``, a number is an index if there are at least three.
        is_key = first[place - 1].endswith("/") or (place == 1 and not first[0])
        is_index = is_key and (first[place + 1].startswith("/") or not first[place + 1])
        for text, run in number_ranges(members, least=2 if is_index else 3):
            pieces = (*first[:place], text, *first[place + 1 :])
            folded.append(_Group(pieces, found[0].facts, sorted(m for n in run for m in members[n])))
    return folded
