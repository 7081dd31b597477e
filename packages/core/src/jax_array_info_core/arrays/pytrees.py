"""Reports on lists, tuples, dicts, dataclasses and other pytrees, with the path of each leaf."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..compat import values
from ..compat.arrays import array_like, attribute
from ..layouts import dtypes
from ..reports.array import ArrayReport, Leaf
from ..text import plain_text
from .boxes import children_of, content_of
from .objects import object_text

MAX_DEPTH = 100

Entries = list[tuple[str, Any]]
"""The entries of a container, each with its key in the notation of ``jax.tree_util.keystr``."""

_PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None)})


def container_report(value: Any, name: str | None) -> ArrayReport | None:
    """Return the report of a container; None if the value is not a container.

    Containers are pytrees. Sets, dataclasses, subclasses of dict, list and tuple that are not registered
    with JAX, and dicts with keys that cannot be sorted are containers too. A box is replaced by its content.
    The leaves are in JAX's order, and ``None`` is a leaf. The report of a set, or of a list without arrays,
    has no leaves.

    A container inside itself, which crashes JAX, is a leaf, and so is any container more than 100 levels
    deep.
    """
    entries = _entries_of(value)
    if entries is None:
        return None
    walk = _Walk()
    if not issubclass(type(value), (set, frozenset)):
        walk.visit(entries, "", (id(value),))
    has_leaves = walk.has_arrays or not issubclass(type(value), list)
    return ArrayReport(
        name=name,
        kind="container",
        type_name=values.type_name(value),
        length=len(entries),
        leaves=tuple(walk.leaves) if has_leaves else (),
    )


class _Walk:
    """A depth-first traversal of a container that collects its leaves."""

    def __init__(self) -> None:
        self.leaves: list[Leaf] = []
        self.has_arrays = False
        self._array_types: set[type] = set()
        self._array_text = functools.cache(dtypes.type_text)

    def visit(self, entries: Entries, path: str, ancestors: tuple[int, ...]) -> None:
        """Collect the leaves below the entries of one container.

        Args:
            entries: The entries.
            path: Path of the container.
            ancestors: The ``id`` of the container and of each container around it.
        """
        for key, entry in entries:
            cls = type(entry)
            if cls in _PLAIN:
                self.leaves.append(Leaf(path=path + key, type="None" if entry is None else cls.__name__))
            elif cls in self._array_types:
                self._add_array(path + key, entry)
            elif (content := content_of(entry)) is not entry:
                self.visit([(key, content)], path, ancestors)
            else:
                self._visit_other(entry, path + key, ancestors)

    def _visit_other(self, value: Any, path: str, ancestors: tuple[int, ...]) -> None:
        cls = type(value)
        is_leaf = id(value) in ancestors or len(ancestors) == MAX_DEPTH
        entries = None if is_leaf else _entries_of(value)
        if entries is not None:
            self.visit(entries, path, (*ancestors, id(value)))
        elif values.is_array_type(value) and (cls is np.ndarray or not issubclass(cls, np.ndarray)):
            # Cached by type. A subclass of np.ndarray is excluded: it may override any attribute.
            self._array_types.add(cls)
            self._add_array(path, value)
        elif (found := None if object_text(value) else array_like(value)) is not None:
            self._add_array(path, found)
        else:
            self.leaves.append(Leaf(path=path, type=object_text(value) or values.type_name(value)))

    def _add_array(self, path: str, array: Any) -> None:
        self.has_arrays = True
        self.leaves.append(Leaf(path=path, type=self._array_text(array.dtype, array.shape)))


def _sorted(keys: dict[Any, Any]) -> Iterable[Any]:
    """Return the keys of a dict in JAX's order, or in insertion order if they cannot be sorted."""
    try:
        return sorted(keys)
    except Exception:
        # Comparing keys may raise anything.
        return keys


def _key_text(key: Any) -> str:
    return repr(key) if type(key) in _PLAIN else plain_text(key, repr)


def _entries_of(value: Any) -> Entries | None:
    """Return the entries of a container in JAX's order; None if the value is not a container."""
    cls = type(value)
    # Most containers have one of these types; flattening them with JAX would be slower.
    if cls is list or cls is tuple:
        return [(f"[{number}]", entry) for number, entry in enumerate(value)]
    if cls is dict:
        return [(f"[{_key_text(key)}]", value[key]) for key in _sorted(value)]
    if cls in _PLAIN or issubclass(cls, type) or values.is_array_type(value):
        return None
    if values.is_partition_spec(value):  # a tuple up to JAX 0.5
        return None
    # A subclass may override the methods of set, dict, list and tuple, so the base class's are called.
    if issubclass(cls, (set, frozenset)):
        return [("", entry) for entry in (set if issubclass(cls, set) else frozenset).__iter__(value)]
    children = children_of(value)
    if children is not None:
        return children
    if dataclasses.is_dataclass(cls):
        fields = dataclasses.fields(cls)
        return [(f".{field.name}", attribute(value, field.name)) for field in fields]
    if issubclass(cls, dict):
        return [(f"[{plain_text(key, repr)}]", entry) for key, entry in dict.items(value)]
    if issubclass(cls, (list, tuple)):
        entries = (list if issubclass(cls, list) else tuple).__iter__(value)
        return [(f"[{number}]", entry) for number, entry in enumerate(entries)]
    return None
