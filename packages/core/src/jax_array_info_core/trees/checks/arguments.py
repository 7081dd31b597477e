"""Arguments of a check, and the leaves that it cannot see."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays.plans import dtype_bits
from ...base.errors import SpecError, UnsupportedValueError
from ...base.quantities import counted
from ...base.text import plain_text
from ...compat import values
from ...compat.jitted import referents
from ...facts.reports.findings import Finding, FindingLeaf, Option, remedies
from ...facts.reports.tree import TreeMesh, TreeRow
from ...geometry.layouts.dtypes import name_of
from ...geometry.layouts.notation import as_nbytes
from ..specs import path_matches, unmatched_problem
from .findings import has_known_sharding
from .memory import MOMENTS


def checked_limit(max_replicated: Any) -> float:
    """Return a fraction from 0 to 1, or raise UnsupportedValueError."""
    try:
        limit = float(max_replicated)
    except (TypeError, ValueError):
        limit = -1.0
    if isinstance(max_replicated, str) or not 0 <= limit <= 1:
        raise UnsupportedValueError(
            "max_replicated must be a fraction of the bytes of the fullest device, from 0 to 1, "
            f"got {plain_text(max_replicated, repr)}"
        )
    return limit


def checked_nbytes(argument: str, nbytes: Any, names: Mapping[str, int] | None = None) -> int | None:
    """Return a positive number of bytes or None, or raise UnsupportedValueError.

    Args:
        argument: Name of the argument.
        nbytes: The number, a size, or one of the names.
        names: Names with their bytes.
    """
    return None if nbytes is None else _positive(argument, as_nbytes(argument, nbytes, names))


def checked_devices(devices: Any) -> int | None:
    """Return a positive number of devices or None, or raise UnsupportedValueError."""
    return None if devices is None else _positive("devices", devices)


def _positive(argument: str, value: Any) -> int:
    """Return a positive int, or raise UnsupportedValueError."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value <= 0:
        raise UnsupportedValueError(f"{argument} must be a positive integer, got {plain_text(value, repr)}")
    return int(value)


def checked_optimizer(optimizer: Any) -> str | None:
    """Return the name of a known optimizer or None, or raise UnsupportedValueError."""
    if optimizer is None or (isinstance(optimizer, str) and optimizer in MOMENTS):
        return optimizer
    known = ", ".join(map(repr, MOMENTS))
    raise UnsupportedValueError(
        f"optimizer must be one of {known}, got {plain_text(optimizer, repr)}: for another one, check the "
        "parameters with the state that jax.eval_shape(optimizer.init, params) returns"
    )


def checked_moment_dtype(moment_dtype: Any, optimizer: str | None) -> str | None:
    """Return the name of a dtype or None, or raise UnsupportedValueError."""
    if moment_dtype is None:
        return None
    if optimizer is None:
        raise UnsupportedValueError("moment_dtype needs optimizer, such as 'adam'")
    try:
        dtype_bits(moment_dtype)
    except SpecError as error:
        raise UnsupportedValueError(f"moment_dtype: {error}") from None
    name = name_of(moment_dtype)
    if name == "bool" or name.startswith("key<"):
        raise UnsupportedValueError(f"moment_dtype must be a dtype of numbers, such as float32, got {name}")
    return name


def known_axes(replicated_over: str | Iterable[str], meshes: Sequence[TreeMesh]) -> tuple[str, ...]:
    """Return the names of mesh axes, or raise UnsupportedValueError if a name is in no mesh of the tree.

    A tree without a mesh, as in a run on one device, accepts any name.
    """
    names = _names("replicated_over", replicated_over)
    known = dict.fromkeys(name for mesh in meshes if mesh.axes is not None for name in mesh.axes.names)
    for name in names:
        if known and name not in known:
            raise UnsupportedValueError(
                f"replicated_over: {name!r} is not a mesh axis of the tree: "
                f"its meshes have {', '.join(map(repr, known))}"
            )
    return names


def ignored_paths(ignore: str | Iterable[str], leaves: Sequence[Sequence[str]]) -> set[str]:
    """Return the paths of the leaves that match a pattern, or raise SpecError for a pattern without a match.

    Args:
        ignore: A pattern, or several.
        leaves: Path of each leaf, and its other paths.
    """
    patterns = _names("ignore", ignore)
    ignored: set[str] = set()
    problems = []
    for pattern in patterns:
        matching = [paths[0] for paths in leaves if any(path_matches(pattern, path) for path in paths)]
        ignored.update(matching)
        if not matching:
            problems.append(f"ignore: {unmatched_problem(pattern)}")
    if problems:
        raise SpecError(problems)
    return ignored


def _names(argument: str, names: Any) -> tuple[str, ...]:
    """Return one or several strings as a tuple, or raise UnsupportedValueError."""
    if isinstance(names, str):
        return (names,)
    try:
        known = tuple(names)
    except TypeError:
        known = (names,)
    if not all(isinstance(name, str) for name in known):
        raise UnsupportedValueError(f"{argument} must be a tuple of strings, got {plain_text(names, repr)}")
    return known


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
    rows: Sequence[TreeRow], opaque: Sequence[FindingLeaf], *, others: int, is_empty: bool
) -> Finding | None:
    """Return the finding on arrays that no other finding can be about.

    Args:
        rows: All leaves.
        opaque: Objects with arrays in them.
        others: Number of leaves that are not arrays.
        is_empty: Whether a tree without arrays is accepted.
    """
    if opaque:
        is_single = len(opaque) == 1
        return Finding(
            kind="not checked",
            problem=(
                f"{counted(len(opaque), 'leaf is an object', 'leaves are objects')} that JAX does not "
                f"flatten. The arrays in {'it' if is_single else 'them'} are not checked."
            ),
            **remedies(
                "Pass the arrays in {them}, or register the class as a pytree. To accept {them}, list the "
                "{paths} in {ignore}.",
                them="it" if is_single else "them",
                paths="path" if is_single else "paths",
                ignore=Option("ignore"),
            ),
            leaves=tuple(opaque),
        )
    if not rows and not is_empty:
        leaves = counted(others, "leaf that is not an array", "leaves that are not arrays")
        return Finding(
            kind="not checked",
            problem=f"The tree has no arrays{f', only {leaves}' if others else ''}: nothing was checked.",
            **remedies(
                "Pass a tree of arrays, or {option} if no arrays are intended.",
                option=Option("allow_empty", True),
            ),
        )
    if rows and not any(map(has_known_sharding, rows)):
        return Finding(
            kind="not checked",
            problem=f"The sharding of {'each leaf' if len(rows) > 1 else 'the leaf'} is unknown: nothing was "
            "checked.",
            remedy="Inside jit, XLA chooses it later: check the arrays that the compiled function returns.",
        )
    return None


def _has_array(value: Any) -> bool:
    """Return whether an object refers to a JAX array, directly or through objects other than functions."""
    objects = [value]
    known: set[int] = set()
    while objects and len(known) < _MAX_OBJECTS:
        new = []
        for thing in objects:
            if id(thing) in known or issubclass(type(thing), _NOT_SEARCHED):
                continue
            if values.is_array_type(thing):
                return True
            known.add(id(thing))
            new.append(thing)
        objects = referents(*new)
    return False
