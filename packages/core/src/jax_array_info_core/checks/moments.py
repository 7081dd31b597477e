"""Parameters of a tree, and the optimizer state of each."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

from ..reports.tree import TreeRow

_STATE_KEYS = frozenset({"mu", "nu", "trace"})
"""Keys in the states of optax below which the tree of the parameters is repeated."""
_ROOT = "params/"


class Moment(NamedTuple):
    """A leaf of an optimizer state, and its parameter."""

    row: TreeRow
    parameter: TreeRow


_last: tuple[Sequence[TreeRow], list[Moment]] = ((), [])
"""The rows of the last call and their moments. A tree that is checked at every step has the same rows."""


def moments_of(rows: Sequence[TreeRow]) -> list[Moment]:
    """Return the leaves with the shape of a parameter and a path that ends with the path of that parameter.

    The first key of a parameter is ``params``, and its path counts without it. In a tree without this key,
    the candidates are the leaves below ``mu``, ``nu`` or ``trace``, and their parameter is the leaf elsewhere
    whose path ends with the keys below these.
    """
    global _last
    known, moments = _last
    if known is not rows:
        moments = _found_moments(rows)
        _last = rows, moments
    return moments


def _found_moments(rows: Sequence[TreeRow]) -> list[Moment]:
    below, elsewhere = _divided(rows)
    parameters = {row.path[len(_ROOT) :]: row for row in below}
    if parameters:
        candidates = [(row, _ending(row.path, parameters)) for row in elsewhere]
    else:
        states = [(row, tail) for row in rows if (tail := _below_state_key(row.path)) is not None]
        tails = {tail for _, tail in states}
        for row in rows if tails else ():
            if _below_state_key(row.path) is None and (ending := _ending(row.path, tails)) is not None:
                parameters.setdefault(ending, row)
        candidates = [(row, tail if tail in parameters else None) for row, tail in states]
    return [
        Moment(row, parameters[tail])
        for row, tail in candidates
        if tail is not None and parameters[tail].shape == row.shape
    ]


def parameters_of(rows: Sequence[TreeRow], moments: Sequence[Moment]) -> list[TreeRow]:
    """Return the parameters that an optimizer updates: the floating-point leaves below ``params``.

    In a tree without this key, these are all floating-point leaves that are not moments.
    """
    below, _ = _divided(rows)
    if not below:
        states = {moment.row.path for moment in moments}
        below = [row for row in rows if row.path not in states]
    return [row for row in below if row.dtype.startswith(("float", "bfloat", "complex"))]


def is_parameter_path(path: str) -> bool:
    """Return whether the first key of a path is ``params``."""
    return path.startswith(_ROOT) or path == _ROOT[:-1]


def _divided(rows: Sequence[TreeRow]) -> tuple[list[TreeRow], list[TreeRow]]:
    """Return the leaves whose first key is ``params``, and the other leaves."""
    below: list[TreeRow] = []
    elsewhere: list[TreeRow] = []
    for row in rows:
        (below if is_parameter_path(row.path) else elsewhere).append(row)
    return below, elsewhere


def _below_state_key(path: str) -> str | None:
    """Return the keys below the first ``mu``, ``nu`` or ``trace`` of a path; None if it has none of these."""
    keys = path.split("/")
    place = next((place for place, key in enumerate(keys) if key in _STATE_KEYS), None)
    return None if place is None else "/".join(keys[place + 1 :])


def _ending(path: str, tails: Container[str]) -> str | None:
    """Return the longest of some key sequences with which a path ends."""
    start = 0
    while True:
        if path[start:] in tails:
            return path[start:]
        slash = path.find("/", start)
        if slash < 0:
            return "" if "" in tails else None
        start = slash + 1
