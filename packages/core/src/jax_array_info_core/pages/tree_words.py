"""Words and totals of pages of trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from ..quantities import counted
from ..reports import ReshardReport, TreeDiff, TreeMesh, UnmatchedAxes, UnmatchedName
from .blocks import Note, more
from .words import mesh_words

_MOST_NAMES_OF_TOTALS = 6
"""Maximum number of logical axis names in a line."""


def unmatched_lines(unmatched: UnmatchedAxes) -> Iterator[str]:
    """Yield the logical axis names and the rules that did not match, those with similar names first."""
    if unmatched.without_rule:
        yield f"logical axes without a rule, replicated: {_names_words(unmatched.without_rule)}"
    if unmatched.unused_rules:
        yield f"rules without a leaf: {_names_words(unmatched.unused_rules)}"
    if unmatched.left_out:
        yield f"not mesh axes, left out of rules: {_names_words(list(map(repr, unmatched.left_out)))}"


def _names_words(names: Sequence[UnmatchedName | str]) -> str:
    """Return the first names, and the number of the others."""
    ordered = sorted(names, key=lambda name: isinstance(name, str) or not name.similar)
    more = f" and {len(names) - _MOST_NAMES_OF_TOTALS} more" if len(names) > _MOST_NAMES_OF_TOTALS else ""
    return ", ".join(map(str, ordered[:_MOST_NAMES_OF_TOTALS])) + more


Fold: TypeAlias = tuple[str, list[int]]
"""A path with folded indices, and the numbers of its leaves."""


def more_leaves(folds: Sequence[Fold]) -> Note:
    """Return the number of leaves that are left out."""
    return Note(more(sum(len(members) for _, members in folds), "leaf", "leaves"), kind="words")


def folds_note(folds: Sequence[Fold]) -> str:
    """Return what the bytes of a row of several leaves are; empty if there is no such row."""
    is_folded = any(len(members) > 1 for _, members in folds)
    return "Rows of several leaves show the sum of their bytes." if is_folded else ""


def changed_meshes(report: TreeDiff | ReshardReport) -> list[str]:
    """Return a line about the meshes of each of two trees if they differ."""
    before, after = meshes_words(report.meshes_before), meshes_words(report.meshes_after)
    return [] if before == after else [f"mesh before: {before}", f"mesh after: {after}"]


def meshes_words(meshes: Sequence[TreeMesh]) -> str:
    """Return the meshes and device sets of a tree, each kind once."""
    words = (
        f"{counted(mesh.device_count, 'device', 'devices')} without a mesh"
        if mesh.axes is None
        else mesh_words(mesh.axes)
        for mesh in meshes
    )
    return "; ".join(dict.fromkeys(words)) or "none"
