"""Finding about leaves that are committed to different sets of devices."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from ..quantities import counted, format_devices
from ..reports.findings import Finding, Option, remedies
from ..reports.tree import TreeRow
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
    sets, chosen, listed = set[Hashable](), set[Hashable](), []
    for row in rows:
        if row.mesh is None or not row.is_committed or row.is_deleted:
            continue
        mesh, known = planned.report.meshes[row.mesh], planned.devices[row.mesh].ids
        found = mesh.devices if known is None else known.tolist()
        if found is None:
            continue  # those of a report from a file are not known
        ids = tuple(sorted(found))
        sets.add(ids)
        if row.spec is not None:
            chosen.add(ids)
        elif devices is None or len(ids) < devices:
            listed.append((row, ids))
    leaves = tuple(
        leaf_of(row, None, remedy=f"committed to {format_devices(None, ids)}")
        for row, ids in listed
        if ids not in chosen
    )
    if not leaves or len(sets) < 2:
        return None
    return Finding(
        kind="incompatible devices",
        problem=(
            f"{counted(len(leaves), 'leaf is', 'leaves are')} committed to devices that other leaves are not "
            "on: a jitted call with both raises an error."
        ),
        **remedies(
            "Put all leaves on the devices of one mesh: jax.device_put(x, NamedSharding(mesh, P())) replicates "
            "one. If they are for different calls, pass {devices} or list the paths in {ignore}.",
            devices=Option("devices", 1),
            ignore=Option("ignore"),
        ),
        leaves=leaves,
    )
