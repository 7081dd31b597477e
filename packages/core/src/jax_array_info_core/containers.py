"""What stands in a list, tuple, dict, dataclass or other pytree: its leaves and where they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from . import compat, values
from .model import Leaf
from .units import plain_text

MAX_DEPTH = 100

Entries = list[tuple[str, Any]]
"""The entries of a container, each with its key as ``jax.tree_util.keystr`` writes it."""


def entries_of(value: Any) -> Entries | None:
    """Return the entries of a container in JAX's order; None for what is no container.

    Containers are what JAX flattens, and beyond that sets, dataclasses and kinds of dict, list and
    tuple that it does not know, and dicts whose keys it cannot sort.
    """
    import jax

    kind = type(value)
    if value is None or issubclass(kind, type) or values.is_array_type(value):
        return None
    # The methods of the base class: a subclass may override them with what raises.
    if issubclass(kind, (set, frozenset)):
        return [("", entry) for entry in (set if issubclass(kind, set) else frozenset).__iter__(value)]
    # Whatever is asked about after the container itself is a leaf, even the container again.
    is_leaf = iter([False])
    try:
        pairs, _ = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda _: next(is_leaf, True))
    except Exception:
        # Keys that cannot be sorted, or whatever the flatten function of a registered class raises.
        pairs = [((), value)]
    if len(pairs) != 1 or pairs[0][0] != ():
        return [(plain_text(keys, jax.tree_util.keystr), entry) for keys, entry in pairs]
    if dataclasses.is_dataclass(kind):
        fields = dataclasses.fields(kind)
        return [(f".{field.name}", compat.attribute(value, field.name)) for field in fields]
    if issubclass(kind, dict):
        return [(f"[{plain_text(key, repr)}]", entry) for key, entry in dict.items(value)]
    if issubclass(kind, (list, tuple)):
        entries = (list if issubclass(kind, list) else tuple).__iter__(value)
        return [(f"[{number}]", entry) for number, entry in enumerate(entries)]
    return None


def leaves_of(value: Any) -> tuple[Leaf, ...]:
    """Return the leaves of a container in JAX's order, none of a list or set; ``None`` is a leaf here.

    A container that holds itself, which crashes JAX, appears as a leaf where it comes up again, and so
    does what is nested deeper than 100 levels.
    """
    if issubclass(type(value), (list, set, frozenset)):
        return ()
    return tuple(_walk(value, "", ()))


def _walk(value: Any, path: str, above: tuple[int, ...]) -> Iterator[Leaf]:
    entries = None if id(value) in above or len(above) == MAX_DEPTH else entries_of(value)
    if entries is None:
        yield Leaf(path, _describe(value))
    else:
        for key, entry in entries:
            yield from _walk(entry, path + key, (*above, id(value)))


def _describe(leaf: Any) -> str:
    found = compat.array_like(leaf)
    if found is not None:
        return f"{found.dtype}[{','.join(map(str, found.shape))}]"
    return "None" if leaf is None else values.type_name(leaf)
