"""Optimizer state: the parameter of each leaf, and state that is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..layouts.dtypes import packed_nbytes
from ..quantities import counted, format_bytes
from ..reports.checks import Finding
from ..reports.tree import TreeReport, TreeRow

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


MOMENT_COUNTS = {"adam": 2, "adamw": 2, "lion": 1, "momentum": 1}
"""Number of moments of each parameter, by the name of the optimizer."""
MOMENT_DTYPE = "float32"


class AddedMoments(NamedTuple):
    """The moments that an optimizer adds to a tree."""

    rows: list[TreeRow]
    """Float32 leaves that are sharded like their parameters."""

    words: str
    """The moments and their parameters, or the reason why none are added."""


def added_moments(optimizer: str, rows: Sequence[TreeRow], moments: Sequence[Moment]) -> AddedMoments:
    """Return the moments that an optimizer adds.

    If some parameter already has all its moments, nothing is added. The other parameters are then frozen.

    Args:
        optimizer: A key of ``MOMENT_COUNTS``.
        rows: All leaves of the tree.
        moments: The optimizer state in the tree.
    """
    count = MOMENT_COUNTS[optimizer]
    existing = Counter(moment.parameter.path for moment in moments)
    if max(existing.values(), default=0) >= count:
        return AddedMoments([], f"{optimizer}: none are added, because the tree has moments")
    parameters = parameters_of(rows, moments)
    added = [
        replace(
            row,
            dtype=MOMENT_DTYPE,
            nbytes=packed_nbytes(row.shape, 32),
            shard_nbytes=None if row.shard_shape is None else packed_nbytes(row.shard_shape, 32),
            same_as=None,
        )
        for row in parameters
        for _ in range(count)
    ]
    is_below = any(is_parameter_path(row.path) for row in rows)
    where = "below params" if is_below else "of the tree, which has no key params"
    each = counted(len(parameters), "floating-point leaf", "floating-point leaves")
    each = each if len(parameters) == 1 else f"each of {each}"
    of_each = f"{counted(count, f'{MOMENT_DTYPE} moment', f'{MOMENT_DTYPE} moments')} for {each}"
    return AddedMoments(added, f"{optimizer}: {of_each} {where}")


def exceeded_memory(
    report: TreeReport, required: TreeReport, hbm_nbytes: int, optimizer_words: str
) -> Finding | None:
    """Return the finding on a tree that does not fit the memory of a device.

    Args:
        report: The tree.
        required: The tree with the optimizer state that will be added.
        hbm_nbytes: Memory of a device.
        optimizer_words: That state in words.
    """
    nbytes, leaves = required.fullest_device_nbytes, report.fullest_device_nbytes
    if nbytes <= hbm_nbytes:
        return None
    added = f" ({format_bytes(leaves)} of leaves and {format_bytes(nbytes - leaves)} for {optimizer_words})"
    if required.ideal_nbytes <= hbm_nbytes:
        remedy = (
            f"Evenly sharded over {counted(required.device_count, 'device', 'devices')}, it would take "
            f"{format_bytes(required.ideal_nbytes)} per device."
        )
    else:
        least = -(-required.nbytes // hbm_nbytes)
        remedy = f"Use more devices: evenly sharded, it needs at least {least}."
    return Finding(
        kind="memory",
        problem=(
            f"The tree takes {format_bytes(nbytes)} per device{added if nbytes > leaves else ''}, "
            f"{format_bytes(nbytes - hbm_nbytes)} more than hbm_nbytes, {format_bytes(hbm_nbytes)}. "
            "Activations are not counted."
        ),
        remedy=remedy,
        nbytes=nbytes - hbm_nbytes,
    )
