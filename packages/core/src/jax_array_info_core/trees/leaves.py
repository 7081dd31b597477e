"""Leaves of a tree, with their paths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ..arrays.boxes import content_of, logical_names, variable_kind
from ..arrays.paths import SlashNotation
from ..arrays.walk import MAX_DEPTH, PLAIN, Entries, Walk, leaf_of
from ..base.errors import UnsupportedValueError
from ..compat import values
from ..geometry.layouts.spec import Spec

if TYPE_CHECKING:
    from ..facts.reports.tree import VariableKind


class TreeLeaf(NamedTuple):
    """An array leaf of a tree."""

    path: str
    """Keys joined by ``/``."""

    value: Any
    """The array, the abstract value, or the facts of an array-like object; without a box."""

    logical: Spec | None
    """Logical axis names from the box around the leaf."""

    full_path: str | None = None
    """Path with the keys of boxes, as in JAX; None if there are none."""

    variable: VariableKind | None = None
    """Kind of the variable of Flax nnx around the leaf."""


@dataclass(frozen=True, slots=True)
class Structure:
    """The paths of a tree of dicts, lists and tuples, which depend only on its treedef."""

    paths: tuple[str, ...]
    """Path of each leaf that JAX flattens the tree to."""

    none_paths: tuple[str, ...]
    """Paths of None, which JAX does not count as a leaf."""

    empty_paths: tuple[str, ...]
    """Paths of containers without entries."""


@dataclass(slots=True)
class TreeLeaves:
    """The leaves of a tree."""

    type_name: str
    """Name of the tree's class."""

    leaves: list[TreeLeaf] = field(default_factory=list)
    """The array leaves, in JAX's order."""

    other_paths: list[str] = field(default_factory=list)
    """Paths of leaves that are not arrays, without those of None."""

    none_paths: list[str] = field(default_factory=list)
    """Paths of None, which JAX does not count as a leaf."""

    objects: list[tuple[str, Any]] = field(default_factory=list)
    """Path and value of each of these leaves that is neither a number nor a string."""

    empty_paths: list[str] = field(default_factory=list)
    """Paths of containers without entries."""

    structure: Structure | None = None
    """The structure of the tree, one object for all trees of equal structure; None for other containers."""

    @property
    def side_paths(self) -> tuple[str, ...]:
        """Paths at which the tree has no array."""
        return (*self.other_paths, *self.none_paths, *self.empty_paths)


def tree_leaves(tree: Any) -> TreeLeaves:
    """Return the leaves of a tree. A single array is a tree of one leaf with the path ``""``.

    The key of a box around one leaf, such as that of ``nn.Partitioned``, is not in the path.
    """
    leaves = _leaves_of_plain_tree(tree)
    if leaves is not None:
        return leaves
    walk = _LeafWalk(TreeLeaves(values.type_name(tree)))
    if not walk.start(tree):
        leaf = leaf_of(content_of(tree))
        if leaf is None:
            walk.add_other("", tree)
        else:
            walk.found.leaves.append(TreeLeaf("", leaf, logical_names(tree), None, variable_kind(tree)))
    return walk.found


def is_tree(value: Any) -> bool:
    """Return whether a value is a container with an array in it, as ``sharding_info`` prints as a table.

    A box around one array is not a container.
    """
    content = content_of(value)
    if values.is_array_type(content):
        return False
    try:
        _FirstArrayWalk(SlashNotation(), opens_boxes=False).start(content)
    except _ArrayFound:
        return True
    return False


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


_STRUCTURES: dict[Any, Structure] = {}
"""Structures by treedef, for the trees that are reported again and again, such as a training state."""
_MAX_STRUCTURES = 256


def _leaves_of_plain_tree(tree: Any) -> TreeLeaves | None:
    """Return the leaves of a tree of dicts, lists and tuples; None for other containers.

    JAX flattens such a tree several times faster than the walk. Its paths are read once for each treedef.
    """
    import jax

    if type(tree) not in (dict, list, tuple) or not _is_plain(tree, 0):
        return None
    try:
        leaves, treedef = jax.tree_util.tree_flatten(tree)
    except Exception:
        # Keys that are equal and not identical, for example, may raise anything.
        return None
    structure = _STRUCTURES.get(treedef)
    if structure is None:
        walk = _LeafWalk(TreeLeaves(""))
        walk.start(jax.tree_util.tree_unflatten(treedef, range(len(leaves))))
        nones = tuple(path for path, value in walk.others if value is None)
        path_of = {value: path for path, value in walk.others if value is not None}
        paths = tuple(path_of[number] for number in range(len(leaves)))
        structure = Structure(paths, nones, tuple(walk.found.empty_paths))
        if len(_STRUCTURES) >= _MAX_STRUCTURES:
            _STRUCTURES.clear()
        _STRUCTURES[treedef] = structure
    read = TreeLeaves(values.type_name(tree), structure=structure)
    for path, leaf in zip(structure.paths, leaves, strict=True):
        if type(leaf) in PLAIN:
            read.other_paths.append(path)
        else:
            read.leaves.append(TreeLeaf(path, leaf, None))
    read.none_paths += structure.none_paths
    read.empty_paths += structure.empty_paths
    return read


