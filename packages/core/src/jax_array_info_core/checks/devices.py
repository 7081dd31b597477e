"""Finding about leaves that are committed to different sets of devices."""

from __future__ import annotations

from collections.abc import Iterable

from ..quantities import counted, format_devices
from ..reports.findings import Finding, Option, remedies
from ..reports.tree import TreeMesh, TreeRow
from ..trees.plan import PlannedTree
from .findings import leaf_of


def incompatible_devices(
    rows: Iterable[TreeRow], planned: PlannedTree, devices: int | None
) -> Finding | None:
    """Return the finding on leaves that JAX refuses in one call, as they are committed to different devices.

    The devices of meshes are a choice, as in a pipeline: only leaves on other devices are listed. A plan for
    another mesh places all leaves.

    Args:
        rows: The leaves that the finding may be about.
        planned: The tree.
        devices: Number of devices that a leaf may be on, whatever the others are on; None for no such number.
    """
    placed = [row for row in rows if row.mesh is not None and row.is_committed and not row.is_deleted]
    used = dict.fromkeys(row.mesh for row in placed if row.mesh is not None)
    ids = {number: _ids(planned, number) for number in used}
    are_known = None not in ids.values()
    # Of a report from a file, only the numbers of devices may be known.
    keys = {
        number: ids[number] if are_known else planned.report.meshes[number].device_count for number in used
    }
    chosen = {keys[row.mesh] for row in placed if row.mesh is not None and row.spec is not None}
    leaves = tuple(
        leaf_of(row, None, remedy=f"committed to {_words(ids[row.mesh], planned.report.meshes[row.mesh])}")
        for row in placed
        if row.mesh is not None
        and row.spec is None
        and keys[row.mesh] not in chosen
        and (devices is None or planned.report.meshes[row.mesh].device_count < devices)
    )
    if not leaves or len({*keys.values()}) < 2:
        return None
    return Finding(
        kind="incompatible devices",
        problem=(
            f"{counted(len(leaves), 'leaf is', 'leaves are')} committed to devices that other leaves are not "
            "on: a jitted call with both raises an error."
        ),
        **remedies(
            "Put all leaves on the devices of one mesh: jax.device_put(x, NamedSharding(mesh, P())) "
            "replicates one. If they are for different calls, pass {devices} or list the paths in {ignore}.",
            devices=Option("devices", 1),
            ignore=Option("ignore"),
        ),
        leaves=leaves,
    )


def _ids(planned: PlannedTree, number: int) -> tuple[int, ...] | None:
    """Return the ids of the devices of a set, ascending; None if they are not known."""
    mesh, known = planned.report.meshes[number], planned.devices[number].ids
    found = mesh.devices if known is None else known.tolist()
    return None if found is None else tuple(sorted(found))


def _words(ids: tuple[int, ...] | None, mesh: TreeMesh) -> str:
    return counted(mesh.device_count, "device", "devices") if ids is None else format_devices(None, ids)
