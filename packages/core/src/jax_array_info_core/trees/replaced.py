"""Trees with other leaves, for containers that JAX flattens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..arrays.walk import MAX_DEPTH, PLAIN
from ..compat import values

_NNX_OBJECTS = ("Object", "Pytree", "Variable")
"""Base classes in Flax NNX. Pytree was Object before flax 0.12."""


def flat_leaves(tree: Any, ancestors: tuple[int, ...] = ()) -> Iterator[Any]:
    """Yield the leaves to which JAX flattens a tree.

    A container inside itself, which crashes JAX, is a leaf. So are a container that JAX cannot flatten, and
    the objects and variables of Flax NNX.
    """
    children, _ = _flattened_once(tree, ancestors)
    if children is None:
        yield tree
        return
    for child in children:
        yield from flat_leaves(child, (*ancestors, id(tree)))


def with_leaves(tree: Any, leaves: Mapping[int, Any], ancestors: tuple[int, ...] = ()) -> Any:
    """Return a tree with other leaves. Containers without one of them stay the same objects.

    Args:
        tree: The tree.
        leaves: The new leaves by the ``id`` of the old ones.
        ancestors: The ``id`` of each container around the tree.
    """
    if not leaves or id(tree) in leaves:
        return leaves.get(id(tree), tree)
    children, treedef = _flattened_once(tree, ancestors)
    if children is None:
        return tree
    replaced = [with_leaves(child, leaves, (*ancestors, id(tree))) for child in children]
    if all(new is old for new, old in zip(replaced, children, strict=True)):
        return tree
    return treedef.unflatten(replaced)


def _has_identity(cls: type) -> bool:
    """Return whether the identity of the objects of a class matters, as for the modules of Flax NNX.

    NNX transformations return the updates of the objects that they passed to a function. A copy would lose
    them, and the same submodule in two places would become two.
    """
    bases = [base for base in cls.__mro__ if str(base.__module__).startswith("flax.nnx.")]
    return any(base.__name__ in _NNX_OBJECTS for base in bases)


def _flattened_once(container: Any, ancestors: tuple[int, ...]) -> tuple[list[Any] | None, Any]:
    """Return the children of a container and its treedef; None for a leaf."""
    import jax

    is_leaf = type(container) in PLAIN or values.is_array_type(container) or id(container) in ancestors
    if is_leaf or len(ancestors) == MAX_DEPTH or _has_identity(type(container)):
        return None, None
    # False for the container itself, True for each of its children.
    stops = iter([False])
    try:
        children, treedef = jax.tree_util.tree_flatten(container, is_leaf=lambda _: next(stops, True))
    except Exception:
        # Keys may not be sortable, and the flatten function of a registered class may raise anything.
        return None, None
    return (None, None) if jax.tree_util.treedef_is_leaf(treedef) else (children, treedef)
