"""Places of leaves: the devices and the memory that hold their shards."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays.boxes import content_of
from ...arrays.walk import leaf_of
from ...base.errors import LayoutError
from ...compat.arrays import attribute
from ...compat.processes import process_index
from ...compat.shardings import (
    device_assignment,
    device_processes,
    host_memory_kind,
    is_named,
    mesh_placement,
    sharding_layout,
)
from ...compat.values import ArrayFacts, is_sharding
from ...facts.reports.tree import TreeMesh, TreeReport, TreeRow
from ...geometry.layouts.layout import MAX_DEVICES, Processes, ShardingLayout, mesh_layout
from ...geometry.layouts.spec import MeshAxes, Spec, as_spec
from ...trees.leaves import is_tree, tree_leaves
from ...trees.same_sharding import shard_counts
from ...trees.tree_report import tree_report


class PlacedMesh(NamedTuple):
    """A mesh with the ids of its devices."""

    axes: MeshAxes
    ids: np.ndarray[Any, Any] | None = None
    """Device ids in the shape of the mesh; None for the positions 0…n-1."""
    processes: Processes | None = None
    """Devices by process; None if the processes are not known."""
    platform: str | None = None
    """Platform of the devices; None for positions."""
    mesh: Any = None
    """JAX's mesh; None for a mesh of a report."""

    @property
    def key(self) -> Hashable:
        """The axes and the devices: equal for equal meshes."""
        return self.axes.names, self.axes.sizes, None if self.ids is None else self.ids.tobytes()


class Place(NamedTuple):
    """The devices and the memory that hold the shards of a leaf."""

    layout: ShardingLayout | None
    """The slice of each device; None if no device holds any."""
    spec: Spec | None = None
    memory_kind: str | None = None
    """Memory kind in the host; None for the default memory of the devices."""
    processes: Processes | None = None
    """Devices by process; None if the processes are not known."""
    mesh: PlacedMesh | None = None
    sharding: Any = None
    """JAX's sharding, if it has no mesh with devices; None for a leaf of a report."""

    @property
    def order(self) -> NDArray[np.int64]:
        """Ids of the devices in JAX's order, for a place with a layout."""
        assert self.layout is not None
        if self.mesh is not None:
            ids = self.mesh.ids
            return np.arange(self.layout.device_ids.size) if ids is None else ids.ravel()
        if self.sharding is not None:
            devices = device_assignment(self.sharding, self.layout.shape)
            return np.array([device.id for device in devices], np.int64)
        return np.sort(self.layout.device_ids, axis=None)

    def of_jax(self) -> Any:
        """Return JAX's sharding of a place on devices."""
        if self.sharding is not None:
            return self.sharding
        from jax.sharding import NamedSharding, PartitionSpec

        assert self.mesh is not None
        assert self.spec is not None
        spec = PartitionSpec(*(names or None for names in self.spec.axes))
        return NamedSharding(self.mesh.mesh, spec, memory_kind=self.memory_kind)

    @property
    def platform(self) -> str | None:
        """Platform of the devices; None if it is not known."""
        return None if self.mesh is None else self.mesh.platform

    @property
    def process_count(self) -> int | None:
        """Number of processes with devices that hold shards; None if the processes are not known."""
        return None if self.processes is None else len(self.processes)


@dataclass(frozen=True, slots=True)
class PlacedLeaf:
    """A leaf, with its mesh and with its sharding if it is alive."""

    row: TreeRow
    mesh: TreeMesh | None
    sharding: Any = None
    """JAX's sharding; None for a leaf of a report."""
    dtype: Any = None
    """JAX's dtype; None for a leaf of a report."""
    facts: ArrayFacts | None = None
    """Facts about an array-like leaf, such as a Ref."""


class PlacedLeaves(NamedTuple):
    """The leaves of a tree."""

    leaves: list[PlacedLeaf]
    side_paths: tuple[str, ...] = ()
    """Paths at which the tree has no array."""
    name: str | None = None


def is_uncommitted(row: TreeRow) -> bool:
    """Return whether JAX places an array on other devices as it would a value of the host."""
    return row.kind == "array" and not row.is_committed


def has_leaves(value: Any) -> bool:
    """Return whether a value is a tree with leaves: a TreeReport, a container of arrays, or an array."""
    return type(value) is TreeReport or leaf_of(content_of(value)) is not None or is_tree(value)


def placed_leaves(tree: Any) -> PlacedLeaves:
    """Return the leaves of a tree or of a TreeReport."""
    report = tree_report(tree)
    meshes = [None if row.mesh is None else report.meshes[row.mesh] for row in report.rows]
    if type(tree) is TreeReport:
        return PlacedLeaves(list(map(PlacedLeaf, report.rows, meshes)), name=report.name)
    flattened = tree_leaves(tree)
    leaves = []
    for row, mesh, leaf in zip(report.rows, meshes, flattened.leaves, strict=True):
        sharding, dtype = (attribute(leaf.value, name) for name in ("sharding", "dtype"))
        facts = leaf.value if type(leaf.value) is ArrayFacts else None
        leaves.append(PlacedLeaf(row, mesh, sharding if is_sharding(sharding) else None, dtype, facts))
    return PlacedLeaves(leaves, flattened.side_paths)


