"""Boxes: objects around one value, such as flax's ``nnx.Param`` and ``nn.Partitioned``.

They are known by what they look like, so that no library is imported for them.
"""

from __future__ import annotations

import contextlib
import inspect
from types import MemberDescriptorType
from typing import Any

from ..compat import values
from ..text import plain_text

_DEEPEST = 10
_MISSING = object()
_NOT_BOXES = (dict, list, tuple, set, frozenset, str, bytes, int, float, complex, type, type(None))


def content_of(value: Any) -> Any:
    """Return what a box holds; any other value itself, and a box that holds itself.

    Of boxes in each other it is what the innermost holds. A box is a pytree whose only child is its
    attribute ``value``, as ``nn.Partitioned`` is, or an object that JAX takes for a leaf and that keeps a
    ``raw_value``, as ``nnx.Param`` is before flax 0.12. The stored value is read: no property and no hook
    is run.
    """
    content = value
    for _ in range(_DEEPEST):
        known = issubclass(type(content), _NOT_BOXES) or values.is_array_type(content)
        found = () if known else _stored(content)
        if not found:
            return content
        content = found[0]
    return value


def _stored(box: Any) -> tuple[Any, ...]:
    """Return the value that a box keeps; nothing where the object is no box."""
    children = children_of(box)
    if children is None:
        return _attribute(box, "raw_value")
    return (children[0][1],) if [key for key, _ in children] == [".value"] else ()


def children_of(value: Any) -> list[tuple[str, Any]] | None:
    """Return the children of a pytree, each with its key as JAX writes it; None for a leaf."""
    import jax

    # Whatever is asked about after the pytree itself is a leaf, even the pytree again.
    is_leaf = iter([False])
    try:
        pairs, _ = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda _: next(is_leaf, True))
    except Exception:
        # Keys that cannot be sorted, or whatever the flatten function of a registered class raises.
        return None
    if len(pairs) == 1 and pairs[0][0] == ():
        return None
    return [(plain_text(keys, jax.tree_util.keystr), child) for keys, child in pairs]


def _attribute(box: Any, name: str) -> tuple[Any, ...]:
    """Return an attribute that is stored on an object; nothing where there is none, or it is computed."""
    kept = inspect.getattr_static(box, name, _MISSING)
    if isinstance(kept, MemberDescriptorType):
        with contextlib.suppress(AttributeError):
            return (kept.__get__(box),)
    return () if kept is _MISSING or hasattr(type(kept), "__get__") else (kept,)
