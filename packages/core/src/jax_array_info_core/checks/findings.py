"""Findings about leaves by themselves: replicas, padding, invalid specs, unused mesh axes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ..quantities import counted, format_bytes
from ..reports.checks import Finding, FindingLeaf
from ..reports.tree import TreeMesh, TreeReport, TreeRow
from ..trees.avoidable import UNNAMED_AXIS, Avoidable
from .same_sharding import has_known_sharding


def avoidable_replication(
    wasteful: Sequence[tuple[TreeRow, Avoidable]],
    report: TreeReport,
    max_replicated: float,
    unused: Mapping[str, int],
) -> Finding | None:
    """Return the finding on replicas that further sharding would save; None if they are within the limit.

    Args:
        wasteful: Leaves that could be sharded further, with the bytes that this would save.
        report: The tree.
        max_replicated: Limit, as a fraction of the bytes of the fullest device.
        unused: Size of each mesh axis that shards no leaf.
    """
    total = report.fullest_device_nbytes
    nbytes = min(sum(saving.nbytes for _, saving in wasteful), total)  # of a file, totals may be wrong
    if nbytes <= max_replicated * total:
        return None
    over: Counter[str] = Counter()
    for _, saving in wasteful:
        over.update({name: saving.nbytes for names in saving.axes for name in names})
    del over[UNNAMED_AXIS]
    return Finding(
        kind="avoidable replication",
        problem=(
            f"Sharding {counted(len(wasteful), 'leaf', 'leaves')} further would save {format_bytes(nbytes)} "
            f"of {format_bytes(total)} per device: {nbytes / total:.2%}, more than max_replicated, "
            f"{max_replicated:.2%}."
        ),
        remedy=_intended({name: size for name, size in unused.items() if name in over}, over),
        nbytes=nbytes,
        leaves=most_first(
            leaf_of(row, saving.nbytes, remedy=finer_words(row, saving)) for row, saving in wasteful
        ),
        mesh_axes=tuple(name for name, _ in over.most_common()),
    )


def _intended(unused: Mapping[str, int], over: Counter[str]) -> str:
    """Return the fix for replicas: sharding, or the declaration that they are intended."""
    shard = "Shard the leaves as listed"
    if unused:
        words = _mesh_axes_words(unused)
        return (
            f"Every leaf is replicated over {words}: if this is intended, as in data parallelism, pass "
            f"replicated_over={tuple(unused)}. Otherwise, {shard[0].lower()}{shard[1:]}."
        )
    if not over:
        return f"{shard}."
    most = max(over.values())
    names = tuple(name for name, nbytes in over.items() if 2 * nbytes >= most)
    words = " and ".join(map(repr, names))
    return f"{shard}, or pass replicated_over={names} if replication over {words} is intended."


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
    return f"{without}shard {' and '.join(words)}"


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
    by_path: dict[str, list[str]] = {}
    for path, problem in problems:
        by_path.setdefault(path, []).append(problem)
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


def unused_mesh_axes(unused: Mapping[str, int]) -> Finding | None:
    """Return the finding on mesh axes that shard no leaf, given the size of each."""
    if not unused:
        return None
    one = len(unused) == 1
    return Finding(
        kind="unused mesh axis",
        problem=f"{_mesh_axes_words(unused)[0].upper()}{_mesh_axes_words(unused)[1:]} "
        f"{'shards' if one else 'shard'} no leaf.",
        remedy=(
            f"Shard leaves over {'it' if one else 'them'}, or pass replicated_over={tuple(unused)} if "
            f"replication over {'it' if one else 'them'} is intended."
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


def most_first(leaves: Iterable[FindingLeaf]) -> tuple[FindingLeaf, ...]:
    """Return leaves in the order of their bytes, the most first."""
    return tuple(sorted(leaves, key=lambda leaf: -(leaf.nbytes or 0)))


def _names_words(names: Sequence[str]) -> str:
    """Return names of mesh axes as in a PartitionSpec: one by itself, several as a tuple."""
    return repr(names[0] if len(names) == 1 else tuple(names))


def _mesh_axes_words(sizes: Mapping[str, int]) -> str:
    """Return mesh axes with their sizes: ``mesh axis 'data' of size 8``."""
    words = [f"{name!r} of size {size}" for name, size in sizes.items()]
    return f"mesh {'axis' if len(words) == 1 else 'axes'} {' and '.join(words)}"
