"""Reports on a tree as it is, on another mesh or with other specs."""

from __future__ import annotations

import itertools
import os
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..arrays.array_report import report_of_facts
from ..arrays.plans import planned_axes, spec_problems
from ..base.errors import SpecError, UnsupportedValueError
from ..base.notebooks import Displayed
from ..base.text import plain_text
from ..compat import values
from ..compat.shardings import is_named, mesh_placement, sharding_facts
from ..compat.values import ArrayFacts, KnownSharding
from ..facts.reports.array import ArrayReport, ShardingDescription
from ..facts.reports.tree import TreeMesh, TreeReport, TreeRow, UnmatchedAxes
from ..geometry.layouts.layout import mesh_layout
from ..geometry.layouts.spec import MeshAxes, Spec, as_spec, mesh_sizes
from .leaves import tree_leaves
from .rows import DeviceSet, DeviceSets, LeafRows, PlannedTree, row_like, row_of_report, rows_of_leaves
from .specs import LogicalAxes, LogicalRules, specs_by_path, specs_key
from .totals import tree_of_rows


class Planner:
    """Plans the rows of one tree.

    Args:
        devices: Device sets of the tree. That of the mesh is added.
        mesh: A Mesh, an AbstractMesh, the size of each mesh axis by name, or None for the mesh of each leaf.
        logical_axes: Rules for logical axis names.
        has_specs: Whether ``specs`` were passed, so that a leaf without a spec stays as it is.

    Raises:
        UnsupportedValueError: If ``mesh`` is not a mesh.
        SpecError: If ``logical_axes`` is not a list of rules, or ``mesh`` has no devices.
    """

    def __init__(
        self, devices: DeviceSets, mesh: Any, logical_axes: LogicalAxes | None, *, has_specs: bool
    ) -> None:
        self.problems: list[tuple[str, str]] = []
        self._devices = devices
        self._mesh = None if mesh is None else _mesh_index(mesh, devices)
        self.mesh = None if self._mesh is None else devices.sets[self._mesh].mesh
        """The mesh to plan for, if one was passed."""
        self._rules = None if logical_axes is None else LogicalRules(logical_axes)
        self._has_specs = has_specs
        self._has_leaves = False
        self._known: dict[Hashable, TreeRow] = {}
        """A planned row, by what leaves that are alike have in common."""

    def planned(self, row: TreeRow, entry: Any) -> TreeRow:
        """Return the row of a leaf with another spec or on another mesh.

        Args:
            row: The leaf as it is.
            entry: A PartitionSpec, a Spec or another sequence of names, a Sharding, or None.
        """
        if row.is_deleted or not all(isinstance(dim, int) for dim in row.shape):
            return row
        if values.is_sharding(entry):
            return self._sharded(row, entry)
        self._has_leaves = True
        index = row.mesh if self._mesh is None else self._mesh
        axes = None if index is None else self._devices.sets[index].mesh.axes
        spec = self._spec(row, entry, () if axes is None else axes.names)
        if spec is None:
            return row
        if index is None or axes is None:
            self.problems.append((row.path, "the leaf has no mesh for its spec: pass mesh="))
            return row
        return self._on_mesh(row, spec, index, axes)

    def plan(self, mesh: Any, specs: Any) -> tuple[Any, ...] | None:
        """Return what a plan depends on; None if it cannot be compared with that of another one."""
        rules = None if self._rules is None else self._rules.rules
        key = specs_key(specs)
        return None if key is None else (mesh if values.is_mesh(mesh) else None, self.mesh, key, rules)

    def unmatched_axes(self) -> UnmatchedAxes | None:
        """Return the logical axes that did not match, once all leaves are planned; None without rules.

        Raises:
            SpecError: If no rule matches a leaf.
        """
        return self._rules.unmatched() if self._rules is not None and self._has_leaves else None

    def _spec(self, row: TreeRow, entry: Any, mesh: tuple[str, ...]) -> Spec | None:
        """Return the spec of a leaf in names of mesh axes; None to leave the leaf as it is."""
        if entry is not None:
            try:
                spec = as_spec(entry)
            except (SpecError, TypeError) as error:
                self.problems.append((row.path, str(error)))
                return None
            return self._translated(row, spec, mesh, keeps_mesh_axes=True)
        if self._has_specs:
            return None
        if row.logical is not None and self._rules is not None:
            return self._translated(row, row.logical, mesh)
        if self._mesh is None:
            return None
        return row.spec or row.logical or Spec(())

    def _translated(
        self, row: TreeRow, spec: Spec, mesh: tuple[str, ...], *, keeps_mesh_axes: bool = False
    ) -> Spec:
        """Return the spec of a leaf with mesh axes in place of logical names."""
        if self._rules is None:
            return spec
        spec, problems = self._rules.spec_of(spec, mesh, keeps_mesh_axes=keeps_mesh_axes)
        self.problems += [(row.path, problem) for problem in problems]
        return spec

    def _on_mesh(self, row: TreeRow, spec: Spec, index: int, axes: MeshAxes) -> TreeRow:
        """Return the row of a leaf with a spec on a mesh."""
        key = (row.shape, row.dtype, spec, index, row.memory_kind, row.is_in_host_memory, row.nbytes)
        planned = self._known.get(key)
        if planned is None:
            shape: tuple[int, ...] = row.shape  # type: ignore[assignment]  # checked by the caller
            problems = spec_problems(shape, axes.shape, spec)
            is_own = spec is row.spec
            remedy = ". This is the spec of the leaf: pass specs for the new mesh" if is_own else ""
            self.problems += [(row.path, f"{problem}{remedy}") for problem in problems]
            if problems:
                spec = _valid_part(spec, axes, len(shape))
            layout = mesh_layout(shape, axes.shape, spec.axes, unreduced=spec.unreduced)
            report = ArrayReport(
                name=None,
                kind="planned",
                type_name="planned",
                shape=shape,
                dtype=row.dtype,
                bits=row.bits,
                nbytes=row.nbytes_of(shape),
                shard_nbytes=row.nbytes_of(layout.shard_shape),
                source="array",
                sharding=ShardingDescription(type="NamedSharding", spec=spec, mesh=axes),
                layout=layout,
            )
            planned = replace(
                row_of_report("", report, self._devices, index=index),
                memory_kind=row.memory_kind,
                is_in_host_memory=row.is_in_host_memory,
            )
            if not problems:  # each leaf reports its own
                self._known[key] = planned
        return _with_identity(row, planned)

    def _sharded(self, row: TreeRow, sharding: Any) -> TreeRow:
        """Return the row of a leaf with another sharding."""
        shape: tuple[int, ...] = row.shape  # type: ignore[assignment]  # checked by the caller
        key = (id(sharding), shape, row.dtype, row.bits)
        if key not in self._known:
            if is_named(sharding):
                sizes = {plain_text(name): int(size) for name, size in sharding.mesh.shape.items()}
                if problems := spec_problems(shape, sizes, as_spec(sharding.spec)):
                    self.problems += [(row.path, problem) for problem in problems]
                    return row
            known = KnownSharding(source="array", sharding=sharding_facts(sharding, shape))
            report = report_of_facts(
                ArrayFacts(
                    kind="planned",
                    type_name="planned",
                    shape=shape,
                    dtype=row.dtype,
                    bits=row.bits,
                    known=known,
                )
            )
            if report.layout is None:
                self.problems.append((row.path, f"{type(sharding).__name__} does not fit shape {shape}"))
                return row
            self._known[key] = row_of_report("", report, self._devices)
        return _with_identity(row, self._known[key])


