"""Memory that a tree needs, with an optimizer state that it does not contain yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ..layouts.dtypes import packed_nbytes
from ..quantities import counted, format_bytes
from ..reports.checks import Finding
from ..reports.tree import TreeReport, TreeRow
from .moments import Moment, is_parameter_path, parameters_of

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
