"""Reports on lists, tuples, dicts, dataclasses and other pytrees, and the traversal of their leaves."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..compat import values
from ..compat.arrays import array_facts, array_like, attribute
from ..compat.shardings import object_text
from ..facts.reports.array import ArrayReport, ContainerLeaf
from ..geometry.layouts import dtypes
from .boxes import children_of, content_of
from .paths import KeystrNotation, Notation

MAX_DEPTH = 100

_MOST_SEARCHED = 1000
"""Maximum number of entries that are searched in an object."""

Entries = list[tuple[str, Any]]
"""The entries of a container, each with the text of its key."""

PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None)})


class Walk:
    """A depth-first traversal of a container, in JAX's order. A subclass handles the leaves.

    ``None`` is a leaf. A container inside itself, which crashes JAX, is a leaf, and so is any container more
    than 100 levels deep.

    Args:
        notation: Notation of the paths.
        opens_boxes: Whether a box is replaced by its content, so that its key is not in the path.
    """

    def __init__(self, notation: Notation, *, opens_boxes: bool) -> None:
        self._notation = notation
        self._opens_boxes = opens_boxes
        self._array_types: set[type] = set()
        self._described: dict[int, tuple[Any, Any]] = {}
        """Objects other than arrays, and their descriptions, by the ``id`` of the object."""

    def add_array(self, path: str, array: Any) -> None:
        """Handle an array, an abstract value or the facts of an array-like object."""

    def add_other(self, path: str, value: Any) -> None:
        """Handle a leaf that is not an array."""

    def enter(self, path: str, value: Any, entries: Entries) -> None:
        """Handle a container before its entries."""

    def start(self, value: Any) -> bool:
        """Traverse a container, and return whether the value is one."""
        entries = entries_of(value, self._notation)
        if entries is None:
            return False
        self.enter("", value, entries)
        self.visit(entries, "", (id(value),))
        return True

    def visit(self, entries: Entries, path: str, ancestors: tuple[int, ...]) -> None:
        """Handle the leaves below the entries of one container.

        Args:
            entries: The entries.
            path: Path of the container.
            ancestors: The ``id`` of the container and of each container around it.
        """
        for key, entry in entries:
            cls = type(entry)
            if cls in PLAIN:
                self.add_other(path + key, entry)
            elif cls in self._array_types:
                self.add_array(path + key, entry)
            elif self._opens_boxes and (content := content_of(entry)) is not entry:
                self.visit([(key, content)], path, ancestors)
            else:
                self._visit_other(entry, path + key, ancestors)

    def _visit_other(self, value: Any, path: str, ancestors: tuple[int, ...]) -> None:
        cls = type(value)
        is_leaf = id(value) in ancestors or len(ancestors) == MAX_DEPTH
        entries = None if is_leaf else entries_of(value, self._notation)
        if entries is not None:
            self.enter(path, value, entries)
            self.visit(entries, path, (*ancestors, id(value)))
        elif not self._opens_boxes and not is_leaf and (content := content_of(value)) is not value:
            self.enter(path, value, [("", content)])
            self.visit([("", content)], path, (*ancestors, id(value)))
        elif (leaf := self._once(value, leaf_of)) is not None:
            if leaf is value:
                self._array_types.add(cls)
            self.add_array(path, leaf)
        else:
            self.add_other(path, value)

    def _once(self, value: Any, describe: Callable[[Any], Any]) -> Any:
        """Return the description of a value, the same object for each path of the value."""
        if id(value) not in self._described:
            self._described[id(value)] = value, describe(value)
        return self._described[id(value)][1]


def leaf_of(value: Any) -> Any:
    """Return an array as it is, and the facts of any other value with a shape and a dtype; else None."""
    cls = type(value)
    if issubclass(cls, np.ndarray) and cls is not np.ndarray:
        # A subclass, such as np.memmap, may override any attribute.
        return np.ndarray.view(value, np.ndarray)
    if values.is_array_type(value):
        return value
    return None if object_text(value) else array_facts(value) or array_like(value)


def entries_of(value: Any, notation: Notation) -> Entries | None:
    """Return the entries of a container in JAX's order; None if the value is not a container.

    An array-like object that JAX does not flatten, such as an array of zarr, which is a dataclass, is a leaf,
    unless it has JAX arrays in it, such as a layer that states its shape and dtype.
    """
    entries = _registered_entries(value, notation)
    if entries is not None:
        return entries
    entries = _own_entries(value, notation)
    is_leaf = entries is not None and array_like(value) is not None and not _has_jax_array(entries, notation)
    return None if is_leaf else entries


def _registered_entries(value: Any, notation: Notation) -> Entries | None:
    """Return the entries of a pytree; None for any other value."""
    cls = type(value)
    # Most containers have one of these types; flattening them with JAX would be slower.
    if cls is list or cls is tuple:
        return [(notation.index(number), entry) for number, entry in enumerate(value)]
    if cls is dict:
        keys = _sorted(value)
        return list(zip(notation.items(keys), [value[key] for key in keys], strict=True))
    if cls in PLAIN or issubclass(cls, type) or values.is_array_type(value):
        return None
    if values.is_partition_spec(value):  # a tuple up to JAX 0.5
        return None
    children = children_of(value)
    if children is None:
        return None
    texts = notation.children([keys for keys, _ in children])
    return list(zip(texts, [child for _, child in children], strict=True))


def _own_entries(value: Any, notation: Notation) -> Entries | None:
    """Return the entries of a container that is not registered with JAX; None for any other value."""
    cls = type(value)
    if issubclass(cls, type) or values.is_array_type(value) or values.is_partition_spec(value):
        return None
    # A subclass may override the methods of set, dict, list and tuple, so the base class's are called.
    if issubclass(cls, (set, frozenset)):
        return [("", entry) for entry in (set if issubclass(cls, set) else frozenset).__iter__(value)]
    if dataclasses.is_dataclass(cls):
        fields = dataclasses.fields(cls)
        return [(notation.attribute(field.name), attribute(value, field.name)) for field in fields]
    if issubclass(cls, dict):
        pairs = list(dict.items(value))
        return list(
            zip(notation.items([key for key, _ in pairs]), [entry for _, entry in pairs], strict=True)
        )
    if issubclass(cls, (list, tuple)):
        entries = (list if issubclass(cls, list) else tuple).__iter__(value)
        return [(notation.index(number), entry) for number, entry in enumerate(entries)]
    return None


def _has_jax_array(entries: Entries, notation: Notation) -> bool:
    """Return whether a JAX array, or an abstract one, is among entries or below them."""
    pending, known = [entry for _, entry in entries], set[int]()
    while pending and len(known) < _MOST_SEARCHED:
        value = pending.pop()
        if id(value) in known:
            continue
        known.add(id(value))
        if values.is_array_type(value):
            if not issubclass(type(value), (np.ndarray, np.generic)):
                return True
            continue
        below = _registered_entries(value, notation) or _own_entries(value, notation) or ()
        pending += [entry for _, entry in below]
    return False


def _sorted(keys: dict[Any, Any]) -> list[Any]:
    """Return the keys of a dict in JAX's order, or in insertion order if they cannot be sorted."""
    try:
        return sorted(keys)
    except Exception:
        # Comparing keys may raise anything.
        return list(keys)


