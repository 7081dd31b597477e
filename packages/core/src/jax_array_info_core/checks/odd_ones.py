"""Leaves that are sharded differently from others of their kind, or committed to other devices."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from ..grouping import by_key
from ..quantities import counted, format_devices
from ..reports.findings import Finding, FindingLeaf, Option, most_first, remedies
from ..reports.tree import TreeMesh, TreeRow
from ..trees.plan import PlannedTree
from ..trees.rows import kept_for_last_rows
from .findings import has_known_sharding, is_scalar_or_key, leaf_of, same_sharding
from .moments import sharding_words

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


def odd_one_out(
    odd: Sequence[FindingLeaf], rows: Iterable[TreeRow], listed: Collection[str]
) -> Finding | None:
    """Return the finding on leaves that are sharded differently from the others of their kind.

    Args:
        odd: The leaves.
        rows: The leaves that the finding may be about.
        listed: Paths of leaves that another finding or the caller's expectation is about.
    """
    paths = {row.path for row in rows} if odd else set()
    leaves = most_first(leaf for leaf in odd if leaf.path in paths.difference(listed))
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
    found = mesh.devices if known is None else known.tolist()
    return None if found is None else tuple(sorted(found))


def _words(ids: tuple[int, ...] | None, mesh: TreeMesh) -> str:
    return counted(mesh.device_count, "device", "devices") if ids is None else format_devices(None, ids)