def _is_plain(container: Any, depth: int) -> bool:
    """Return whether a container has only arrays, numbers, and dicts with str keys, lists and tuples."""
    if depth > MAX_DEPTH:
        return False  # it may contain itself
    if type(container) is dict:
        if not {str}.issuperset(map(type, container)):
            return False
        container = container.values()
    for cls in set(map(type, container)):
        if cls in (dict, list, tuple):
            if not all(_is_plain(entry, depth + 1) for entry in container if type(entry) is cls):
                return False
        elif cls not in PLAIN and not values.is_plain_array_type(cls):
            return False
    return True


class _BoxWalk(Walk):
    """Knows the paths without the keys of boxes."""

    def __init__(self) -> None:
        super().__init__(SlashNotation(), opens_boxes=False)
        self._cut: dict[str, str] = {}

    def enter(self, path: str, value: Any, entries: Entries) -> None:
        if len(entries) == 1 and content_of(value) is not value:
            self._cut[path + entries[0][0]] = self._cut.get(path, path)

    def path_of(self, full_path: str) -> str:
        """Return the path of a leaf without the keys of the boxes around it."""
        return self._cut.get(full_path, full_path)[1:]


class _LeafWalk(_BoxWalk):
    """Collects the leaves of a tree."""

    def __init__(self, collected: TreeLeaves) -> None:
        super().__init__()
        self.found = collected
        self.others: list[tuple[str, Any]] = []
        self._logical: dict[str, Spec] = {}
        self._variables: dict[str, VariableKind] = {}

    def enter(self, path: str, value: Any, entries: Entries) -> None:
        super().enter(path, value, entries)
        if not entries:
            self.found.empty_paths.append(path[1:])
        elif len(entries) == 1:
            names = logical_names(value)
            if names is not None:
                self._logical[path + entries[0][0]] = names
            kind = variable_kind(value)
            if kind is not None:
                self._variables[path + entries[0][0]] = kind

    def add_array(self, path: str, array: Any) -> None:
        logical = self._logical.get(path) if self._logical else None
        shown_path = self.path_of(path)
        full_path = None if shown_path == path[1:] else path[1:]
        self.found.leaves.append(TreeLeaf(shown_path, array, logical, full_path, self._variables.get(path)))

    def add_other(self, path: str, value: Any) -> None:
        self.others.append((self.path_of(path), value))
        if value is None:
            self.found.none_paths.append(self.path_of(path))
            return
        self.found.other_paths.append(self.path_of(path))
        if type(value) not in PLAIN:
            self.found.objects.append((self.path_of(path), value))


class _ArrayFound(Exception):  # noqa: N818  # ends the walk; not an error
    """Raised at the first array."""


class _FirstArrayWalk(Walk):
    """Ends at the first array, with an exception."""

    def add_array(self, path: str, array: Any) -> None:
        raise _ArrayFound


class _EntryWalk(_BoxWalk):
    """Collects the entries of a tree of specs or shardings."""

    def __init__(self, is_entry: Callable[[Any], bool]) -> None:
        super().__init__()
        self._is_entry = is_entry
        self.found: list[tuple[str, Any]] = []

    def visit(self, entries: Entries, path: str, ancestors: tuple[int, ...]) -> None:
        for key, entry in entries:
            if self._is_entry(entry):
                self.found.append((self.path_of(path + key), entry))
            else:
                super().visit([(key, entry)], path, ancestors)

    def add_array(self, path: str, array: Any) -> None:
        self.add_other(path, array)

    def add_other(self, path: str, value: Any) -> None:
        self.found.append((self.path_of(path), value))


def require_tree(value: Any) -> None:
    """Raise UnsupportedValueError for a value that is neither an array nor a container, such as None."""
    from ..facts.reports.tree import TreeReport  # panels of single arrays do not need it

    if type(value) is TreeReport:
        return
    leaves = tree_leaves(value)
    if [*leaves.other_paths, *leaves.none_paths] == [""]:
        raise UnsupportedValueError(f"expected a tree of arrays, got {type(value)}")
