"""Paths of leaves that differ only in indices, folded into one: ``layers/0-31/mlp/w``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ..text import clipped
from .tree_paths import number_ranges, path_pieces


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
    alike: dict[Hashable, list[_Group]] = defaultdict(list)
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
