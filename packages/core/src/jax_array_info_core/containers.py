"""What stands in a list, tuple, dict, dataclass or other pytree: its leaves and where they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from .model import Leaf


def is_container(value: object) -> bool:
    """Return whether a value holds others: a list, tuple, dict, dataclass or registered pytree."""
    import jax

    if isinstance(value, (list, tuple, dict, set, frozenset)) or _is_dataclass(value):
        return True
    return not jax.tree_util.all_leaves([value])


def entry_count(value: Any) -> int:
    """Return how many entries a container has: ``len`` where it has one, else its fields or children."""
    if hasattr(value, "__len__"):
        return len(value)
    return len(dataclasses.fields(value)) if _is_dataclass(value) else len(leaves_of(value))


def leaves_of(value: Any) -> tuple[Leaf, ...]:
    """Return the leaves of a container in the order in which JAX flattens it; none of a list or set.

    ``None`` is a leaf here. A dataclass that JAX does not know is opened like one that it does.
    """
    if isinstance(value, (list, set, frozenset)):
        return ()
    return tuple(Leaf(path, _describe(leaf)) for path, leaf in _flatten(value, ""))


def _flatten(value: Any, prefix: str) -> Iterable[tuple[str, Any]]:
    import jax

    if _is_dataclass(value) and jax.tree_util.all_leaves([value]):
        for field in dataclasses.fields(value):
            path = f"{prefix}.{field.name}"
            yield from _flatten(getattr(value, field.name, None), path)
        return
    try:
        pairs, _ = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda node: node is None)
    except (TypeError, ValueError):
        # Keys of a dict that cannot be sorted, which JAX refuses as a pytree.
        pairs = []
        if isinstance(value, dict):
            for key, entry in value.items():
                yield from _flatten(entry, f"{prefix}[{key!r}]")
    for keys, leaf in pairs:
        where = prefix + jax.tree_util.keystr(keys)
        if leaf is not value and _is_dataclass(leaf):
            yield from _flatten(leaf, where)
        else:
            yield where, leaf


def _is_dataclass(value: object) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "dtype")


def _describe(leaf: Any) -> str:
    shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None:
        return f"{dtype}[{','.join(map(str, shape))}]"
    return "None" if leaf is None else type(leaf).__name__
