"""Leaves sharded otherwise than expected, than their parameter or their kind, or committed elsewhere."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...base.grouping import by_key
from ...base.quantities import counted, format_bytes, format_devices
from ...compat import values
from ...facts.reports.findings import Finding, FindingLeaf, Option, most_first, remedies
from ...facts.reports.tree import TreeMesh, TreeRow, axes_of
from ...geometry.layouts.spec import MeshAxes, as_spec, other_types
from ..plan import Planner
from ..rows import DeviceSets, PlannedTree, kept_for_last_rows
from ..same_sharding import differing_fields, same_sharding
from ..specs import specs_by_path, without_surplus
from .findings import (
    has_known_sharding,
    is_scalar_or_key,
    is_sharded_further,
    leaf_of,
)
from .memory import Moment


class Expectation(NamedTuple):
    """The leaves of a tree, each with its expected sharding."""

    rows: Mapping[str, TreeRow]
    """Each leaf by path. One that may have any sharding is as in the tree."""

    meshes: Sequence[TreeMesh]
    """The meshes of these rows."""

    problems: Mapping[str, str]
    """Problem of each expected spec that is invalid, by path."""

    named: frozenset[str]
    """Paths of the leaves that have an expected sharding."""

    changed: frozenset[str]
    """Paths of those of them whose expected spec is another one, or invalid."""

    shorter: Collection[str]
    """Paths of leaves with fewer axes than a spec for all leaves, which are expected to be replicated."""


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
    entries, shorter = specs_by_path(expect, rows, planned.side_paths, argument="expect")
    devices = DeviceSets()
    devices.sets = list(planned.devices)
    named = list(dict.fromkeys(mesh.axes for mesh in meshes if mesh.axes is not None))
    whole = MeshAxes(("devices",), (planned.report.device_count,))
    on_own = Planner(devices, None, None, has_specs=True)
    on_common = Planner(devices, named[0], None, has_specs=True) if len(named) == 1 else on_own
    on_all = Planner(devices, whole, None, has_specs=True)

    # Leaves share their entries.
    specs = {
        number: None if entry is None or values.is_sharding(entry) else as_spec(entry)
        for number, entry in {id(entry): entry for entry in entries}.items()
    }

    def expected(row: TreeRow, entry: Any) -> TreeRow:
        spec = specs[id(entry)]
        if spec is not None:
            entry = without_surplus(spec, len(row.shape)) or spec
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
    named_paths = frozenset(row.path for row, entry in zip(rows, entries, strict=True) if entry is not None)
    changed = frozenset(row.path for row in rows if by_path[row.path] is not row).union(problems)
    meshes_of_rows = [used.mesh for used in devices.sets]
    return Expectation(by_path, meshes_of_rows, problems, named_paths, changed, shorter)


def unexpected_shardings(
    rows: Iterable[TreeRow], meshes: Sequence[TreeMesh], expected: Expectation | None
) -> Finding | None:
    """Return the finding on leaves whose sharding is not the expected one; None if none is expected."""
    if expected is None:
        return None
    leaves = []
    for row in rows:
        wanted = expected.rows[row.path]
        if problem := expected.problems.get(row.path):
            leaves.append(leaf_of(row, row.shard_nbytes, remedy=f"in expect, {problem}"))
        elif wanted is row or not has_known_sharding(row):
            continue
        elif any(
            differing_fields(row, meshes, wanted, expected.meshes, has_planned_types=row.kind != "planned")
        ):
            remedy = sharding_words(row, meshes, wanted, expected.meshes)
            leaves.append(leaf_of(row, row.shard_nbytes, expected=wanted, remedy=remedy))
    if not leaves:
        return None
    return Finding(
        kind="unexpected sharding",
        problem=f"{counted(len(leaves), 'leaf has', 'leaves have')} another sharding than the expected one.",
        **remedies("Change their shardings, or correct {expect}.", expect=Option("expect")),
        nbytes=sum(leaf.nbytes or 0 for leaf in leaves),
        leaves=most_first(leaves),
    )


def differing_moments(
    moments: Iterable[Moment[TreeRow]], rows: Sequence[TreeRow], meshes: Sequence[TreeMesh]
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
        **remedies(
            "Create the optimizer state inside jit with out_shardings, or with device_put. If the difference "
            "is intended, list the paths in {ignore}.",
            ignore=Option("ignore"),
        ),
        nbytes=now,
        leaves=most_first(
            leaf_of(
                row,
                row.shard_nbytes,
                expected=parameter,
                remedy=sharding_words(row, meshes, parameter, meshes),
            )
            for row, parameter in differing
        ),
    )


def sharding_words(
    row: TreeRow, meshes: Sequence[TreeMesh], wanted: TreeRow, wanted_meshes: Sequence[TreeMesh]
) -> str:
    """Return the shardings of two leaves that have no spec, and axis types and memory kinds that differ."""
    words = [] if row.spec is not None else [row.sharding_text]
    words += [] if wanted.spec is not None else [f"expected {wanted.sharding_text}"]
    axes, wanted_axes = axes_of(row, meshes), axes_of(wanted, wanted_meshes)
    if axes is not None and wanted_axes is not None and other_types(axes, wanted_axes):
        words.append(f"axis types {axes.types_text}, expected {wanted_axes.types_text}")
    if row.host_memory_kind != wanted.host_memory_kind:
        kinds = (leaf.host_memory_kind or "device memory" for leaf in (row, wanted))
        words.append("in {}, expected in {}".format(*kinds))
    return ", ".join(words)


def _nbytes_like(row: TreeRow, parameter: TreeRow) -> int:
    """Return the bytes per device of a leaf if it were sharded like its parameter."""
    if parameter.shard_shape is None:
        return row.shard_nbytes or 0
    return row.nbytes_of(parameter.shard_shape) or 0


_LEAST_ALIKE = 4
"""Number of leaves from which one that differs is odd, and the part of them that may be odd: one in four."""
_NUMBERS = re.compile(r"\d+")


@kept_for_last_rows
def odd_ones(rows: Sequence[TreeRow], meshes: Sequence[TreeMesh]) -> list[FindingLeaf]:
    """Return the leaves that differ from most leaves of equal shape whose paths differ only in numbers.

    There are at least four such leaves, at most a quarter of them are odd, and all others are sharded alike.
    Those that alternate, such as every fourth layer, are not odd.
    """
    alike = by_key(
        ((_NUMBERS.sub("#", row.path), row.shape), row)
        for row in rows
        if row.mesh is not None and has_known_sharding(row) and not is_scalar_or_key(row)
    )
    return [
        odd
        for group in alike.values()
        if len(group) >= _LEAST_ALIKE
        for odd in _odd_of(sorted(group, key=_numbers), meshes)
    ]


def _numbers(row: TreeRow) -> list[tuple[int, str]]:
    """Return the order of a path among those that differ only in numbers."""
    return [(len(number), number) for number in _NUMBERS.findall(row.path)]


def _odd_of(group: Sequence[TreeRow], meshes: Sequence[TreeMesh]) -> Iterator[FindingLeaf]:
    """Yield the odd ones of leaves of one kind, in the order of their numbers."""
    most = len(group) // _LEAST_ALIKE
    kinds: list[list[int]] = []
    for place, row in enumerate(group):
        equal = (kind for kind in kinds if same_sharding(row, meshes, group[kind[0]], meshes))
        if (kind := next(equal, None)) is not None:
            kind.append(place)
        elif len(kinds) > most:
            return
        else:
            kinds.append([place])
    usual = max(kinds, key=len)
    odd = sorted({*range(len(group))}.difference(usual))
    if len(odd) <= most and not _alternates(odd, len(group)):
        for row in (group[place] for place in odd):
            words = filter(
                None, [sharding_words(row, meshes, group[usual[0]], meshes), f"unlike {len(usual)} others"]
            )
            yield leaf_of(row, row.shard_nbytes, expected=group[usual[0]], remedy="; ".join(words))


def _alternates(places: Sequence[int], count: int) -> bool:
    """Return whether some of a number of places are every n-th one, at least twice."""
    steps = {after - before for before, after in itertools.pairwise(places)}
    return len(steps) == 1 and (step := steps.pop()) > places[0] and places[-1] + step >= count


def odd_one_out(odd: Sequence[FindingLeaf], rows: Iterable[TreeRow]) -> Finding | None:
    """Return the finding on leaves that are sharded differently from the others of their kind.

    Args:
        odd: The leaves.
        rows: The leaves that the finding may be about.
    """
    paths = {row.path for row in rows} if odd else set()
    leaves = most_first(leaf for leaf in odd if leaf.path in paths)
    if not leaves:
        return None
    are = counted(len(leaves), "leaf is", "leaves are")
    return Finding(
        kind="odd one out",
        problem=f"{are} sharded differently from leaves whose paths differ only in numbers.",
        **remedies(
            "Shard {them} like the others. If the difference is intended, list the {paths} in {ignore}.",
            them="it" if len(leaves) == 1 else "them",
            paths="path" if len(leaves) == 1 else "paths",
            ignore=Option("ignore"),
        ),
        nbytes=sum(leaf.nbytes or 0 for leaf in leaves),
        leaves=leaves,
    )


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
    ids = mesh.devices if known is None else known.tolist()
    return None if ids is None else tuple(sorted(ids))


def _words(ids: tuple[int, ...] | None, mesh: TreeMesh) -> str:
    return counted(mesh.device_count, "device", "devices") if ids is None else format_devices(None, ids)
