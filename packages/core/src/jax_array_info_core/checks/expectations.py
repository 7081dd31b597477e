"""Leaves with the sharding that a check expects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..compat import values
from ..compat.partition_specs import as_spec
from ..layouts.spec import MeshAxes, Spec
from ..reports.tree import TreeMesh, TreeRow
from ..trees.plan import PlannedTree
from ..trees.planner import Planner
from ..trees.rows import DeviceSets
from ..trees.spec_trees import specs_by_path


class Expectation(NamedTuple):
    """The leaves of a tree, each with its expected sharding."""

    rows: Mapping[str, TreeRow]
    """Each leaf by path. One that may have any sharding is as in the tree."""

    meshes: Sequence[TreeMesh]
    """The meshes of these rows."""

    problems: Mapping[str, str]
    """Problem of each expected spec that is invalid, by path."""

    def accepts_any(self, row: TreeRow) -> bool:
        """Return whether any sharding of a leaf is as expected."""
        return self.rows[row.path] is row and row.path not in self.problems


def expectation(expect: Any, planned: PlannedTree) -> Expectation:
    """Return the leaves of a tree with their expected shardings.

    A leaf without a mesh, such as a NumPy array, is expected on the mesh of the other leaves if they have one
    in common.

    Args:
        expect: A tree or prefix of specs and shardings, or PathRules.
        planned: The tree.

    Raises:
        SpecError: If ``expect`` does not fit the tree, or a pattern matches nothing.
    """
    rows, meshes = planned.report.rows, planned.report.meshes
    entries = specs_by_path(expect, rows, planned.side_paths, argument="expect")
    devices = DeviceSets()
    devices.sets = list(planned.devices)
    named = list(dict.fromkeys(mesh.axes for mesh in meshes if mesh.axes is not None))
    whole = MeshAxes(("devices",), (planned.report.device_count,))
    on_own = Planner(devices, None, None, has_specs=True)
    on_common = Planner(devices, named[0], None, has_specs=True) if len(named) == 1 else on_own
    on_all = Planner(devices, whole, None, has_specs=True)

    def expected(row: TreeRow, entry: Any) -> TreeRow:
        spec = None if entry is None or values.is_sharding(entry) else as_spec(entry)
        if spec is not None:
            entry = _without_surplus(spec, len(row.shape))
        if row.mesh is not None and meshes[row.mesh].axes is not None:
            return row if spec is not None and spec == row.spec else on_own.planned(row, entry)
        if not named and spec is not None and not any(spec.axes):
            return on_all.planned(row, entry)
        return on_common.planned(row, entry)

    by_path = {row.path: expected(row, entry) for row, entry in zip(rows, entries, strict=True)}
    problems: dict[str, str] = {}
    for planner in {id(planner): planner for planner in (on_own, on_common, on_all)}.values():
        for path, problem in planner.problems:
            problems[path] = f"{problems[path]}; {problem}" if path in problems else problem
    return Expectation(by_path, [found.mesh for found in devices.sets], problems)


def _without_surplus(spec: Spec, ndim: int) -> Spec:
    """Return a spec without entries of None beyond the axes of an array: a prefix fits leaves of any rank."""
    surplus = spec.axes[ndim:]
    is_empty = not any(surplus) and not any(axis >= ndim for axis in spec.unconstrained)
    return replace(spec, axes=spec.axes[:ndim]) if surplus and is_empty else spec
