"""Traffic of a resharding: ``reshard_report``."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from ..compat import values
from ..compat.shardings import has_devices, is_named
from ..errors import LayoutError, SpecError
from ..layouts.layout import ShardingLayout
from ..layouts.spec import as_spec
from ..plans.plan import strict_problems
from ..reports.changes import ReshardReport, ReshardRow
from ..reports.tree import TreeMesh, TreeReport, TreeRow
from ..trees.plan import opened
from ..trees.specs import matched_paths, specs_by_path
from ..trees.tree_report import spec_error
from .places import (
    Place,
    PlacedLeaf,
    PlacedLeaves,
    PlacedMesh,
    Places,
    ReceivedBytes,
    has_leaves,
    is_without_devices,
    placed_leaves,
)


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
    found = dict(zip(paths, leaves, strict=True))
    targets = [found.get(row.path) for row in rows]
    if rows and found and not any(targets):
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
    if isinstance(entry, PlacedLeaf):
        return is_without_devices(entry)
    return values.is_sharding(entry) and not has_devices(entry)


def _resolved(
    source: PlacedLeaves, targets: Sequence[Entry], places: Places
) -> list[tuple[TreeRow, Place | None, Place | None]]:
    """Return each leaf with its places before and after; None where a place is not known.

    Raises:
        SpecError: If a target does not fit its leaf.
    """
    found: list[tuple[TreeRow, Place | None, Place | None]] = []
    problems: list[tuple[str, str]] = []
    only_mesh = _only_mesh(source, places)
    for leaf, entry in zip(source.leaves, targets, strict=True):
        before = after = places.of_leaf(leaf)
        if before is not None and entry is not None:
            try:
                after = _target_place(leaf.row, entry, before, only_mesh, places)
            except LayoutError as error:
                problems += [(leaf.row.path, text) for text in getattr(error, "problems", [str(error)])]
        found.append((leaf.row, before, after))
    if problems:
        raise spec_error(problems)
    return found


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
        after = places.of_target(row, entry)
        return before if after is not None and after.layout is None else after
    if values.is_sharding(entry):
        if is_named(entry):
            _require_valid(row, places.mesh(entry), entry.spec)
        return places.of_sharding(row, entry)
    mesh = before.mesh or only_mesh
    if mesh is None:
        raise SpecError(["the leaf has no mesh for its spec: pass a NamedSharding"])
    spec = as_spec(entry)
    _require_valid(row, mesh, spec)
    return places.of_spec(row, mesh, spec, before.memory_kind)


def _require_valid(row: TreeRow, mesh: PlacedMesh, spec: Any) -> None:
    shape: tuple[int, ...] = row.shape  # type: ignore[assignment]  # it has a size
    sizes, spec = mesh.axes.shape, as_spec(spec)
    if problems := strict_problems(shape, sizes, spec):
        raise SpecError(problems)


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
