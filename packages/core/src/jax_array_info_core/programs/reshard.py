"""Traffic of a resharding: the places of leaves, and the bytes that each device receives."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.boxes import content_of
from ..arrays.plans import strict_problems
from ..arrays.walk import leaf_of
from ..base.errors import LayoutError, SpecError
from ..compat.arrays import attribute
from ..compat.processes import process_index
from ..compat.shardings import (
    device_processes,
    has_devices,
    host_memory_kind,
    is_named,
    mesh_placement,
    sharding_layout,
)
from ..compat.values import ArrayFacts, is_sharding
from ..facts.reports.changes import ReshardReport, ReshardRow
from ..facts.reports.tree import TreeMesh, TreeReport, TreeRow
from ..geometry.layouts.layout import MAX_DEVICES, Processes, ShardingLayout, mesh_layout
from ..geometry.layouts.spec import MeshAxes, Spec, as_spec
from ..geometry.layouts.traffic import HeldShards, held_shards, missing_elements, missing_in_process
from ..trees.leaves import is_tree, tree_leaves
from ..trees.plan import opened
from ..trees.same_sharding import shard_counts
from ..trees.specs import matched_paths, specs_by_path
from ..trees.tree_report import spec_error, tree_report


def reshard_report(tree: Any, target: Any) -> ReshardReport:
    """Return the bytes that devices must receive to reshard a tree. Nothing is moved or allocated.

    Each device receives the slices of its target shard that it does not already hold. A device that holds
    nothing receives its whole shard; so does every device from a NumPy array, an abstract leaf without a
    sharding, and host memory. Leaves without a target stay, and an array at several paths counts once.

    Args:
        tree: A tree of arrays or ShapeDtypeStructs, a TreeReport, or a path, as for ``load_tree``.
        target: A sharding or PartitionSpec, a tree or prefix of these as ``in_shardings`` of ``jax.jit``
            takes, ``PathRules``, or a tree, a TreeReport or a path whose leaves have shardings. A
            PartitionSpec is on the mesh of its leaf; if that has none, on the only mesh of the tree. Leaves
            with fewer axes than one for all leaves are replicated, as in ``tree_report``. For
            another mesh, pass ``tree_report(tree, mesh=…)``. If one of the two trees is a TreeReport, a path
            or on an AbstractMesh, devices are numbered by their positions in the mesh, in both.

    Raises:
        SpecError: (a ValueError) If the target does not fit the tree, or does not divide an array evenly,
            which ``jax.device_put`` refuses. The message lists every problem, with the path of the leaf.

    >>> from jax.sharding import PartitionSpec as P
    >>> import jax, jax.numpy as jnp
    >>> from jax_array_info_core import tree_report
    >>> w = jax.ShapeDtypeStruct((8192, 8192), jnp.float32)
    >>> planned = tree_report({"w": w}, mesh={"d": 8}, specs={"w": P("d")})
    >>> report = reshard_report(planned, {"w": P(None, "d")})
    >>> report.device_nbytes, report.nbytes
    (29360128, 234881024)
    """
    tree, target = opened(tree), opened(target)
    source = placed_leaves(tree)
    targets, shorter = _targets(source, target)
    are_reports = TreeReport in (type(tree), type(target))
    places = Places(are_positions=are_reports or any(map(_is_without_devices, [*source.leaves, *targets])))
    pairs = _resolved(source, targets, places)
    rows, received, skipped, restored = [], ReceivedBytes(), 0, 0
    done: dict[str, set[tuple[ShardingLayout, str | None]]] = {}
    for row, before, after in pairs:
        if before is None or after is None:
            skipped += 1
            continue
        if after.layout is None:  # a leaf without a sharding that stays
            continue
        # The same array at another path moves only if it has another target.
        moved_to = done.setdefault(row.path if row.same_as is None else row.same_as, set())
        if (after.layout, after.memory_kind) in moved_to:
            continue
        moved_to.add((after.layout, after.memory_kind))
        restored += row.nbytes_of(after.layout.shard_shape) or 0
        moved = received.add(row, before, after)
        if moved.nbytes:
            rows.append(
                ReshardRow(
                    path=row.path,
                    shape=row.shape,
                    dtype=row.dtype,
                    before=before.spec,
                    after=after.spec,
                    device_nbytes=moved.device_nbytes,
                    nbytes=moved.nbytes,
                    process_nbytes=moved.process_nbytes,
                )
            )
    device_count, device_nbytes = received.totals()
    parts = [row.process_nbytes for row in rows if row.process_nbytes is not None]
    are_known = len(parts) == len(rows) and not places.are_positions
    return ReshardReport(
        name=source.name,
        meshes_before=_meshes(before for _, before, after in pairs if after is not None),
        meshes_after=_meshes(after for _, before, after in pairs if before is not None),
        rows=tuple(rows),
        unmoved_count=len(source.leaves) - len(rows) - skipped,
        skipped_count=skipped,
        device_count=max(1, device_count),
        device_nbytes=device_nbytes,
        nbytes=sum(row.nbytes for row in rows),
        restored_nbytes=restored,
        shorter_count=shorter,
        process_nbytes=sum(parts) if are_known else None,
    )


def _meshes(places: Iterable[Place | None]) -> tuple[TreeMesh, ...]:
    """Return the meshes and the sets of devices of some places, each kind once."""
    kinds = (
        TreeMesh(axes=place.mesh and place.mesh.axes, device_count=place.layout.device_ids.size)
        for place in places
        if place is not None and place.layout is not None
    )
    return tuple(dict.fromkeys(kinds))


Entry = Any
"""The target of a leaf: a PlacedLeaf, a Sharding, a PartitionSpec or another sequence of names, or None."""


def _targets(source: PlacedLeaves, target: Any) -> tuple[Sequence[Entry], int]:
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


def _is_without_devices(entry: Entry) -> bool:
    """Return whether a leaf or a target is on positions in a mesh instead of on devices."""
    if not isinstance(entry, PlacedLeaf):
        return is_sharding(entry) and not has_devices(entry)
    if entry.sharding is not None:
        return not has_devices(entry.sharding)
    return entry.facts is None and entry.mesh is not None


def _resolved(
    source: PlacedLeaves, targets: Sequence[Entry], places: Places
) -> list[tuple[TreeRow, Place | None, Place | None]]:
    """Return each leaf with its places before and after; None where a place is not known.

    Raises:
        SpecError: If a target does not fit its leaf.
    """
    resolved: list[tuple[TreeRow, Place | None, Place | None]] = []
    problems: list[tuple[str, str]] = []
    only_mesh = _only_mesh(source, places)
    for leaf, entry in zip(source.leaves, targets, strict=True):
        before = after = places.of_leaf(leaf)
        if before is not None and entry is not None:
            try:
                after = _target_place(leaf.row, entry, before, only_mesh, places)
            except LayoutError as error:
                problems += [(leaf.row.path, text) for text in getattr(error, "problems", [str(error)])]
        resolved.append((leaf.row, before, after))
    if problems:
        raise spec_error(problems)
    return resolved


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


def _only_mesh(source: PlacedLeaves, places: Places) -> PlacedMesh | None:
    """Return the mesh of a tree, if it has exactly one."""
    meshes: dict[Hashable, PlacedMesh] = {}
    for leaf in source.leaves:
        if leaf.sharding is not None and is_named(leaf.sharding):
            try:
                mesh = places.mesh(leaf.sharding)
            except LayoutError:  # the mesh is empty
                continue
        elif leaf.mesh is not None and leaf.mesh.axes is not None and leaf.facts is None:
            mesh = PlacedMesh(leaf.mesh.axes, None, None)
        else:
            continue
        key = (mesh.axes.names, mesh.axes.sizes, None if mesh.ids is None else mesh.ids.tobytes())
        meshes.setdefault(key, mesh)
    return next(iter(meshes.values())) if len(meshes) == 1 else None


class PlacedMesh(NamedTuple):
    """A mesh with the ids of its devices."""

    axes: MeshAxes
    ids: np.ndarray[Any, Any] | None
    """Device ids in the shape of the mesh; None for the positions 0…n-1."""
    processes: Processes | None
    """Devices by process; None if the processes are not known."""


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


@dataclass(frozen=True, slots=True)
class PlacedLeaf:
    """A leaf, with its mesh and with its sharding if it is alive."""

    row: TreeRow
    mesh: TreeMesh | None
    sharding: Any = None
    """JAX's sharding; None for a leaf of a report."""
    facts: ArrayFacts | None = None
    """Facts about an array-like leaf, such as a Ref."""


