"""Memory that a tree needs, with an optimizer state that it does not contain yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ..layouts.dtypes import packed_nbytes
from ..quantities import counted, format_bytes
from ..reports.checks import Finding
from ..reports.tree import TreeReport, TreeRow
from .moments import Moment, parameters_of

MOMENT_COUNTS = {"adam": 2, "adamw": 2, "lion": 1, "momentum": 1}
"""Number of moments of each parameter, by the name of the optimizer."""
MOMENT_DTYPE = "float32"


def added_moments(optimizer: str, rows: Sequence[TreeRow], moments: Sequence[Moment]) -> list[TreeRow]:
    """Return the moments that an optimizer adds: float32 leaves that are sharded like their parameters.

    If some parameter already has all its moments, nothing is added. The other parameters are then frozen.

    Args:
        optimizer: A key of ``MOMENT_COUNTS``.
        rows: All leaves of the tree.
        moments: The optimizer state in the tree.
    """
    count = MOMENT_COUNTS[optimizer]
    existing = Counter(moment.parameter.path for moment in moments)
    if max(existing.values(), default=0) >= count:
        return []
    return [
        replace(
            row,
            dtype=MOMENT_DTYPE,
            nbytes=packed_nbytes(row.shape, 32),
            shard_nbytes=None if row.shard_shape is None else packed_nbytes(row.shard_shape, 32),
            same_as=None,
        )
        for row in parameters_of(rows, moments)
        for _ in range(count)
    ]


def exceeded_memory(
    report: TreeReport, required: TreeReport, hbm_nbytes: int, optimizer: str | None
) -> Finding | None:
    """Return the finding on a tree that does not fit the memory of a device.

    Args:
        report: The tree.
        required: The tree with the optimizer state that will be added.
        hbm_nbytes: Memory of a device.
        optimizer: Name of the optimizer; None for none.
    """
    nbytes, leaves = required.fullest_device_nbytes, report.fullest_device_nbytes
    if nbytes <= hbm_nbytes:
        return None
    parts = f" ({format_bytes(leaves)} of leaves, {format_bytes(nbytes - leaves)} of moments for {optimizer})"
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
            f"The tree takes {format_bytes(nbytes)} per device{parts if nbytes > leaves else ''}, "
            f"{format_bytes(nbytes - hbm_nbytes)} more than hbm_nbytes, {format_bytes(hbm_nbytes)}. "
            "Activations are not counted."
        ),
        remedy=remedy,
        nbytes=nbytes - hbm_nbytes,
    )
