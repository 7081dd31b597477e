"""Depth-first traversal of containers: pytrees, and the containers that JAX does not register."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from ..compat import values
from ..compat.arrays import array_like, attribute
from .boxes import children_of, content_of
from .objects import object_text
from .paths import Notation

MAX_DEPTH = 100

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
        elif issubclass(cls, np.ndarray) and cls is not np.ndarray:
            self.add_array(path, self._once(value, _plain_view))
        elif values.is_array_type(value):
            self._array_types.add(cls)
            self.add_array(path, value)
        elif not self._opens_boxes and not is_leaf and (content := content_of(value)) is not value:
            self.enter(path, value, [("", content)])
            self.visit([("", content)], path, (*ancestors, id(value)))
        elif (found := self._once(value, _array_like)) is not None:
            self.add_array(path, found)
        else:
            self.add_other(path, value)

    def _once(self, value: Any, describe: Callable[[Any], Any]) -> Any:
        """Return the description of a value, the same object for each path of the value."""
        known = self._described.get(id(value))
        if known is None:
            known = self._described[id(value)] = value, describe(value)
        return known[1]


def _plain_view(array: Any) -> np.ndarray[Any, Any]:
    """Return the array of an instance of a subclass, such as np.memmap, which may override any attribute."""
    return np.ndarray.view(array, np.ndarray)


def _array_like(value: Any) -> Any:
    """Return the facts of an array-like object; None for another object."""
    return None if object_text(value) else array_like(value)


def entries_of(value: Any, notation: Notation) -> Entries | None:
    """Return the entries of a container in JAX's order; None if the value is not a container."""
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
    # A subclass may override the methods of set, dict, list and tuple, so the base class's are called.
    if issubclass(cls, (set, frozenset)):
        return [("", entry) for entry in (set if issubclass(cls, set) else frozenset).__iter__(value)]
    children = children_of(value)
    if children is not None:
        texts = notation.children([keys for keys, _ in children])
        return list(zip(texts, [child for _, child in children], strict=True))
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


def _sorted(keys: dict[Any, Any]) -> list[Any]:
    """Return the keys of a dict in JAX's order, or in insertion order if they cannot be sorted."""
    try:
        return sorted(keys)
    except Exception:
        # Comparing keys may raise anything.
        return list(keys)
