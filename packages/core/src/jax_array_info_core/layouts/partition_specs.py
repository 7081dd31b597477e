"""Conversion of partition specs of any form to ``Spec``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ..errors import SpecError
from ..text import plain_text
from .spec import Spec

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
