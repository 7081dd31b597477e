"""Findings about the shardings of leaves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ...base.grouping import by_key
from ...base.quantities import counted, format_bytes, shares_apart
from ...facts.reports.codes import FindingKind
from ...facts.reports.findings import Finding, FindingLeaf, Fix, Limits, Option, most_first, remedies
from ...facts.reports.tree import TreeMesh, TreeReport, TreeRow, axes_of
from ...geometry.layouts.spec import Spec, effective_axes
from ..further import UNNAMED_AXIS, Avoidable, avoidable
from ..rows import PlannedTree


def is_sharded_further(row: TreeRow, other: TreeRow, meshes: Sequence[TreeMesh]) -> bool:
    """Return whether a leaf is sharded over all mesh axes of another leaf, and over more.

    Without a spec, its shards are compared: none of their axes is longer, and one is shorter.
    """
    if row.spec is not None and other.spec is not None:
        return _mesh_axes(other, meshes) < _mesh_axes(row, meshes)
    if row.shard_shape is None or other.shard_shape is None or row.shard_shape == other.shard_shape:
        return False
    pairs = zip(row.shard_shape, other.shard_shape, strict=True)
    return all(
        dim == other_dim or (isinstance(dim, int) and isinstance(other_dim, int) and dim < other_dim)
        for dim, other_dim in pairs
    )


def has_known_sharding(row: TreeRow) -> bool:
    """Return whether the sharding of a leaf is known: not if XLA has not chosen it."""
    return row.shard_shape is not None or row.is_deleted


def _mesh_axes(row: TreeRow, meshes: Sequence[TreeMesh]) -> set[tuple[str, int | None]]:
    """Return the names and sizes of the mesh axes that shard a leaf."""
    axes = axes_of(row, meshes)
    sizes = {} if axes is None else axes.shape
    assert row.spec is not None
    names = {name for entry in effective_axes(row.spec, sizes, len(row.shape)) for name in entry}
    return {(name, sizes.get(name)) for name in names}


Wasteful = Sequence[tuple[TreeRow, Avoidable]]
"""Leaves that could be sharded further, with the bytes that this would save."""


def avoidable_replication(
    wasteful: Wasteful,
    wasteful_unless: Callable[[Sequence[str]], Wasteful],
    limits: Limits,
    unused: Mapping[str, int],
    replicated_over: Sequence[str],
) -> Finding | None:
    """Return the finding on replicas that further sharding would save; None if they are within the limit.

    Args:
        wasteful: Leaves that could be sharded further.
        wasteful_unless: Returns these leaves if replication over some mesh axes is intended.
        limits: The limits up to which replicas are accepted.
        unused: Size of each mesh axis that shards no leaf.
        replicated_over: Mesh axes over which replication is intended.
    """
    total = limits.total_nbytes
    kind: FindingKind = "avoidable replication"
    wasteful = _advised(wasteful)
    nbytes = min(_saved(wasteful), total)  # of a file, totals may be wrong
    if limits.accept(kind, nbytes):
        return None
    over = _saved_over(wasteful)
    everywhere = {name: size for name, size in unused.items() if name in over}
    accepted, remaining = [*replicated_over, *everywhere], wasteful
    if everywhere:
        remaining = _advised(wasteful_unless(accepted))
    # An axis that is no longer free may leave another one to the same leaf.
    while not limits.accept(kind, _saved(remaining)) and (further := _saved_over(remaining)):
        accepted.append(max(further, key=further.__getitem__))
        remaining = _advised(wasteful_unless(accepted))
    is_enough = limits.accept(kind, _saved(remaining))
    share, most = shares_apart(nbytes, total, limits.max_replicated)
    return Finding(
        kind=kind,
        problem=(
            f"Sharding {counted(len(wasteful), 'leaf', 'leaves')} further would save {format_bytes(nbytes)} "
            f"of {format_bytes(total)} per device: {share}, more than the accepted {most}."
        ),
        **_intended(everywhere, accepted[len(replicated_over) :] if is_enough else (), replicated_over),
        nbytes=nbytes,
        leaves=most_first(
            leaf_of(row, saving.advised_nbytes, remedy=finer_words(row, saving)) for row, saving in wasteful
        ),
        mesh_axes=tuple(name for name, _ in over.most_common()),
    )


def _advised(wasteful: Wasteful) -> Wasteful:
    """Return the leaves whose shards would not be small."""
    return [(row, saving) for row, saving in wasteful if saving.advised_nbytes]


def _saved(wasteful: Wasteful) -> int:
    return sum(saving.advised_nbytes for _, saving in wasteful)


def _saved_over(wasteful: Wasteful) -> Counter[str]:
    """Return the bytes that sharding over each mesh axis could save."""
    over: Counter[str] = Counter()
    for _, saving in wasteful:
        over.update({name: saving.advised_nbytes for names in saving.axes for name in names})
    del over[UNNAMED_AXIS]
    return over


def _intended(unused: Mapping[str, int], accepted: Sequence[str], replicated_over: Sequence[str]) -> Fix:
    """Return the fix for replicas: sharding, or the declaration that they are intended.

    Args:
        unused: Size of each mesh axis over which every leaf is replicated.
        accepted: Mesh axes without whose replicas there is no finding; empty if there are none.
        replicated_over: Mesh axes that are already declared.
    """
    shard = "Shard the leaves as listed"
    option = Option("replicated_over", (*replicated_over, *accepted))
    if not accepted:
        return remedies(shard + ".")
    if unused:
        others = [name for name in accepted if name not in unused]
        also = f", and some also over {' and '.join(map(repr, others))}" if others else ""
        return remedies(
            "Every leaf is replicated over {words}: if this is intended, as in data parallelism, pass "
            "{option}. Otherwise, shard the leaves as listed.",
            words=_mesh_axes_words(unused) + also,
            option=option,
        )
    return remedies(
        shard + ", or pass {option} if replication over {words} is intended.",
        words=" and ".join(map(repr, accepted)),
        option=option,
    )


def finer_words(row: TreeRow, saving: Avoidable, *, others: str = "the devices with replicas") -> str:
    """Return the array axes and the mesh axes over which they could be sharded.

    Args:
        row: The leaf.
        saving: The mesh axes.
        others: The devices of a sharding without a mesh.
    """
    words = []
    for axis, names in enumerate(saving.axes):
        if names:
            is_sharded = row.shard_shape is not None and row.shard_shape[axis] != row.shape[axis]
            over = others if names == (UNNAMED_AXIS,) else _names_words(names)
            words.append(f"axis {axis} {'also ' if is_sharded else ''}over {over}")
    without = "without a sharding: " if row.sharding is None else ""
    pad = "" if saving.padded is None else "pad axis {} to {:,}, then ".format(*saving.padded)
    return f"{without}{pad}shard {' and '.join(words)}"


def padded_leaves(rows: Iterable[TreeRow], meshes: Sequence[TreeMesh]) -> Finding | None:
    """Return the finding on axes that are not divisible by their number of shards."""
    padded = [row for row in rows if row.uneven]
    if not padded:
        return None
    leaves = most_first(
        leaf_of(row, _padding(row, meshes), remedy=" ".join(map(str, row.uneven))) for row in padded
    )
    nbytes = sum(leaf.nbytes or 0 for leaf in leaves)
    count = sum(len(row.uneven) for row in padded)
    axes = counted(count, "array axis", "array axes")
    are, their, them = ("is", "its", "it") if count == 1 else ("are", "their", "them")
    return Finding(
        kind="padding",
        problem=(
            f"{axes} of {counted(len(padded), 'leaf', 'leaves')} {are} not divisible by {their} number of "
            f"shards. Inside jit, XLA pads {them}, which adds {format_bytes(nbytes)} per device. "
            "device_put, in_shardings and out_shardings raise an error."
        ),
        remedy="Change the shape or the spec as listed.",
        nbytes=nbytes,
        leaves=leaves,
        mesh_axes=tuple(dict.fromkeys(name for row in padded for axis in row.uneven for name in axis.names)),
    )


def _padding(row: TreeRow, meshes: Sequence[TreeMesh]) -> int | None:
    """Return the bytes of padding per device, relative to equal shards without padding."""
    if row.mesh is None or row.nbytes is None or row.shard_nbytes is None:
        return None
    shards = max(1, meshes[row.mesh].device_count // max(1, row.replicas * row.partial_sums))
    return max(0, row.shard_nbytes - row.nbytes // shards)


def invalid_specs(rows: Iterable[TreeRow], problems: Iterable[tuple[str, str]]) -> Finding | None:
    """Return the finding on specs with unknown, repeated or too many mesh axes.

    The leaves of the finding have no spec: that of the row lacks the invalid names.

    Args:
        rows: The leaves.
        problems: Path and problem of each invalid spec.
    """
    by_path = by_key(problems)
    leaves = tuple(
        replace(leaf_of(row, None, remedy="; ".join(by_path[row.path])), spec=None)
        for row in rows
        if row.path in by_path
    )
    if not leaves:
        return None
    return Finding(
        kind="invalid spec",
        problem=f"{counted(len(leaves), 'leaf has an invalid spec', 'leaves have invalid specs')}.",
        remedy="Correct the specs. The other findings are about the specs without the invalid names.",
        leaves=leaves,
    )


def not_finite(rows: Iterable[TreeRow]) -> Finding | None:
    """Return the finding on leaves with NaN or infinities, in a tree with statistics."""
    leaves = [
        leaf_of(row, None, remedy=row.statistics.not_finite_words)
        for row in rows
        if row.statistics is not None and not row.statistics.is_finite
    ]
    if not leaves:
        return None
    return Finding(
        kind="not finite",
        problem=f"{counted(len(leaves), 'leaf has', 'leaves have')} elements that are NaN or infinite.",
        remedy="Set jax_debug_nans: JAX then stops at the operation that makes the first NaN.",
        leaves=tuple(leaves),
    )


def unused_mesh_axes(
    rows: Iterable[TreeRow], unused: Mapping[str, int], replicated_over: Sequence[str]
) -> Finding | None:
    """Return the finding on mesh axes that shard no leaf.

    Args:
        rows: The leaves.
        unused: Size of each of them.
        replicated_over: Mesh axes over which replication is intended.
    """
    if not unused:
        return None
    is_single = len(unused) == 1
    dims = {dim for row in rows for dim in row.shard_shape or row.shape if isinstance(dim, int) and dim}
    odd = [repr(name) for name, size in unused.items() if all(dim % size for dim in dims)]
    shard = (
        f"No axis of a leaf is divisible by {' or '.join(odd)}: pad one"
        if odd
        else "Shard leaves over {axes}"
    )
    return Finding(
        kind="unused mesh axis",
        problem=f"{_mesh_axes_words(unused)[0].upper()}{_mesh_axes_words(unused)[1:]} "
        f"{'shards' if is_single else 'shard'} no leaf.",
        **remedies(
            shard + ", or pass {option} if replication over {axes} is intended.",
            axes="it" if is_single else "them",
            option=Option("replicated_over", (*replicated_over, *unused)),
        ),
        mesh_axes=tuple(unused),
    )


def unused_axes(report: TreeReport, replicated_over: Collection[str]) -> dict[str, int]:
    """Return the size of each mesh axis of size 2 or more that shards no leaf, except the given axes.

    A mesh axis over which XLA may still shard some leaf counts as used.
    """
    used: set[str] = set()
    # Leaves share their spec objects. Hashing every spec would take longer than all the rest.
    distinct = {(row.mesh, id(row.spec), row.shard_shape is None): row for row in report.rows}
    for row in distinct.values():
        axes = None if row.mesh is None else report.meshes[row.mesh].axes
        if row.spec is not None:
            used.update(name for names in (*row.spec.axes, row.spec.unreduced) for name in names)
        if axes is not None and (row.spec is None or row.spec.unconstrained or not has_known_sharding(row)):
            used.update(axes.names)
    return {
        name: size
        for mesh in report.meshes
        if mesh.axes is not None
        for name, size in mesh.axes.shape.items()
        if size > 1 and name not in used and name not in replicated_over
    }


def leaf_of(
    row: TreeRow, nbytes: int | None, *, expected: TreeRow | None = None, remedy: str = ""
) -> FindingLeaf:
    """Return a leaf of a finding, with the bytes per device that the finding is about."""
    return FindingLeaf(
        path=row.path,
        shape=row.shape,
        dtype=row.dtype,
        nbytes=nbytes,
        spec=row.spec,
        expected=None if expected is None else expected.spec,
        remedy=remedy,
    )


def _names_words(names: Sequence[str]) -> str:
    """Return names of mesh axes as in a PartitionSpec: one by itself, several as a tuple."""
    return repr(names[0] if len(names) == 1 else tuple(names))


def _mesh_axes_words(sizes: Mapping[str, int]) -> str:
    """Return mesh axes with their sizes: ``mesh axis 'data' of size 8``."""
    words = [f"{name!r} of size {size}" for name, size in sizes.items()]
    return f"mesh {'axis' if len(words) == 1 else 'axes'} {' and '.join(words)}"


_KEY_SIZES = (2, 4)
"""Lengths of the last axis of raw PRNG keys: threefry and rbg."""


def fewer_devices(
    rows: Iterable[TreeRow],
    planned: PlannedTree,
    devices: int | None,
    replicated_over: Collection[str],
    around: TreeMesh | None,
    parameter_specs: Mapping[str, Spec | None],
) -> Finding | None:
    """Return the finding on leaves that are on fewer devices than the mesh of the tree.

    A NamedSharding on another mesh is a choice, as in a pipeline, and so is a sharding over the devices of
    such a mesh. Scalars and keys may be on any device.

    Args:
        rows: The leaves that the finding may be about.
        planned: The tree.
        devices: Least number of devices of each leaf, whatever its sharding; None for those of the mesh.
        replicated_over: Mesh axes over which replication is intended.
        around: The mesh, or the devices, around a tree on one device; None if that is intended.
        parameter_specs: Spec of the parameter of each moment, by the path of the moment.
    """
    meshes = planned.report.meshes
    mesh = (
        planned.mesh
        or around
        or max(meshes, key=lambda mesh: (mesh.device_count, mesh.axes is not None), default=None)
    )
    wanted = devices or (1 if mesh is None else mesh.device_count)
    if mesh is None or mesh.device_count != wanted:
        mesh = TreeMesh(axes=None, device_count=wanted)
    stages = {mesh_of_leaves.device_count for mesh_of_leaves in meshes if mesh_of_leaves.axes is not None}
    leaves = []
    for planned_row in rows:
        if planned_row.path in planned.unspecified:
            row, placed = planned.unspecified[planned_row.path]
        elif planned_row.mesh is not None:
            row, placed = planned_row, meshes[planned_row.mesh]
        else:
            continue
        if placed.device_count >= wanted or row.shard_nbytes is None or row.same_as is not None:
            continue
        is_chosen = row.spec is not None or (placed.device_count > 1 and placed.device_count in stages)
        if not (is_chosen and devices is None) and not is_scalar_or_key(row):
            leaves.append(_leaf(row, placed, mesh, replicated_over, parameter_specs.get(row.path)))
    if not leaves:
        return None
    now = sum(leaf.nbytes or 0 for leaf in leaves)
    then = sum(leaf.nbytes_after or 0 for leaf in leaves)
    return Finding(
        kind="fewer devices",
        problem=(
            f"{counted(len(leaves), 'leaf is', 'leaves are')} on fewer than {wanted} devices: "
            f"{format_bytes(now)} as {'it is' if len(leaves) == 1 else 'they are'}, {format_bytes(then)} per "
            f"device on all {wanted}."
        ),
        **remedies(
            "Create the leaves inside jit with out_shardings, or use device_put: in the next jitted step, "
            "XLA chooses the sharding of an array that is not committed to its device. If one device is "
            "intended, pass {devices} or list the paths in {ignore}.",
            devices=Option("devices", 1),
            ignore=Option("ignore"),
        ),
        nbytes=now,
        leaves=most_first(leaves),
    )


def _leaf(
    row: TreeRow, placed: TreeMesh, mesh: TreeMesh, replicated_over: Collection[str], like: Spec | None
) -> FindingLeaf:
    """Return a leaf of the finding, with its bytes as it is and sharded like the mesh could."""
    whole = replace(
        row,
        mesh=0,
        spec=Spec(()),
        shard_shape=row.shape,
        shard_nbytes=row.nbytes,
        replicas=mesh.device_count,
    )
    saving = avoidable(whole, mesh, replicated_over, like)
    then = (row.nbytes or 0) - saving.advised_nbytes
    fix = (
        finer_words(whole, saving, others=f"{mesh.device_count} devices")
        if saving.advised_nbytes
        else "replicate"
    )
    words = f"on {placed.device_count} of {mesh.device_count} devices; {fix}"
    return replace(leaf_of(row, row.shard_nbytes, remedy=words), nbytes_after=then)


def is_scalar_or_key(row: TreeRow) -> bool:
    """Return whether a leaf has at most one element, or contains PRNG keys."""
    is_raw_key = row.dtype == "uint32" and len(row.shape) in (1, 2) and row.shape[-1] in _KEY_SIZES
    is_small = math.prod(dim if isinstance(dim, int) else 2 for dim in row.shape) <= 1
    return row.is_key or is_raw_key or is_small