def container_report(value: Any, name: str | None) -> ArrayReport | None:
    """Return the report of a container; None if the value is not a container.

    Containers are pytrees. Sets, dataclasses, subclasses of dict, list and tuple that are not registered
    with JAX, and dicts with keys that cannot be sorted are containers too. A box is replaced by its content.
    The leaves are in JAX's order, and ``None`` is a leaf. The report of a set, or of a list without arrays,
    has no leaves.
    """
    walk = _LeafTexts()
    if not walk.start(value):
        return None
    cls = type(value)
    has_leaves = not issubclass(cls, (set, frozenset)) and (walk.has_arrays or not issubclass(cls, list))
    return ArrayReport(
        name=name,
        kind="container",
        type_name=values.type_name(value),
        length=walk.length,
        leaves=tuple(walk.leaves) if has_leaves else (),
    )


class _LeafTexts(Walk):
    """Collects the path and the type of each leaf."""

    def __init__(self) -> None:
        super().__init__(KeystrNotation(), opens_boxes=True)
        self.leaves: list[ContainerLeaf] = []
        self.has_arrays = False
        self.length = 0
        self._array_text = functools.cache(dtypes.type_text)

    def enter(self, path: str, value: Any, entries: Entries) -> None:
        if not path:
            self.length = self.length or len(entries)

    def add_array(self, path: str, array: Any) -> None:
        self.has_arrays = True
        self.leaves.append(ContainerLeaf(path=path, type=self._array_text(array.dtype, array.shape)))

    def add_other(self, path: str, value: Any) -> None:
        named = (type(value) not in PLAIN and object_text(value)) or values.type_name(value)
        self.leaves.append(ContainerLeaf(path=path, type="None" if value is None else named))
