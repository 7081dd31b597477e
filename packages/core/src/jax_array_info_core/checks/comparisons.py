"""Findings about leaves with another sharding than expected, or than their parameter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..compat import values
from ..layouts.dtypes import bits_of_name, packed_nbytes
from ..layouts.partition_specs import as_spec
from ..layouts.spec import MeshAxes, Spec
from ..quantities import counted, format_bytes
from ..reports.checks import Finding
from ..reports.tree import TreeMesh, TreeRow
from ..trees.path_rules import specs_by_path
from ..trees.plan import PlannedTree, Planner
from ..trees.rows import DeviceSets
from .findings import (
    has_known_sharding,
    is_sharded_further,
    leaf_of,
    most_first,
    same_sharding,
    sharding_words,
)
from .moments import Moment


class Expectation(NamedTuple):
    """The leaves of a tree, each with its expected sharding."""

    rows: Mapping[str, TreeRow]
    """Each leaf by path. One that may have any sharding is as in the tree."""

    meshes: Sequence[TreeMesh]
    """The meshes of these rows."""

    problems: Mapping[str, str]
    """Problem of each expected spec that is invalid, by path."""

    def accepts_any(self, row: TreeRow) -> bool:
        """Return whether any sharding of a leaf is as expected."""
        return self.rows[row.path] is row and row.path not in self.problems


def expectation(expect: Any, planned: PlannedTree) -> Expectation:
    """Return the leaves of a tree with their expected shardings.

    A leaf without a mesh, such as a NumPy array, is expected on the mesh of the other leaves if they have one
    in common.

    Args:
        expect: A tree or prefix of specs and shardings, or PathRules.
        planned: The tree.

    Raises:
        SpecError: If ``expect`` does not fit the tree, or a pattern matches nothing.
    """
    rows, meshes = planned.report.rows, planned.report.meshes
    entries = specs_by_path(expect, rows, planned.side_paths, argument="expect")
    devices = DeviceSets()
    devices.sets = list(planned.devices)
    named = list(dict.fromkeys(mesh.axes for mesh in meshes if mesh.axes is not None))
    whole = MeshAxes(("devices",), (planned.report.device_count,))
    on_own = Planner(devices, None, None, has_specs=True)
    on_common = Planner(devices, named[0], None, has_specs=True) if len(named) == 1 else on_own
    on_all = Planner(devices, whole, None, has_specs=True)

    def expected(row: TreeRow, entry: Any) -> TreeRow:
        spec = None if entry is None or values.is_sharding(entry) else as_spec(entry)
        if spec is not None:
            entry = _without_surplus(spec, len(row.shape))
        if row.mesh is not None and meshes[row.mesh].axes is not None:
            return row if spec is not None and spec == row.spec else on_own.planned(row, entry)
        if not named and spec is not None and not any(spec.axes):
            return on_all.planned(row, entry)
        return on_common.planned(row, entry)

    by_path = {row.path: expected(row, entry) for row, entry in zip(rows, entries, strict=True)}
    problems: dict[str, str] = {}
    for planner in {id(planner): planner for planner in (on_own, on_common, on_all)}.values():
        for path, problem in planner.problems:
            problems[path] = f"{problems[path]}; {problem}" if path in problems else problem
    return Expectation(by_path, [found.mesh for found in devices.sets], problems)


def _without_surplus(spec: Spec, ndim: int) -> Spec:
    """Return a spec without entries of None beyond the axes of an array: a prefix fits leaves of any rank."""
    surplus = spec.axes[ndim:]
    is_empty = not any(surplus) and not any(axis >= ndim for axis in spec.unconstrained)
    return replace(spec, axes=spec.axes[:ndim]) if surplus and is_empty else spec


def unexpected_shardings(
    rows: Iterable[TreeRow], meshes: Sequence[TreeMesh], expected: Expectation
) -> Finding | None:
    """Return the finding on leaves whose sharding is not the expected one."""
    leaves = []
    for row in rows:
        wanted = expected.rows[row.path]
        if problem := expected.problems.get(row.path):
            leaves.append(leaf_of(row, row.shard_nbytes, remedy=f"in expect, {problem}"))
        elif wanted is row or not has_known_sharding(row):
            continue
        elif not same_sharding(row, meshes, wanted, expected.meshes):
            leaves.append(leaf_of(row, row.shard_nbytes, expected=wanted, remedy=_words(row, wanted)))
    if not leaves:
        return None
    return Finding(
        kind="unexpected sharding",
        problem=f"The sharding of {counted(len(leaves), 'leaf', 'leaves')} differs from expect.",
        remedy="Change their shardings, or correct expect.",
        nbytes=sum(leaf.nbytes or 0 for leaf in leaves),
        leaves=most_first(leaves),
    )


def differing_moments(
    moments: Iterable[Moment], rows: Sequence[TreeRow], meshes: Sequence[TreeMesh]
) -> Finding | None:
    """Return the finding on optimizer state that is sharded differently from its parameter.

    State that is sharded over more mesh axes than its parameter is intended, as in ZeRO-1.

    Args:
        moments: The optimizer state of the tree.
        rows: The leaves that findings may be about.
        meshes: The meshes of the leaves.
    """
    differing = [
        moment
        for moment in moments
        if not same_sharding(moment.row, meshes, moment.parameter, meshes)
        and not is_sharded_further(moment.row, moment.parameter, meshes)
        and has_known_sharding(moment.row)
        and has_known_sharding(moment.parameter)
    ]
    if differing:
        paths = {row.path for row in rows}
        differing = [moment for moment in differing if moment.row.path in paths]
    if not differing:
        return None
    now = sum(moment.row.shard_nbytes or 0 for moment in differing)
    then = sum(_nbytes_like(moment.row, moment.parameter) for moment in differing)
    return Finding(
        kind="moments",
        problem=(
            f"{counted(len(differing), 'leaf is', 'leaves are')} sharded differently from the parameter with "
            f"the same path: {format_bytes(now)} per device, {format_bytes(then)} if sharded like it."
        ),
        remedy=(
            "Create the optimizer state inside jit with out_shardings, or with device_put. If the difference "
            "is intended, list the paths in ignore."
        ),
        nbytes=now,
        leaves=most_first(
            leaf_of(row, row.shard_nbytes, expected=parameter, remedy=_words(row, parameter))
            for row, parameter in differing
        ),
    )


def _words(row: TreeRow, wanted: TreeRow) -> str:
    """Return the shardings of two leaves that have no spec; empty if both have one."""
    words = [] if row.spec is not None else [sharding_words(row)]
    words += [] if wanted.spec is not None else [f"expected {sharding_words(wanted)}"]
    return ", ".join(words)


def _nbytes_like(row: TreeRow, parameter: TreeRow) -> int:
    """Return the bytes per device of a leaf if it were sharded like its parameter."""
    if parameter.shard_shape is None:
        return row.shard_nbytes or 0
    return packed_nbytes(parameter.shard_shape, bits_of_name(row.dtype)) or 0
