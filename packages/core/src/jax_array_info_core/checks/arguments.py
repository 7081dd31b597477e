"""Validation of the arguments of a check."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import SpecError, UnsupportedValueError
from ..reports.tree import TreeMesh
from ..text import plain_text
from ..trees.path_rules import path_matches, unmatched_problem
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
    return _positive("hbm_nbytes", hbm_nbytes, "of bytes, such as 95 * 2**30")


def checked_devices(devices: Any) -> int | None:
    """Return a positive number of devices or None, or raise UnsupportedValueError."""
    return _positive("devices", devices, "of devices")


def _positive(argument: str, value: Any, unit: str) -> int | None:
    """Return a positive int or None, or raise UnsupportedValueError."""
    if value is None:
        return None
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = 0
    if number <= 0:
        raise UnsupportedValueError(
            f"{argument} must be a positive int {unit}, got {plain_text(value, repr)}"
        )
    return number


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


def ignored_paths(ignore: str | Iterable[str], leaves: Sequence[Sequence[str]]) -> set[str]:
    """Return the paths of the leaves that match a pattern, or raise SpecError for a pattern without a match.

    Args:
        ignore: A pattern, or several.
        leaves: Path of each leaf, and its other paths.
    """
    patterns = _names("ignore", ignore)
    ignored: set[str] = set()
    problems = []
    for pattern in patterns:
        found = [paths[0] for paths in leaves if any(path_matches(pattern, path) for path in paths)]
        ignored.update(found)
        if not found:
            problems.append(f"ignore: {unmatched_problem(pattern)}")
    if problems:
        raise SpecError(problems)
    return ignored


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
