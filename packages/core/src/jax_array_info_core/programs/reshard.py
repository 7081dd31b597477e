"""Reports on resharding a tree: what moves, and the memory that it needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..facts.reports.changes import ReshardReport, ReshardRow
from ..facts.reports.tree import TreeMesh, TreeReport
from ..geometry.layouts.layout import ShardingLayout
from ..trees.plan import opened
from .moves.places import Place, Places, placed_leaves
from .moves.targets import is_without_devices, resolved, targets_of
from .moves.traffic import ReceivedBytes


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
    targets, shorter = targets_of(source, target)
    are_reports = TreeReport in (type(tree), type(target))
    places = Places(are_positions=are_reports or any(map(is_without_devices, [*source.leaves, *targets])))
    pairs = resolved(source, targets, places)
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
