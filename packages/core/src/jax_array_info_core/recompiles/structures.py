"""Structures of arguments: the classes of the nodes, and their static fields."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

from ..compat.values import is_structure
from .serials import Serials
from .statics import PYTHON, Static, static_of

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