class PlacedLeaves(NamedTuple):
    """The leaves of a tree."""

    leaves: list[PlacedLeaf]
    side_paths: tuple[str, ...] = ()
    """Paths at which the tree has no array."""
    name: str | None = None


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
        if type(leaf.value) is ArrayFacts:
            leaves.append(PlacedLeaf(row, mesh, facts=leaf.value))
        else:
            sharding = attribute(leaf.value, "sharding")
            leaves.append(PlacedLeaf(row, mesh, sharding if is_sharding(sharding) else None))
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
        if row.nbytes is None or row.is_deleted or row.kind == "tracer":
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
        return Place(layout, None, host, device_processes(sharding))

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
            axes, ids, _, _ = mesh_placement(mesh)
            placed = PlacedMesh(axes, None, None)
            if ids is not None and not self.are_positions:
                placed = PlacedMesh(axes, ids, device_processes(sharding))
            self._meshes[id(mesh)] = mesh, placed  # kept, so that its id stays its own
        return self._meshes[id(mesh)][1]

    def _of_row(self, row: TreeRow, mesh: TreeMesh | None, memory_kind: str | None) -> Place | None:
        """Return the place of a leaf of a report, on positions in its mesh."""
        if mesh is None:
            return Place(None)
        if mesh.device_count > MAX_DEVICES:
            return None
        if mesh.axes is not None and row.spec is not None:
            return self.of_spec(row, PlacedMesh(mesh.axes, None, None), row.spec, memory_kind)
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


