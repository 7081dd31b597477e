"""What stands in a list, tuple, dict, dataclass or other pytree: its leaves and where they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from . import dtypes, values
from .model import Leaf

MAX_DEPTH = 100

Entries = list[tuple[str, Any]]
"""The entries of a container, each with its key as ``jax.tree_util.keystr`` writes it."""


def entries_of(value: Any) -> Entries | None:
    """Return the entries of a container in JAX's order; None for what is no container.

    Containers are what JAX flattens, and beyond that sets, dataclasses and kinds of dict, list and
    tuple that it does not know, and dicts whose keys it cannot sort.
    """
    import jax

    if value is None or isinstance(value, type) or values.is_array_type(value):
        return None
    if isinstance(value, (set, frozenset)):
        return [("", entry) for entry in value]
    # Whatever is asked about after the container itself is a leaf, even the container again.
    is_leaf = iter([False])
    try:
        pairs, _ = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda _: next(is_leaf, True))
    except (TypeError, ValueError):
        pairs = [((), value)]
    if len(pairs) != 1 or pairs[0][0] != ():
        return [(jax.tree_util.keystr(keys), entry) for keys, entry in pairs]
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return [(f".{field.name}", getattr(value, field.name, None)) for field in fields]
    if isinstance(value, dict):
        return [(f"[{key!r}]", entry) for key, entry in value.items()]
    if isinstance(value, (list, tuple)):
        return [(f"[{number}]", entry) for number, entry in enumerate(value)]
    return None


def leaves_of(value: Any) -> tuple[Leaf, ...]:
    """Return the leaves of a container in JAX's order, none of a list or set; ``None`` is a leaf here.

    A container that holds itself, which crashes JAX, appears as a leaf where it comes up again, and so
    does what is nested deeper than 100 levels.
    """
    if isinstance(value, (list, set, frozenset)):
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
    shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None:
        return dtypes.type_text(dtype, shape)
    return "None" if leaf is None else type(leaf).__name__