_IDENTITY = ("path", "full_path", "logical", "variable", "weak_type", "same_as", "statistics")


def _with_identity(row: TreeRow, planned: TreeRow) -> TreeRow:
    """Return a row with new facts about its sharding, and the path and the identity of another."""
    return row_like(planned, **{name: getattr(row, name) for name in _IDENTITY})


def _valid_part(spec: Spec, axes: MeshAxes, ndim: int) -> Spec:
    """Return a spec without unknown and repeated names and without entries beyond the axes of the array."""
    unused = {name for name, size in axes.shape.items() if size > 0}
    entries = []
    for names in spec.axes[:ndim]:
        entries.append(tuple(name for name in dict.fromkeys(names) if name in unused))
        unused.difference_update(names)
    return Spec(tuple(entries), tuple(axis for axis in spec.unconstrained if axis < ndim))


def _mesh_index(mesh: Any, devices: DeviceSets) -> int:
    """Return the index of the devices of a Mesh, an AbstractMesh or a mapping of sizes."""
    if isinstance(mesh, MeshAxes):
        return devices.add_mesh(mesh)
    if not values.is_mesh(mesh) or not mesh.axis_names:
        sizes = mesh_sizes(mesh)
        if problems := spec_problems((), sizes, ()):
            raise SpecError(problems)
        return devices.add_mesh(planned_axes(sizes))
    axes, ids, platform, processes = mesh_placement(mesh)
    if ids is None:
        return devices.add_mesh(axes)
    ascending = np.sort(ids, axis=None)
    placed = TreeMesh(
        axes=axes, device_count=ids.size, platform=platform, process_count=max(1, len(processes))
    )
    return devices.add((axes, tuple(ascending.tolist())), DeviceSet(placed, ascending, processes))


