"""Targets of leaves: where a resharding places each leaf of a tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...arrays.plans import strict_problems
from ...base.errors import LayoutError, SpecError
from ...compat.arrays import canonical_dtype_name
from ...compat.shardings import (
    has_devices,
    host_memory_kind,
    is_named,
)
from ...compat.values import is_sharding
from ...facts.reports.tree import TreeReport, TreeRow
from ...geometry.layouts.dtypes import bits_of_name, packed_nbytes
from ...geometry.layouts.spec import as_spec
from ...trees.specs import matched_paths, specs_by_path
from ...trees.tree_report import spec_error
from .places import Place, PlacedLeaf, PlacedLeaves, PlacedMesh, Places, has_leaves, placed_leaves

Entry = Any
"""The target of a leaf: a PlacedLeaf, a Sharding, a PartitionSpec or another sequence of names, or None."""


def targets_of(source: PlacedLeaves, target: Any) -> tuple[Sequence[Entry], int]:
    """Return the target of each leaf, and the number of those that are shorter than a spec for all leaves.

    Raises:
        SpecError: If the target does not fit the structure of the tree.
    """
    rows = [leaf.row for leaf in source.leaves]
    if not has_leaves(target):
        specs = specs_by_path(target, rows, source.side_paths, argument="target")
        return specs.entries, len(specs.shorter)
    leaves = placed_leaves(target).leaves
    paths = matched_paths([leaf.row for leaf in leaves], rows)
    by_path = dict(zip(paths, leaves, strict=True))
    targets = [by_path.get(row.path) for row in rows]
    if rows and by_path and not any(targets):
        raise SpecError(
            [
                f"the target has none of the paths of the tree: it has {paths[0]!r}, not {rows[0].path!r}. "
                "Pass a tree of the same structure, or one sharding for all leaves"
            ]
        )
    problems = [
        f"{row.path}: shape {target.row.shape} of the target is not {row.shape}: change the shapes first"
        for row, target in zip(rows, targets, strict=True)
        if target is not None and target.row.shape != row.shape
    ]
    if problems:
        raise SpecError(problems)
    return targets, target.shorter_count if type(target) is TreeReport else 0


def is_without_devices(entry: Entry) -> bool:
    """Return whether a leaf or a target is on positions in a mesh instead of on devices."""
    if not isinstance(entry, PlacedLeaf):
        return is_sharding(entry) and not has_devices(entry)
    if entry.sharding is not None:
        return not has_devices(entry.sharding)
    return entry.facts is None and entry.mesh is not None


def resolved(
    source: PlacedLeaves, targets: Sequence[Entry], places: Places
) -> list[tuple[TreeRow, Place | None, Place | None]]:
    """Return each leaf with its places before and after; None where a place is not known.

    A leaf without a sharding that gets one has the dtype that JAX gives to it.

    Raises:
        SpecError: If a target does not fit its leaf.
    """
    found: list[tuple[TreeRow, Place | None, Place | None]] = []
    problems: list[tuple[str, str]] = []
    now = [places.of_leaf(leaf) for leaf in source.leaves]
    meshes = {mesh.key: mesh for place in now if place is not None and (mesh := place.mesh) is not None}
    only_mesh = next(iter(meshes.values())) if len(meshes) == 1 else None
    for leaf, before, entry in zip(source.leaves, now, targets, strict=True):
        after = before
        if before is not None and entry is not None:
            try:
                after = _target_place(leaf.row, entry, before, only_mesh, places)
            except LayoutError as error:
                problems += [(leaf.row.path, text) for text in getattr(error, "problems", [str(error)])]
        row = leaf.row
        if before is not None and before.layout is None and after is not None and after.layout is not None:
            row = _canonical(row)
        found.append((row, before, after))
    if problems:
        raise spec_error(problems)
    return found


def _canonical(row: TreeRow) -> TreeRow:
    """Return a leaf with the dtype that JAX gives to a value of the host."""
    name = canonical_dtype_name(row.dtype)
    if name == row.dtype:
        return row
    nbytes = packed_nbytes(row.shape or (), bits_of_name(name))
    return replace(row, dtype=name, bits=None, nbytes=nbytes, shard_nbytes=nbytes)


def _target_place(
    row: TreeRow, entry: Entry, before: Place, only_mesh: PlacedMesh | None, places: Places
) -> Place | None:
    """Return the place of a leaf after the resharding.

    Raises:
        LayoutError: If the target does not fit the leaf.
    """
    if isinstance(entry, PlacedLeaf):
        if entry.row.uneven:
            raise SpecError(list(map(str, entry.row.uneven)))
        after = places.of_leaf(entry, row)
        return before if after is not None and after.layout is None else after
    if is_sharding(entry):
        if not is_named(entry):
            return places.of_sharding(row, entry)
        mesh, spec, memory_kind = places.mesh(entry), as_spec(entry.spec), host_memory_kind(entry)
    elif known := before.mesh or only_mesh:
        mesh, spec, memory_kind = known, as_spec(entry), before.memory_kind
    else:
        raise SpecError(["the leaf has no mesh for its spec: pass a NamedSharding"])
    shape: tuple[int, ...] = row.shape  # type: ignore[assignment]  # it has a size
    if problems := strict_problems(shape, mesh.axes.shape, spec):
        raise SpecError(problems)
    return places.of_spec(row, mesh, spec, memory_kind)
