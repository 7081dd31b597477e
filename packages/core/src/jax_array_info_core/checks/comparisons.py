"""Findings about leaves with another sharding than expected, or than their parameter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..layouts.dtypes import bits_of_name, packed_nbytes
from ..quantities import counted, format_bytes
from ..reports.checks import Finding
from ..reports.tree import TreeMesh, TreeRow
from .expectations import Expectation
from .findings import leaf_of, most_first
from .moments import Moment
from .same_sharding import has_known_sharding, is_sharded_further, same_sharding, sharding_words


def unexpected_shardings(
    rows: Iterable[TreeRow], meshes: Sequence[TreeMesh], expected: Expectation
) -> Finding | None:
    """Return the finding on leaves whose sharding is not the expected one."""
    leaves = []
    for row in rows:
        wanted = expected.rows[row.path]
        if problem := expected.problems.get(row.path):
            leaves.append(leaf_of(row, row.shard_nbytes, remedy=f"in expect, {problem}"))
        elif wanted is row or not has_known_sharding(row):
            continue
        elif not same_sharding(row, meshes, wanted, expected.meshes):
            leaves.append(leaf_of(row, row.shard_nbytes, expected=wanted, remedy=_words(row, wanted)))
    if not leaves:
        return None
    return Finding(
        kind="unexpected sharding",
        problem=f"The sharding of {counted(len(leaves), 'leaf', 'leaves')} differs from expect.",
        remedy="Change their shardings, or correct expect.",
        nbytes=sum(leaf.nbytes or 0 for leaf in leaves),
        leaves=most_first(leaves),
    )


def differing_moments(
    moments: Iterable[Moment], rows: Sequence[TreeRow], meshes: Sequence[TreeMesh]
) -> Finding | None:
    """Return the finding on optimizer state that is sharded differently from its parameter.

    State that is sharded over more mesh axes than its parameter is intended, as in ZeRO-1.

    Args:
        moments: The optimizer state of the tree.
        rows: The leaves that findings may be about.
        meshes: The meshes of the leaves.
    """
    differing = [
        moment
        for moment in moments
        if not same_sharding(moment.row, meshes, moment.parameter, meshes)
        and not is_sharded_further(moment.row, moment.parameter, meshes)
        and has_known_sharding(moment.row)
        and has_known_sharding(moment.parameter)
    ]
    if differing:
        paths = {row.path for row in rows}
        differing = [moment for moment in differing if moment.row.path in paths]
    if not differing:
        return None
    now = sum(moment.row.shard_nbytes or 0 for moment in differing)
    then = sum(_nbytes_like(moment.row, moment.parameter) for moment in differing)
    return Finding(
        kind="moments",
        problem=(
            f"{counted(len(differing), 'leaf is', 'leaves are')} sharded differently from the parameter with "
            f"the same path: {format_bytes(now)} per device, {format_bytes(then)} if sharded like it."
        ),
        remedy=(
            "Create the optimizer state inside jit with out_shardings, or with device_put. If the difference "
            "is intended, list the paths in ignore."
        ),
        nbytes=now,
        leaves=most_first(
            leaf_of(row, row.shard_nbytes, expected=parameter, remedy=_words(row, parameter))
            for row, parameter in differing
        ),
    )


def _words(row: TreeRow, wanted: TreeRow) -> str:
    """Return the shardings of two leaves that have no spec; empty if both have one."""
    words = [] if row.spec is not None else [sharding_words(row)]
    words += [] if wanted.spec is not None else [f"expected {sharding_words(wanted)}"]
    return ", ".join(words)


def _nbytes_like(row: TreeRow, parameter: TreeRow) -> int:
    """Return the bytes per device of a leaf if it were sharded like its parameter."""
    if parameter.shard_shape is None:
        return row.shard_nbytes or 0
    return packed_nbytes(parameter.shard_shape, bits_of_name(row.dtype)) or 0
