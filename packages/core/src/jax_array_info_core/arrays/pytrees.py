"""Lists, tuples, dicts, dataclasses and other pytrees → their leaves, each with its path."""

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
"""The entries of a container, each with its key as ``jax.tree_util.keystr`` writes it."""

_PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None)})


def container_report(value: Any, name: str | None) -> ArrayReport | None:
    """Return what a container holds; None for what is no container.

    Containers are what JAX flattens, and beyond that sets, dataclasses and kinds of dict, list and
    tuple that it does not know, and dicts whose keys it cannot sort. A box is shown as what it holds. The
    leaves are in JAX's order, with ``None`` as a leaf; a set has none, nor a list without arrays.

    A container that holds itself, which crashes JAX, appears as a leaf where it comes up again, and so
    does what is nested deeper than 100 levels.
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
    """A walk through a container, which collects its leaves."""

    def __init__(self) -> None:
        self.leaves: list[Leaf] = []
        self.has_arrays = False
        self._array_types: set[type] = set()
        self._array_text = functools.cache(dtypes.type_text)

    def visit(self, entries: Entries, path: str, above: tuple[int, ...]) -> None:
        """Collect the leaves below some entries.

        Args:
            entries: The entries of one container.
            path: The path to it.
            above: The ``id`` of that container and of those that it is in.
        """
        for key, entry in entries:
            kind = type(entry)
            if kind in _PLAIN:
                self.leaves.append(Leaf(path=path + key, type="None" if entry is None else kind.__name__))
            elif kind in self._array_types:
                self._add_array(path + key, entry)
            elif (content := content_of(entry)) is not entry:
                self.visit([(key, content)], path, above)
            else:
                self._visit_other(entry, path + key, above)

    def _visit_other(self, value: Any, path: str, above: tuple[int, ...]) -> None:
        kind = type(value)
        inside = None if id(value) in above or len(above) == MAX_DEPTH else _entries_of(value)
        if inside is not None:
            self.visit(inside, path, (*above, id(value)))
        elif values.is_array_type(value) and (kind is np.ndarray or not issubclass(kind, np.ndarray)):
            # Which of them it is depends on the type alone. A subclass of numpy's may say anything.
            self._array_types.add(kind)
            self._add_array(path, value)
        elif (found := None if object_text(value) else array_like(value)) is not None:
            self._add_array(path, found)
        else:
            self.leaves.append(Leaf(path=path, type=object_text(value) or values.type_name(value)))

    def _add_array(self, path: str, array: Any) -> None:
        self.has_arrays = True
        self.leaves.append(Leaf(path=path, type=self._array_text(array.dtype, array.shape)))


def _sorted(keys: dict[Any, Any]) -> Iterable[Any]:
    """Return the keys of a dict in JAX's order; in their own where they cannot be sorted."""
    try:
        return sorted(keys)
    except Exception:
        # The comparison of a key may raise anything.
        return keys


def _key_text(key: Any) -> str:
    return repr(key) if type(key) in _PLAIN else plain_text(key, repr)


def _entries_of(value: Any) -> Entries | None:
    """Return the entries of a container in JAX's order; None for what is no container."""
    kind = type(value)
    # These make up most trees, and need not be flattened by JAX.
    if kind is list or kind is tuple:
        return [(f"[{number}]", entry) for number, entry in enumerate(value)]
    if kind is dict:
        return [(f"[{_key_text(key)}]", value[key]) for key in _sorted(value)]
    if kind in _PLAIN or issubclass(kind, type) or values.is_array_type(value):
        return None
    if values.is_partition_spec(value):  # a tuple up to jax 0.5
        return None
    # The methods of the base class: a subclass may override them with what raises.
    if issubclass(kind, (set, frozenset)):
        return [("", entry) for entry in (set if issubclass(kind, set) else frozenset).__iter__(value)]
    children = children_of(value)
    if children is not None:
        return children
    if dataclasses.is_dataclass(kind):
        fields = dataclasses.fields(kind)
        return [(f".{field.name}", attribute(value, field.name)) for field in fields]
    if issubclass(kind, dict):
        return [(f"[{plain_text(key, repr)}]", entry) for key, entry in dict.items(value)]
    if issubclass(kind, (list, tuple)):
        entries = (list if issubclass(kind, list) else tuple).__iter__(value)
        return [(f"[{number}]", entry) for number, entry in enumerate(entries)]
    return None
