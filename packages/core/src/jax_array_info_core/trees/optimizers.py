"""Memory of an optimizer state that a tree does not contain yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ..layouts.dtypes import packed_nbytes
from ..reports.tree import TreeRow
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
