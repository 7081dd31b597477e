"""Reports on resharding a tree: what moves, and the memory that it needs."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..base.errors import UnsupportedValueError
from ..base.text import plain_text
from ..compat.topology_names import DEVICE_NBYTES
from ..facts.reports.changes import ReshardReport, ReshardRow
from ..facts.reports.moves import DevicePeaks, MoveWay, WayName
from ..facts.reports.tree import TreeMesh, TreeReport, TreeRow
from ..geometry.layouts.layout import ShardingLayout
from ..trees.checks.arguments import checked_nbytes
from ..trees.plan import opened
from .moves.peaks import Bytes, Peaks, moves_of
from .moves.places import Place, Places, placed_leaves
from .moves.targets import is_without_devices, resolved, targets_of
from .moves.traffic import ReceivedBytes
from .program_report import program_report

_PUT: tuple[WayName, ...] = ("at once", "leaf by leaf")
"""The ways of ``jax.device_put``."""


def reshard_report(
    tree: Any, target: Any, *, compiled: bool = False, hbm_nbytes: int | str | None = None
) -> ReshardReport:
    """Return the bytes that devices must receive to reshard a tree, and the memory that each way needs.

    Nothing is moved or allocated.

    Each device receives the slices of its target shard that it does not already hold. A device that holds
    nothing receives its whole shard; so does every device from a NumPy array, an abstract leaf without a
    sharding, and host memory. Leaves without a target stay. An array at several paths is received once for
    each target, and is a new array at each path that moves.

    Args:
        tree: A tree of arrays or ShapeDtypeStructs, a TreeReport, or a path, as for ``load_tree``.
        target: A sharding or PartitionSpec, a tree or prefix of these as ``in_shardings`` of ``jax.jit``
            takes, ``PathRules``, or a tree, a TreeReport or a path whose leaves have shardings. A
            PartitionSpec is on the mesh of its leaf; if that has none, on the only mesh of the tree. Leaves
            with fewer axes than one for all leaves are replicated, as in ``tree_report``. For
            another mesh, pass ``tree_report(tree, mesh=…)``. If one of the two trees is a TreeReport, a path
            or on an AbstractMesh, devices are numbered by their positions in the mesh, in both.
        compiled: Whether to compile a jitted identity of the leaves that move, with all of them donated, for
            its temporary values and the bytes that it sends. It needs leaves on devices, not positions.
        hbm_nbytes: Memory of a device in bytes, a size such as ``"16GiB"``, or a chip such as ``"v5p"``, to
            compare the peaks with.

    Raises:
        UnsupportedValueError: (a ValueError) If ``hbm_nbytes`` is not a size, or ``compiled`` is given for
            positions.
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
    >>> [(way.name, way.bound, way.device_nbytes) for way in report.ways][:2]
    [('at once', 'at least', 67108864), ('leaf by leaf', 'at least', 67108864)]
    """
    hbm = checked_nbytes("hbm_nbytes", hbm_nbytes, DEVICE_NBYTES)
    tree, target = opened(tree), opened(target)
    source = placed_leaves(tree)
    targets, shorter = targets_of(source, target)
    are_plans = map(is_without_devices, [*source.leaves, *targets])
    places = Places(are_positions=TreeReport in (type(tree), type(target)) or any(are_plans))
    pairs = resolved(source, targets, places)
    if compiled and places.are_positions:
        raise UnsupportedValueError(
            "compiled=True needs the devices of the leaves and of their targets: pass arrays or "
            "ShapeDtypeStructs with shardings, and a sharding for each leaf"
        )
    received = ReceivedBytes()
    rows = _rows(pairs, received)
    skipped = sum(before is None or after is None for _, before, after in pairs)
    memory = Peaks(moves_of(pairs, received.shards))
    device_count, device_nbytes = received.totals()
    parts = [row.process_nbytes for row in rows if row.process_nbytes is not None]
    dtypes = {leaf.row.path: leaf.dtype for leaf in source.leaves}
    ways, by_device = _ways(memory, dtypes if compiled else None)
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
        restored_nbytes=int(memory.after[: len(memory.ids)].max(initial=0)),
        shorter_count=shorter,
        process_nbytes=None if places.are_positions or len(parts) < len(rows) else sum(parts),
        ways=ways,
        peaks=by_device,
        hbm_nbytes=hbm,
    )


def _rows(
    pairs: Iterable[tuple[TreeRow, Place | None, Place | None]], received: ReceivedBytes
) -> list[ReshardRow]:
    """Return the leaves that need traffic, and add their bytes to those that each device receives."""
    rows = []
    done: dict[str, set[tuple[ShardingLayout, str | None]]] = {}
    for row, before, after in pairs:
        if before is None or after is None or after.layout is None:  # not known, or stays on the host
            continue
        # The same array at another path is received only if it has another target.
        moved_to = done.setdefault(row.path if row.same_as is None else row.same_as, set())
        if (after.layout, after.memory_kind) in moved_to:
            continue
        moved_to.add((after.layout, after.memory_kind))
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
    return rows


def _ways(
    memory: Peaks, dtypes: Mapping[str, Any] | None
) -> tuple[tuple[MoveWay, ...], tuple[DevicePeaks, ...]]:
    """Return the memory of each way to move leaves, and of each device.

    Args:
        memory: The memory of the leaves.
        dtypes: JAX's dtype of each leaf by path, to compile a program; None without it.
    """
    if not memory.moving:
        return (), ()
    refusal = memory.refusal()
    found: list[tuple[Bytes | None, MoveWay]] = [
        (None, MoveWay(name=name, reason=refusal)) if refusal else memory.put(name) for name in _PUT
    ]
    if reason := memory.donation_refusal() or refusal:
        found.append((None, MoveWay(name="jit, donated", reason=reason)))
    else:
        found.append(memory.donated() if dtypes is None else _compiled(memory, dtypes))
    peaks, ways = zip(*found, memory.read(), strict=True)
    return ways, memory.by_device(peaks)


def _compiled(memory: Peaks, dtypes: Mapping[str, Any]) -> tuple[Bytes | None, MoveWay]:
    """Return the memory and the traffic of a compiled identity with donation."""
    import jax

    identity = jax.jit(
        lambda leaves: leaves, donate_argnums=0, out_shardings=[move.after.of_jax() for move in memory.moving]
    )
    given = [
        jax.ShapeDtypeStruct(move.row.shape, dtypes[move.row.path], sharding=move.before.of_jax())
        for move in memory.moving
    ]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Some donated buffers were not usable")
            program = program_report(identity, given, explain=False)
    except (ValueError, TypeError, RuntimeError, NotImplementedError) as error:
        return None, MoveWay(name="jit, donated", reason=plain_text(str(error).split("\n")[0]))
    figures = program.memory
    peak, way = (
        memory.donated() if figures is None else memory.donated(figures.needed_nbytes, figures.host_nbytes)
    )
    return peak, replace(way, sent_nbytes=program.sent_nbytes)


def _meshes(places: Iterable[Place | None]) -> tuple[TreeMesh, ...]:
    """Return the meshes and the sets of devices of some places, each kind once."""
    kinds = (
        TreeMesh(axes=place.mesh and place.mesh.axes, device_count=place.layout.device_ids.size)
        for place in places
        if place is not None and place.layout is not None
    )
    return tuple(dict.fromkeys(kinds))
