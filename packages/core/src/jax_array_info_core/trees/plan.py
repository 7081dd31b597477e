"""Reports on a tree as it is, on another mesh or with other specs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ..reports.tree import TreeMesh, TreeReport, TreeRow
from ..text import plain_text
from .leaves import tree_leaves
from .logical_axes import LogicalAxes
from .planner import Planner
from .rows import DeviceSet, DeviceSets
from .rows_of_leaves import rows_of_leaves
from .spec_trees import specs_by_path
from .totals import tree_of_rows


class TreeRows(NamedTuple):
    """The rows of a tree before its totals."""

    rows: Sequence[TreeRow]
    devices: DeviceSets
    type_name: str
    others: int
    name: str | None
    side_paths: tuple[str, ...] = ()
    """Paths at which the tree has no array: other leaves, and containers without entries."""
    objects: Sequence[tuple[str, Any]] = ()
    """Path and value of each leaf that is neither an array nor a number, a string or None."""


@dataclass(frozen=True, slots=True)
class PlannedTree:
    """A planned tree, with the problems of its specs."""

    report: TreeReport
    """The report. Where a spec is invalid, the names that cause the problem are left out."""

    problems: tuple[tuple[str, str], ...]
    """Path and problem of each invalid spec."""

    devices: tuple[DeviceSet, ...]
    """The device sets to which ``TreeRow.mesh`` refers."""

    side_paths: tuple[str, ...] = ()
    """Paths at which the tree has no array."""

    objects: Sequence[tuple[str, Any]] = ()
    """Path and value of each leaf that is neither an array nor a number, a string or None."""

    mesh: TreeMesh | None = None
    """The mesh to plan for, if one was passed."""

    unspecified: Mapping[str, tuple[TreeRow, TreeMesh]] = field(default_factory=dict)
    """Leaves that have a sharding without a spec, and that are planned as replicated only because a mesh was
    passed: each as it is, with its devices, by path."""


def plan_tree(
    tree: Any,
    name: str | None = None,
    *,
    mesh: Any = None,
    specs: Any = None,
    logical_axes: LogicalAxes | None = None,
) -> PlannedTree:
    """Return the report of a tree on another mesh or with other specs, with the problems of the specs.

    Args:
        tree: A tree, or a TreeReport.
        name: Name of the tree.
        mesh: A Mesh, an AbstractMesh, or the size of each mesh axis by name.
        specs: Spec or sharding of each leaf, as in ``tree_report``.
        logical_axes: Rules for logical axis names, as in ``tree_report``.

    Raises:
        SpecError: If ``specs`` does not fit the structure of the tree, or a pattern or all rules of
            ``logical_axes`` match nothing.
        UnsupportedValueError: If ``mesh`` is not a mesh.
    """
    title = None if name is None else plain_text(name)
    if mesh is None and specs is None and logical_axes is None:
        as_it_is = _as_it_is(tree)
        return as_it_is if title is None else replace(as_it_is, report=replace(as_it_is.report, name=title))
    found = _rows_of_tree(tree)
    planner = Planner(found.devices, mesh, logical_axes, has_specs=specs is not None)
    wanted = specs_by_path(specs, found.rows, found.side_paths)
    rows, devices = used_sets(
        [planner.planned(row, spec) for row, spec in zip(found.rows, wanted, strict=True)], found.devices.sets
    )
    report = tree_of_rows(
        rows,
        devices,
        name=found.name if title is None else title,
        type_name=found.type_name,
        others=found.others,
    )
    report = replace(report, unmatched_axes=planner.unmatched_axes())
    sets = found.devices.sets
    unspecified = {
        row.path: (row, sets[row.mesh].mesh)
        for row in found.rows
        if mesh is not None and specs is None and row.mesh is not None and row.spec is row.logical is None
    }
    return PlannedTree(
        report,
        tuple(planner.problems),
        tuple(devices),
        found.side_paths,
        found.objects,
        planner.mesh,
        unspecified,
    )


def _as_it_is(tree: Any) -> PlannedTree:
    """Return a tree without a plan. Its report is the same object for as long as the leaves stay alike."""
    if type(tree) is TreeReport:
        return PlannedTree(tree, (), tuple(_sets_of(tree)))
    leaves = tree_leaves(tree)
    found, others = rows_of_leaves(leaves), len(leaves.other_paths)
    report = found.report
    if report is None or report.type_name != leaves.type_name or report.others != others:
        report = found.report = tree_of_rows(
            found.rows, found.devices.sets, type_name=leaves.type_name, others=others
        )
    sides = (*leaves.other_paths, *leaves.empty_paths)
    return PlannedTree(report, (), tuple(found.devices.sets), sides, leaves.objects)


def _rows_of_tree(tree: Any) -> TreeRows:
    """Return the rows of a tree or of a TreeReport."""
    if type(tree) is TreeReport:
        devices = DeviceSets()
        devices.sets = _sets_of(tree)
        return TreeRows(tree.rows, devices, tree.type_name, tree.others, tree.name)
    leaves = tree_leaves(tree)
    found = rows_of_leaves(leaves)
    sides = (*leaves.other_paths, *leaves.empty_paths)
    others = len(leaves.other_paths)
    return TreeRows(found.rows, found.devices.copy(), leaves.type_name, others, None, sides, leaves.objects)


def _sets_of(report: TreeReport) -> list[DeviceSet]:
    """Return the device sets of a report, without device ids: disjoint ones, or else ones that overlap."""
    sets = [DeviceSet(mesh, None) for mesh in report.meshes]
    if len(sets) == 1 or sum(mesh.device_count for mesh in report.meshes) != report.device_count:
        return sets
    starts = itertools.accumulate((mesh.device_count for mesh in report.meshes), initial=0)
    return [
        DeviceSet(mesh, np.arange(start, start + mesh.device_count))
        for mesh, start in zip(report.meshes, starts, strict=False)
    ]


def used_sets(
    rows: Sequence[TreeRow], sets: Sequence[DeviceSet]
) -> tuple[Sequence[TreeRow], Sequence[DeviceSet]]:
    """Return the rows with only the device sets that they use, in the order of use."""
    order = list(dict.fromkeys(row.mesh for row in rows if row.mesh is not None))
    if order == list(range(len(sets))):
        return rows, sets
    place = {index: number for number, index in enumerate(order)}
    moved = [row if row.mesh is None else replace(row, mesh=place[row.mesh]) for row in rows]
    return moved, [sets[index] for index in order]
