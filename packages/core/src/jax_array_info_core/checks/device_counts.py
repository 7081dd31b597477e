"""Leaves on fewer devices than the mesh of their tree."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import replace

from ..layouts.spec import Spec
from ..quantities import counted, format_bytes
from ..reports.checks import Finding, FindingLeaf
from ..reports.tree import TreeMesh, TreeRow
from ..trees.avoidable import avoidable
from ..trees.plan import PlannedTree
from .findings import finer_words, leaf_of, most_first

_KEY_SIZES = (2, 4)
"""Lengths of the last axis of raw PRNG keys: threefry and rbg."""


def fewer_devices(
    rows: Iterable[TreeRow], planned: PlannedTree, devices: int | None, replicated_over: Collection[str]
) -> Finding | None:
    """Return the finding on leaves that are on fewer devices than the mesh of the tree.

    A NamedSharding on another mesh is a choice, as in a pipeline, and so is a sharding over the devices of
    such a mesh. Scalars and keys may be on any device.

    Args:
        rows: The leaves that the finding may be about.
        planned: The tree.
        devices: Least number of devices of each leaf, whatever its sharding; None for those of the mesh.
        replicated_over: Mesh axes over which replication is intended.
    """
    meshes = planned.report.meshes
    mesh = planned.mesh or max(
        meshes, key=lambda mesh: (mesh.device_count, mesh.axes is not None), default=None
    )
    wanted = devices or (1 if mesh is None else mesh.device_count)
    if mesh is None or mesh.device_count != wanted:
        mesh = TreeMesh(axes=None, device_count=wanted)
    stages = {found.device_count for found in meshes if found.axes is not None}
    leaves = []
    for planned_row in rows:
        if planned_row.path in planned.unspecified:
            row, own = planned.unspecified[planned_row.path]
        elif planned_row.mesh is not None:
            row, own = planned_row, meshes[planned_row.mesh]
        else:
            continue
        if own.device_count >= wanted or row.shard_nbytes is None or row.same_as is not None:
            continue
        is_chosen = row.spec is not None or (own.device_count > 1 and own.device_count in stages)
        if not (is_chosen and devices is None) and not _is_scalar_or_key(row):
            leaves.append(_leaf(row, own, mesh, replicated_over))
    if not leaves:
        return None
    now = sum(leaf.nbytes or 0 for leaf in leaves)
    then = sum(leaf.nbytes_after or 0 for leaf in leaves)
    return Finding(
        kind="fewer devices",
        problem=(
            f"{counted(len(leaves), 'leaf is', 'leaves are')} on fewer than {wanted} devices: "
            f"{format_bytes(now)} as {'it is' if len(leaves) == 1 else 'they are'}, {format_bytes(then)} per "
            f"device on all {wanted}."
        ),
        remedy=(
            "Create the leaves inside jit with out_shardings, or use device_put: the next jitted step "
            "replicates an array that is not committed to its device. If one device is intended, pass "
            "devices=1 or list the paths in ignore."
        ),
        nbytes=now,
        nbytes_after=then,
        leaves=most_first(leaves),
    )


def _leaf(row: TreeRow, own: TreeMesh, mesh: TreeMesh, replicated_over: Collection[str]) -> FindingLeaf:
    """Return a leaf of the finding, with its bytes as it is and sharded like the mesh could."""
    whole = replace(
        row,
        mesh=0,
        spec=Spec(()),
        shard_shape=row.shape,
        shard_nbytes=row.nbytes,
        replicas=mesh.device_count,
    )
    saving = avoidable(whole, mesh, replicated_over)
    then = (row.nbytes or 0) - saving.nbytes
    fix = finer_words(whole, saving, others=f"{mesh.device_count} devices") if saving.nbytes else "replicate"
    words = f"on {own.device_count} of {mesh.device_count} devices; {fix}"
    return replace(leaf_of(row, row.shard_nbytes, remedy=words), nbytes_after=then)


def _is_scalar_or_key(row: TreeRow) -> bool:
    """Return whether a leaf has at most one element, or contains PRNG keys."""
    is_raw_key = row.dtype == "uint32" and len(row.shape) in (1, 2) and row.shape[-1] in _KEY_SIZES
    is_small = math.prod(dim if isinstance(dim, int) else 2 for dim in row.shape) <= 1
    return row.is_key or is_raw_key or is_small