_INT64_SUM = 2**62


class Moved(NamedTuple):
    """Bytes that devices receive of one leaf."""

    device_nbytes: int
    """Bytes that the device which receives the most must receive."""
    nbytes: int
    """Bytes that all devices together must receive."""
    process_nbytes: int | None
    """Bytes that come from other processes; None if the processes are not known."""
    each: NDArray[Any]
    """Bytes that each device of the target receives."""


class ReceivedBytes:
    """Sums of the bytes that each device receives.

    Leaves of the same shape that move in the same way are computed once.
    """

    def __init__(self) -> None:
        self._held: dict[Hashable, HeldShards] = {}
        self._moved: dict[Hashable, Moved] = {}
        self._owners: dict[int, tuple[Processes, NDArray[np.int64], NDArray[np.int64]]] = {}
        self._sums: dict[int, tuple[HeldShards, NDArray[Any]]] = {}
        self._bound = 0

    def add(self, row: TreeRow, before: Place, after: Place) -> Moved:
        """Add the bytes of a leaf, and return them. The place after has a layout."""
        assert after.layout is not None
        have = None if before.layout is None else self._shards(before.layout)
        want = self._shards(after.layout)
        is_other_memory = before.memory_kind != after.memory_kind
        has_owners = before.processes is not None and after.processes is not None
        key = (row.shape, row.dtype, row.nbytes, id(have), id(want), is_other_memory, has_owners)
        moved = self._moved.get(key)
        if moved is None:
            shape: tuple[int, ...] = row.shape  # type: ignore[assignment]  # it has a size
            bits = row.bits or 0
            received = _nbytes(missing_elements(shape, None if is_other_memory else have, want), bits)
            foreign: int | None = None
            if after.processes is not None and have is None:
                foreign = 0  # the data come from the host
            elif after.processes is not None and before.processes is not None and have is not None:
                owners = self._owners_of(before.processes, have), self._owners_of(after.processes, want)
                foreign = _sum(_nbytes(missing_in_process(shape, have, want, *owners), bits))
            moved = self._moved[key] = Moved(int(max(received)), _sum(received), foreign, received)
        self._bound += moved.device_nbytes
        sums = self._sums.get(id(want), (want, np.zeros(len(want.ids), np.int64)))[1]
        if self._bound >= _INT64_SUM:
            sums = sums.astype(object)
        self._sums[id(want)] = want, sums + moved.each
        return moved

    def totals(self) -> tuple[int, int]:
        """Return the number of devices, and the bytes on the one that receives the most."""
        if not self._sums:
            return 0, 0
        ids = np.unique(np.concatenate([want.ids for want, _ in self._sums.values()]))
        totals = np.zeros(len(ids), object if self._bound >= _INT64_SUM else np.int64)
        for want, sums in self._sums.values():
            totals[np.searchsorted(ids, want.ids)] += sums
        return len(ids), int(max(totals))

    def _shards(self, layout: ShardingLayout) -> HeldShards:
        """Return the shard on each device, the same object for layouts with the same device ids."""
        key = (layout.device_ids.shape, layout.device_ids.tobytes())
        if key not in self._held:
            self._held[key] = held_shards(layout)
        return self._held[key]

    def _owners_of(self, processes: Processes, shards: HeldShards) -> NDArray[np.int64]:
        """Return the process of each device."""
        if id(processes) not in self._owners:
            ids = np.concatenate([np.array(devices, np.int64) for _, devices in processes])
            owners = np.repeat([owner for owner, _ in processes], [len(devices) for _, devices in processes])
            order = np.argsort(ids)
            self._owners[id(processes)] = processes, ids[order], owners[order]
        _, ids, owners = self._owners[id(processes)]
        return owners[np.searchsorted(ids, shards.ids)]


def _nbytes(elements: NDArray[Any], bits: int) -> NDArray[Any]:
    return -(-elements * bits // 8)


def _sum(received: NDArray[Any]) -> int:
    is_small = int(max(received)) * len(received) < _INT64_SUM
    return int(received.sum()) if is_small else sum(received.tolist())
