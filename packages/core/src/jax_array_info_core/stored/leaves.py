"""Leaves and trees as files describe them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..layouts.spec import MeshAxes, Spec

Progress = Callable[[int, int], None]
"""Is called with the number of parts that were read, and the number of all parts."""


@dataclass(frozen=True, slots=True)
class StoredSharding:
    """The sharding of a leaf, as a file describes it."""

    type: str
    """Class name, such as ``NamedSharding``."""

    spec: Spec | None = None
    """The PartitionSpec of a NamedSharding."""

    mesh: MeshAxes | None = None
    """The mesh of a NamedSharding."""

    device_ids: tuple[int, ...] | None = None
    """Ids of the devices, in the order of the mesh; None for its positions 0…n−1."""

    memory_kind: str | None = None
    """Memory kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLeaf:
    """An array in a file."""

    path: str
    """Keys from the root to the leaf, joined by ``/``."""

    shape: tuple[int, ...]
    """Global shape."""

    dtype: str
    """Name of the dtype."""

    bits: int | None = None
    """Bits per element; None for those of the dtype."""

    sharding: StoredSharding | None = None
    """Sharding of the leaf; None if the file has none."""

    logical: Spec | None = None
    """Logical axis names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTree:
    """The arrays in a file or a checkpoint."""

    type_name: str
    """Name of the format."""

    leaves: Sequence[StoredLeaf]
    """The arrays."""

    others: int = 0
    """Number of entries that are not arrays."""

    part: str = ""
    """The part of a checkpoint that was read, such as ``step 10``."""
