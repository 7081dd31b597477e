"""Conversion of partition specs and meshes of any form to plain values."""

from __future__ import annotations

import operator
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import SpecError, UnsupportedValueError
from ..text import plain_text
from .spec import MeshAxes, Spec

SpecLike = Sequence[str | Sequence[str] | None] | Spec
"""A PartitionSpec, or any sequence of None, mesh axis names and tuples of names."""


def as_spec(spec: Any) -> Spec:
    """Return a PartitionSpec, or a sequence of None, names and tuples of names, as a ``Spec``.

    Raises:
        SpecError: If ``spec`` is a str, such as ``"data"`` for ``("data",)``, or not a sequence.
    """
    if isinstance(spec, Spec):
        return spec
    if isinstance(spec, str):
        raise SpecError([f"{spec!r} is one name, not a spec: write ({spec!r},)"])
    try:
        entries = spec_entries(spec)
    except TypeError:
        found = plain_text(spec, repr)
        raise SpecError(
            [f"a spec must be a PartitionSpec or a sequence of None, names and tuples of names, got {found}"]
        ) from None
    unconstrained = _unconstrained()
    unreduced = getattr(spec, "unreduced", None)
    return Spec(
        tuple([() if entry is unconstrained else _names(entry) for entry in entries]),
        tuple([axis for axis, entry in enumerate(entries) if entry is unconstrained]),
        tuple(sorted(map(plain_text, unreduced))) if unreduced else (),
    )


def _names(entry: Any) -> tuple[str, ...]:
    """Return the mesh axes of one entry."""
    if entry is None:
        return ()
    return tuple(map(plain_text, entry)) if isinstance(entry, (tuple, list)) else (plain_text(entry),)


def spec_entries(spec: Any) -> tuple[Any, ...]:
    """Return the entries of a PartitionSpec; since JAX 0.10, some specs are not iterable."""
    return tuple(getattr(spec, "_partitions", spec))


def _unconstrained() -> object:
    """Return the entry ``PartitionSpec.UNCONSTRAINED``; if JAX is not loaded, an object equal to no entry."""
    jax = sys.modules.get("jax")
    return object() if jax is None else jax.sharding.PartitionSpec.UNCONSTRAINED


def mesh_sizes(mesh: Any) -> dict[str, int]:
    """Return the size of each mesh axis as an int: the given sizes may be NumPy integers.

    Args:
        mesh: A Mesh, an AbstractMesh, or the size of each mesh axis by name.

    Raises:
        SpecError: (a ValueError) If a size is not an integer.
        UnsupportedValueError: (a ValueError) If ``mesh`` is not a mesh.

    >>> mesh_sizes({"data": 4})
    {'data': 4}
    """
    if type(mesh) is dict and all(type(name) is str and type(mesh[name]) is int for name in mesh):
        return mesh
    sizes, problems = {}, []
    if isinstance(mesh, MeshAxes) or hasattr(mesh, "axis_names"):
        mesh = mesh.shape
    if not isinstance(mesh, Mapping):
        raise UnsupportedValueError(
            f"mesh must be a Mesh, an AbstractMesh or a mapping of axis names to sizes, got {type(mesh)}"
        )
    for name, size in mesh.items():
        text = plain_text(name)
        try:
            sizes[text] = int(operator.index(size))
        except TypeError:
            problems.append(
                f"the size of mesh axis {text!r} must be an integer, got {plain_text(size, repr)}"
            )
    if problems:
        raise SpecError(problems)
    return sizes