class Places:
    """Finds the places of leaves, for one pair of trees.

    Args:
        are_positions: Whether to number the devices of each mesh by their positions, so that leaves that are
            alive can be compared with those of a report.
    """

    def __init__(self, *, are_positions: bool) -> None:
        self.are_positions = are_positions
        self._meshes: dict[int, tuple[Any, PlacedMesh]] = {}

    def of_leaf(self, leaf: PlacedLeaf, moved: TreeRow | None = None) -> Place | None:
        """Return the place of a leaf; None if it is not known.

        A leaf without a sharding, such as a NumPy array, is on no device.

        Args:
            leaf: The leaf. With ``moved``, it may be deleted, or of another dtype.
            moved: The leaf that is to have its sharding; None for itself.
        """
        row = leaf.row if moved is None or leaf.sharding is None else moved
        if row.nbytes is None or row.bits is None or row.is_deleted or row.kind == "tracer":
            return None
        host = row.memory_kind if row.is_in_host_memory else None
        if leaf.facts is not None and not self.are_positions:
            return _of_facts(leaf.facts, host)
        try:
            if leaf.sharding is not None:
                return self.of_sharding(row, leaf.sharding)
            return self._of_row(row, leaf.mesh, host)
        except LayoutError:
            return None

    def of_sharding(self, row: TreeRow, sharding: Any) -> Place | None:
        """Return the place of a leaf with a sharding; None if it is not known.

        Raises:
            LayoutError: If the sharding does not fit the leaf.
        """
        shape: tuple[int, ...] = row.shape  # type: ignore[assignment]  # it has a size
        host = host_memory_kind(sharding)
        if is_named(sharding):
            return self.of_spec(row, self.mesh(sharding), as_spec(sharding.spec), host)
        layout = sharding_layout(shape, sharding)
        if self.are_positions:
            ids = np.searchsorted(np.sort(layout.device_ids, axis=None), layout.device_ids)
            return Place(ShardingLayout(shape=shape, device_ids=ids), None, host)
        return Place(layout, None, host, device_processes(sharding), sharding=sharding)

    def of_spec(self, row: TreeRow, mesh: PlacedMesh, spec: Spec, memory_kind: str | None) -> Place | None:
        """Return the place of a leaf with a spec on a mesh; None for partial sums and unconstrained axes.

        Raises:
            LayoutError: If the spec does not fit the leaf.
        """
        if spec.unconstrained or spec.unreduced:
            return None
        shape: tuple[int, ...] = row.shape  # type: ignore[assignment]  # it has a size
        layout = mesh_layout(shape, mesh.axes.shape, spec.axes, mesh.ids)
        return Place(layout, spec, memory_kind, mesh.processes, mesh)

    def mesh(self, sharding: Any) -> PlacedMesh:
        """Return the mesh of a NamedSharding."""
        mesh = sharding.mesh
        if id(mesh) not in self._meshes:
            axes, ids, platform, _ = mesh_placement(mesh)
            is_placed = ids is not None and not self.are_positions
            placed = (ids, device_processes(sharding), platform, mesh) if is_placed else ()
            self._meshes[id(mesh)] = mesh, PlacedMesh(axes, *placed)  # kept, so that its id stays its own
        return self._meshes[id(mesh)][1]

    def _of_row(self, row: TreeRow, mesh: TreeMesh | None, memory_kind: str | None) -> Place | None:
        """Return the place of a leaf of a report, on positions in its mesh."""
        if mesh is None:
            return Place(None)
        if mesh.device_count > MAX_DEVICES:
            return None
        if mesh.axes is not None and row.spec is not None:
            return self.of_spec(row, PlacedMesh(mesh.axes), row.spec, memory_kind)
        shape, counts = row.shape, shard_counts(row)
        if counts is None or math.prod(counts) * row.replicas != mesh.device_count:
            return None
        ids = np.arange(mesh.device_count).reshape(*counts, row.replicas)
        return Place(ShardingLayout(shape=shape, device_ids=ids), None, memory_kind)  # type: ignore[arg-type]


def _of_facts(facts: ArrayFacts, memory_kind: str | None) -> Place | None:
    """Return the place of an array-like leaf, such as a Ref."""
    known = facts.known.sharding
    layout = known.layout
    if layout is None:
        return Place(None) if known.description is None else None
    processes = layout.processes or ((process_index(), known.devices.ids),)
    spec = known.description.spec if known.description else None
    return Place(layout, spec, memory_kind, processes)
