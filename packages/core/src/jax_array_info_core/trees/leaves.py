"""Leaves of a tree, with their paths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..arrays.boxes import content_of, logical_names
from ..arrays.objects import object_text
from ..arrays.paths import SlashNotation
from ..arrays.walk import Entries, Walk
from ..compat import values
from ..compat.arrays import array_like
from ..layouts.spec import Spec


class TreeLeaf(NamedTuple):
    """An array leaf of a tree."""

    path: str
    """Keys joined by ``/``."""

    value: Any
    """The array, the abstract value, or the facts of an array-like object; without a box."""

    logical: Spec | None
    """Logical axis names from the box around the leaf."""


@dataclass(slots=True)
class TreeLeaves:
    """The leaves of a tree."""

    type_name: str
    """Name of the tree's class."""

    leaves: list[TreeLeaf] = field(default_factory=list)
    """The array leaves, in JAX's order."""

    other_paths: list[str] = field(default_factory=list)
    """Paths of leaves that are not arrays."""

    empty_paths: list[str] = field(default_factory=list)
    """Paths of containers without entries."""


def tree_leaves(tree: Any) -> TreeLeaves:
    """Return the leaves of a tree. A single array is a tree of one leaf with the path ``""``.

    A box such as ``nn.Partitioned`` is a container, as in JAX, so its key is in the path.
    """
    walk = _LeafWalk(TreeLeaves(values.type_name(tree)))
    if not walk.start(tree):
        content = content_of(tree)
        is_array = values.is_array_type(content)
        found = content if is_array else None if object_text(content) else array_like(content)
        if found is None:
            walk.found.other_paths.append("")
        else:
            walk.found.leaves.append(TreeLeaf("", found, logical_names(tree)))
    return walk.found


def is_tree(value: Any) -> bool:
    """Return whether a value is a container with an array in it, as ``sharding_info`` prints as a table.

    A box around one array is not a container.
    """
    content = content_of(value)
    if values.is_array_type(content):
        return False
    walk = _LeafWalk(TreeLeaves(""))
    return walk.start(content) and bool(walk.found.leaves)


def entries_at(tree: Any, is_entry: Callable[[Any], bool]) -> list[tuple[str, Any]]:
    """Return the entries of a tree of specs or shardings, each with the path of the leaf or the subtree.

    Args:
        tree: A tree or a single entry.
        is_entry: Whether a value is an entry, such as a PartitionSpec or None.
    """
    if is_entry(tree):
        return [("", tree)]
    walk = _EntryWalk(is_entry)
    if not walk.start(tree):
        walk.add_other("", tree)
    return walk.found


class _LeafWalk(Walk):
    """Collects the leaves of a tree."""

    def __init__(self, found: TreeLeaves) -> None:
        super().__init__(SlashNotation(), opens_boxes=False)
        self.found = found
        self._logical: dict[str, Spec] = {}

    def enter(self, path: str, value: Any, entries: Entries) -> None:
        if not entries:
            self.found.empty_paths.append(path[1:])
        elif len(entries) == 1:
            names = logical_names(value)
            if names is not None:
                self._logical[path + entries[0][0]] = names

    def add_array(self, path: str, array: Any) -> None:
        logical = self._logical.get(path) if self._logical else None
        self.found.leaves.append(TreeLeaf(path[1:], array, logical))

    def add_other(self, path: str, value: Any) -> None:
        if issubclass(type(value), np.ndarray) and (found := array_like(value)) is not None:
            self.add_array(path, found)
        else:
            self.found.other_paths.append(path[1:])


class _EntryWalk(Walk):
    """Collects the entries of a tree of specs or shardings."""

    def __init__(self, is_entry: Callable[[Any], bool]) -> None:
        super().__init__(SlashNotation(), opens_boxes=False)
        self._is_entry = is_entry
        self.found: list[tuple[str, Any]] = []

    def visit(self, entries: Entries, path: str, ancestors: tuple[int, ...]) -> None:
        for key, entry in entries:
            if self._is_entry(entry):
                self.found.append(((path + key)[1:], entry))
            else:
                super().visit([(key, entry)], path, ancestors)

    def add_array(self, path: str, array: Any) -> None:
        self.add_other(path, array)

    def add_other(self, path: str, value: Any) -> None:
        self.found.append((path[1:], value))
