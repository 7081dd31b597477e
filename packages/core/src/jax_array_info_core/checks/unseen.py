"""Arrays that a check does not see: objects that JAX does not flatten, and trees without arrays."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..compat import values
from ..compat.referents import referents
from ..quantities import counted
from ..reports.checks import Finding, FindingLeaf
from ..reports.tree import TreeRow

_MAX_OBJECTS = 10_000
"""Maximum number of objects that are searched in one leaf."""
_NOT_SEARCHED = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    np.generic,
    np.ndarray,
)


def opaque_leaves(objects: Sequence[tuple[str, Any]]) -> list[FindingLeaf]:
    """Return the objects among the leaves of a tree that have JAX arrays in them.

    Args:
        objects: Path and value of each leaf that is neither an array nor a number, a string or None.
    """
    return [
        FindingLeaf(path=path, shape=(), dtype="", type_name=values.type_name(value))
        for path, value in objects
        if _has_array(value)
    ]


def not_checked(
    rows: Sequence[TreeRow], opaque: Sequence[FindingLeaf], unknown_count: int, *, others: int, is_empty: bool
) -> Finding | None:
    """Return the finding on arrays that no other finding can be about.

    Args:
        rows: All leaves.
        opaque: Objects with arrays in them.
        unknown_count: Number of leaves whose sharding is unknown.
        others: Number of leaves that are not arrays.
        is_empty: Whether a tree without arrays is accepted.
    """
    if opaque:
        one = len(opaque) == 1
        return Finding(
            kind="not checked",
            problem=(
                f"{counted(len(opaque), 'leaf is an object', 'leaves are objects')} that JAX does not "
                f"flatten. The arrays in {'it' if one else 'them'} are not checked."
            ),
            remedy=(
                f"Pass the arrays in {'it' if one else 'them'}, or register the class as a pytree. To accept "
                f"{'it' if one else 'them'}, list the {'path' if one else 'paths'} in ignore."
            ),
            leaves=tuple(opaque),
        )
    if not rows and not is_empty:
        leaves = counted(others, "leaf that is not an array", "leaves that are not arrays")
        return Finding(
            kind="not checked",
            problem=f"The tree has no arrays{f', only {leaves}' if others else ''}: nothing was checked.",
            remedy="Pass a tree of arrays, or allow_empty=True if no arrays are intended.",
        )
    if rows and unknown_count == len(rows):
        return Finding(
            kind="not checked",
            problem=f"The sharding of {'each leaf' if len(rows) > 1 else 'the leaf'} is unknown: nothing was "
            "checked.",
            remedy="Inside jit, XLA chooses it later: check the arrays that the compiled function returns.",
        )
    return None


def _has_array(value: Any) -> bool:
    """Return whether an object refers to a JAX array, directly or through objects other than functions."""
    found = [value]
    known: set[int] = set()
    while found and len(known) < _MAX_OBJECTS:
        new = []
        for thing in found:
            if id(thing) in known or issubclass(type(thing), _NOT_SEARCHED):
                continue
            if values.is_array_type(thing):
                return True
            known.add(id(thing))
            new.append(thing)
        found = referents(*new)
    return False