class TreeRows(NamedTuple):
    """The rows of a tree before its totals."""

    rows: Sequence[TreeRow]
    devices: DeviceSets
    type_name: str
    others: int
    other_paths: Sequence[str]
    name: str | None
    side_paths: tuple[str, ...] = ()
    """Paths at which the tree has no array: other leaves, and containers without entries."""
    objects: Sequence[tuple[str, Any]] = ()
    """Path and value of each leaf that is neither an array nor a number, a string or None."""
    known: LeafRows | None = None
    """The rows as they are kept for the next call; None for a report."""


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
        tree: A tree, a TreeReport, or the path of a file or a directory, as for ``load_tree``.
        name: Name of the tree.
        mesh: A Mesh, an AbstractMesh, or the size of each mesh axis by name.
        specs: Spec or sharding of each leaf, as in ``tree_report``.
        logical_axes: Rules for logical axis names, as in ``tree_report``.

    Raises:
        SpecError: If ``specs`` does not fit the structure of the tree, or a pattern or all rules of
            ``logical_axes`` match nothing.
        UnsupportedValueError: If ``mesh`` is not a mesh.
    """
    tree = opened(tree)
    title = None if name is None else plain_text(name)
    is_plan = mesh is not None or specs is not None or logical_axes is not None
    planned = _planned(tree, mesh, specs, logical_axes) if is_plan else _as_it_is(tree)
    return planned if title is None else replace(planned, report=replace(planned.report, name=title))


def _planned(tree: Any, mesh: Any, specs: Any, logical_axes: LogicalAxes | None) -> PlannedTree:
    """Return a planned tree. Its report is the same object while the leaves and the plan stay alike."""
    leaves = _rows_of_tree(tree)
    planner = Planner(leaves.devices, mesh, logical_axes, has_specs=specs is not None)
    plan = None if leaves.known is None else planner.plan(mesh, specs)
    if leaves.known is not None and leaves.known.planned is not None and plan == leaves.known.planned[0]:
        return replace(leaves.known.planned[1], objects=leaves.objects)
    wanted = specs_by_path(specs, leaves.rows, leaves.side_paths)
    rows, devices = used_sets(
        [planner.planned(row, spec) for row, spec in zip(leaves.rows, wanted.entries, strict=True)],
        leaves.devices.sets,
    )
    report = tree_of_rows(
        rows,
        devices,
        name=leaves.name,
        type_name=leaves.type_name,
        others=leaves.others,
        other_paths=leaves.other_paths,
        unmatched_axes=planner.unmatched_axes(),
        shorter_count=len(wanted.shorter),
    )
    sets = leaves.devices.sets
    unspecified = {
        row.path: (row, sets[row.mesh].mesh)
        for row in leaves.rows
        if mesh is not None and specs is None and row.mesh is not None and row.spec is row.logical is None
    }
    planned = PlannedTree(
        report,
        tuple(planner.problems),
        tuple(devices),
        leaves.side_paths,
        leaves.objects,
        planner.mesh,
        unspecified,
        (leaves.rows, sets),
    )
    if leaves.known is not None and plan is not None:
        leaves.known.planned = plan, replace(planned, objects=())  # keeps no leaf alive
    return planned


def _as_it_is(tree: Any) -> PlannedTree:
    """Return a tree without a plan. Its report is the same object for as long as the leaves stay alike."""
    if type(tree) is TreeReport:
        return PlannedTree(tree, (), tuple(_sets_of(tree)))
    leaves = tree_leaves(tree)
    kept, others = rows_of_leaves(leaves), len(leaves.other_paths)
    report = kept.report
    if report is None or report.type_name != leaves.type_name or report.others != others:
        report = kept.report = tree_of_rows(
            kept.rows,
            kept.devices.sets,
            type_name=leaves.type_name,
            others=others,
            other_paths=leaves.other_paths,
        )
    return PlannedTree(report, (), tuple(kept.devices.sets), leaves.side_paths, leaves.objects)


def _rows_of_tree(tree: Any) -> TreeRows:
    """Return the rows of a tree or of a TreeReport."""
    if type(tree) is TreeReport:
        devices = DeviceSets()
        devices.sets = _sets_of(tree)
        return TreeRows(tree.rows, devices, tree.type_name, tree.others, tree.other_paths, tree.name)
    leaves = tree_leaves(tree)
    known, others = rows_of_leaves(leaves), leaves.other_paths
    return TreeRows(
        known.rows,
        known.devices.copy(),
        leaves.type_name,
        len(others),
        others,
        None,
        leaves.side_paths,
        leaves.objects,
        known,
    )


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


def opened(tree: Any) -> Any:
    """Return a tree; of a str or a path, the TreeReport of that file or directory, as ``load_tree`` does.

    Every function that takes a tree opens it first: as a leaf, a path would be a tree without arrays.

    Raises:
        FileFormatError: (a ValueError) If the file cannot be read, or its format is not known.
        FileNotFoundError: (an OSError) If it does not exist.
        UnsupportedValueError: (a ValueError) If it is a report on something else than a tree.
    """
    if not issubclass(type(tree), str | os.PathLike):
        if issubclass(type(tree), Displayed) and type(tree) is not TreeReport:
            raise UnsupportedValueError(f"expected a tree of arrays or a TreeReport, got {type(tree)}")
        return tree
    from .files import load_tree

    return load_tree(tree)
