"""Static arguments, closures and tree structures of a call as plain records."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import inspect
import itertools
import weakref
from collections.abc import Hashable, Iterator, Mapping
from itertools import islice
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType
from typing import Any, NamedTuple

import numpy as np

from ..arrays.paths import key_text
from ..compat.values import is_partition_spec, is_structure, type_name
from ..text import plain_text


class Serials:
    """A number for each object, never given twice, unlike ``id``."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._known: dict[int, tuple[weakref.ReferenceType[Any], int]] = {}

    def of(self, value: Any) -> int:
        """Return the number of an object: by its id, below 0, if it takes no weak references."""
        known = self._known.get(id(value))
        if known is not None and known[0]() is value:
            return known[1]
        number = next(self._numbers)
        try:
            reference = weakref.ref(value)
        except TypeError:
            return -id(value)
        if len(self._known) > 4096:
            self._known = {key: one for key, one in list(self._known.items()) if one[0]() is not None}
        self._known[id(value)] = reference, number
        return number


PYTHON = (dict, list, tuple, type(None))
"""Classes of Python's whose nodes have no static fields: the paths have all that distinguishes them."""
_MOST_PARTS = 200
_DEEPEST = 6
_LONGEST = 60


class Static(NamedTuple):
    """A static argument."""

    parts: dict[str, str]
    """Text of each plain value in it, by path: fields, items and keys. The root's path is empty."""

    key: Hashable
    """A value that is equal for arguments that JAX takes as equal."""

    kind: str
    """The name of its class."""

    @property
    def text(self) -> str:
        """The value as a whole; only the class of one that has parts."""
        return self.parts.get("", f"{self.kind} object")


def static_of(value: Any, serials: Serials) -> Static:
    """Return the record of a static argument."""
    parts = parts_of(value)
    return Static(parts, _key(value, serials), type_name(value))


def parts_of(value: Any) -> dict[str, str]:
    """Return the text of each plain value in a value, by path."""
    return dict(islice(_parts(value, "", 0), _MOST_PARTS))


def _key(value: Any, serials: Serials) -> Hashable:
    if getattr(type(value), "__hash__", None) is object.__hash__ or isinstance(value, FunctionType):
        return serials.of(value)
    try:
        return type(value).__qualname__, hash(value)
    except Exception:
        # JAX hashes it too, but the class is the user's.
        return None


def _parts(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each plain value."""
    children = None if depth == _DEEPEST else _children(value)
    if not children:
        yield path, _value_text(value)
        return
    for key, child in children.items():
        yield from _parts(child, f"{path}/{key_text(key)}", depth + 1)


def _children(value: Any) -> Mapping[Any, Any] | None:
    """Return the parts of a dataclass, a container of Python's or a tree's structure; None for others."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dict(_fields(value))
    if isinstance(value, tuple):
        return dict(enumerate(tuple.__iter__(value)))
    if type(value) is list:
        return dict(enumerate(value))
    if is_structure(value):
        data = value.node_data()
        fields = {} if data is None or data[0] in PYTHON else {data[0].__qualname__: data[1]}
        return fields | dict(enumerate(value.children()))
    return value if type(value) is dict else None


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each field that a dataclass stores. No property of the user's runs."""
    held = getattr(value, "__dict__", {})
    for field in dataclasses.fields(value):
        slot = inspect.getattr_static(type(value), field.name, None)
        if isinstance(slot, MemberDescriptorType):
            with contextlib.suppress(AttributeError):
                yield field.name, slot.__get__(value)
        elif field.name in held:
            yield field.name, held[field.name]


def _value_text(value: Any) -> str:
    kind = type(value)
    if kind in (str, bytes):
        text = repr(value[: _LONGEST + 1])
    elif kind is int and value.bit_length() > 4 * _LONGEST:
        text = f"an int of {value.bit_length()} bits"
    elif kind in (bool, int, float, complex, type(None), range, slice):
        text = repr(value)
    elif isinstance(value, np.dtype) or is_partition_spec(value):
        text = plain_text(value)
    elif isinstance(value, enum.Enum):
        text = f"{kind.__name__}.{value._name_}"
    elif isinstance(value, FunctionType | BuiltinFunctionType | type):
        text = plain_text(value.__qualname__)
    elif kind in (tuple, list, dict):
        text = f"{kind.__name__}()"
    elif is_structure(value):
        text = "a leaf" if value.num_leaves else "an empty node"
    else:
        text = f"{type_name(value)} object"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


_MOST_NODES = 10_000


class Tree(NamedTuple):
    """The structure of an argument."""

    shape: Hashable
    """A value that differs where the nesting or the classes of the nodes differ."""

    nodes: tuple[tuple[str, Static], ...]
    """Class and static fields of each node of a class outside Python."""


def tree_of(value: Any, serials: Serials) -> Tree:
    """Return the structure of an argument, or of an argument whose structure is given instead."""
    import jax

    structure = value if is_structure(value) else jax.tree_util.tree_structure(value)
    # The hashes of equal structures differ: JAX has other entries for classes in its own calls.
    kinds: list[Hashable] = [structure.num_nodes]
    try:
        nodes = tuple(_nodes(structure, serials, kinds))
    except Exception:
        # The static fields are of the user's classes.
        nodes = ()
    return Tree(hash(tuple(kinds)), nodes)


def _nodes(structure: Any, serials: Serials, kinds: list[Hashable]) -> Iterator[tuple[str, Static]]:
    """Yield class and static fields of the nodes, and add the class and the children of each to ``kinds``."""
    waiting = [structure]
    for _ in range(_MOST_NODES):
        if not waiting:
            return
        node = waiting.pop()
        data = node.node_data()
        if data is None:
            kinds.append(None)
            continue
        kind, fields = data
        children = node.children()
        kinds.append((kind, len(children)))
        if kind not in PYTHON:
            yield kind.__qualname__, static_of(fields, serials)
        waiting += reversed(children)
