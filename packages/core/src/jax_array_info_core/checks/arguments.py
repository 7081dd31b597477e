"""Validation of the arguments of a check."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import SpecError, UnsupportedValueError
from ..reports.tree import TreeMesh, TreeRow
from ..text import plain_text
from ..trees.path_rules import path_pattern, unmatched_problem
from .optimizers import MOMENT_COUNTS


def checked_limit(max_replicated: Any) -> float:
    """Return a fraction from 0 to 1, or raise UnsupportedValueError."""
    try:
        limit = float(max_replicated)
    except (TypeError, ValueError):
        limit = -1.0
    if isinstance(max_replicated, str) or not 0 <= limit <= 1:
        raise UnsupportedValueError(
            "max_replicated must be a fraction of the bytes of the fullest device, from 0 to 1, "
            f"got {plain_text(max_replicated, repr)}"
        )
    return limit


def checked_hbm(hbm_nbytes: Any) -> int | None:
    """Return a positive number of bytes or None, or raise UnsupportedValueError."""
    if hbm_nbytes is None:
        return None
    try:
        nbytes = 0 if isinstance(hbm_nbytes, bool) else operator.index(hbm_nbytes)
    except TypeError:
        nbytes = 0
    if nbytes <= 0:
        raise UnsupportedValueError(
            "hbm_nbytes must be a positive int of bytes, such as 95 * 2**30, "
            f"got {plain_text(hbm_nbytes, repr)}"
        )
    return nbytes


def checked_optimizer(optimizer: Any) -> str | None:
    """Return the name of a known optimizer or None, or raise UnsupportedValueError."""
    if optimizer is None or (isinstance(optimizer, str) and optimizer in MOMENT_COUNTS):
        return optimizer
    known = ", ".join(map(repr, MOMENT_COUNTS))
    raise UnsupportedValueError(f"optimizer must be one of {known}, got {plain_text(optimizer, repr)}")


def known_axes(replicated_over: str | Iterable[str], meshes: Sequence[TreeMesh]) -> frozenset[str]:
    """Return the names of mesh axes, or raise UnsupportedValueError if a name is in no mesh of the tree.

    A tree without a mesh, as in a run on one device, accepts any name.
    """
    names = _names("replicated_over", replicated_over)
    known = dict.fromkeys(name for mesh in meshes if mesh.axes is not None for name in mesh.axes.names)
    for name in names:
        if known and name not in known:
            raise UnsupportedValueError(
                f"replicated_over: {name!r} is not a mesh axis of the tree: "
                f"its meshes have {', '.join(map(repr, known))}"
            )
    return frozenset(names)


def not_ignored(ignore: str | Iterable[str], rows: Sequence[TreeRow]) -> Sequence[TreeRow]:
    """Return the rows whose path matches no pattern, or raise SpecError for a pattern without a match."""
    patterns = _names("ignore", ignore)
    if not patterns:
        return rows
    ignored: set[str] = set()
    problems = []
    for pattern in patterns:
        match = path_pattern(pattern).fullmatch
        found = [row.path for row in rows if match(row.path)]
        ignored.update(found)
        if not found:
            problems.append(f"ignore: {unmatched_problem(pattern)}")
    if problems:
        raise SpecError(problems)
    return [row for row in rows if row.path not in ignored]


def _names(argument: str, names: Any) -> tuple[str, ...]:
    """Return one or several strings as a tuple, or raise UnsupportedValueError."""
    if isinstance(names, str):
        return (names,)
    try:
        found = tuple(names)
    except TypeError:
        found = (names,)
    if not all(isinstance(name, str) for name in found):
        raise UnsupportedValueError(f"{argument} must be a tuple of strings, got {plain_text(names, repr)}")
    return found
