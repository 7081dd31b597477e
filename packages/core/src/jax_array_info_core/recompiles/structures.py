"""Structures of arguments: the classes of the nodes, and their static fields."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

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
    """Return the structure of an argument."""
    import jax

    structure = jax.tree_util.tree_structure(value)
    try:
        nodes = tuple(_nodes(structure, serials))
    except Exception:
        # The static fields are of the user's classes.
        nodes = ()
    return Tree(hash(structure), nodes)


def _nodes(structure: Any, serials: Serials) -> Iterator[tuple[str, Static]]:
    """Yield class and static fields of the nodes. JAX's hash of a structure leaves the fields out."""
    waiting = [structure]
    for _ in range(_MOST_NODES):
        if not waiting:
            return
        node = waiting.pop()
        data = node.node_data()
        if data is None:
            continue
        kind, fields = data
        if kind not in PYTHON:
            yield kind.__qualname__, static_of(fields, serials)
        waiting += reversed(node.children())
