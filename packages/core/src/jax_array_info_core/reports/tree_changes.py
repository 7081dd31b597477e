"""Reports on the difference of two trees and on the traffic of a resharding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..layouts.spec import Spec
from ..notebooks import Displayed
from .array import Dim
from .tree import TreeMesh, TreeRow

ChangedField = Literal["shape", "dtype", "spec", "memory_kind"]
"""Field of a ``TreeRow`` in which a leaf changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafChange:
    """A leaf with different properties in two trees."""

    before: TreeRow
    """The leaf in the first tree."""

    after: TreeRow
    """The leaf in the second tree."""

    fields: tuple[ChangedField, ...]
    """Fields that differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeDiff(Displayed):
    """Leaves that were added, removed or changed between two trees. Returned by ``tree_diff``.

    Values are not compared.
    """

    before_name: str | None
    """Name of the first tree."""

    after_name: str | None
    """Name of the second tree."""

    added: tuple[TreeRow, ...] = ()
    """Leaves of the second tree only."""

    removed: tuple[TreeRow, ...] = ()
    """Leaves of the first tree only."""

    changed: tuple[LeafChange, ...] = ()
    """Leaves that differ in shape, dtype, spec or memory kind."""

    unchanged_count: int = 0
    """Number of leaves that are equal in shape, dtype, spec and memory kind."""

    meshes_before: tuple[TreeMesh, ...] = ()
    """Meshes of the first tree; ``TreeRow.mesh`` of removed leaves and of ``before`` is an index into it."""

    meshes_after: tuple[TreeMesh, ...] = ()
    """Meshes of the second tree."""

    nbytes_before: int = 0
    """Bytes of the first tree, without replicas."""

    nbytes_after: int = 0
    """Bytes of the second tree, without replicas."""

    device_nbytes_before: int = 0
    """Bytes of the first tree on its fullest device."""

    device_nbytes_after: int = 0
    """Bytes of the second tree on its fullest device."""

    @property
    def is_empty(self) -> bool:
        """Whether no leaf was added, removed or changed."""
        return not (self.added or self.removed or self.changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReshardRow:
    """Traffic of resharding one leaf."""

    path: str
    """Path of the leaf, as in ``TreeRow``."""

    shape: tuple[Dim, ...]
    """Global shape."""

    dtype: str
    """Name of the dtype."""

    before: Spec | None
    """Current partition spec; None for a sharding without one."""

    after: Spec | None
    """Partition spec of the target; None for a sharding without one."""

    device_nbytes: int
    """Bytes of this leaf that the device which receives the most must receive."""

    nbytes: int
    """Bytes of this leaf that all devices together must receive."""

    process_nbytes: int | None
    """Part of ``nbytes`` that no device of the receiver's process holds. None if the processes are unknown,
    as for a planned or saved tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReshardReport(Displayed):
    """Traffic of resharding a tree. Returned by ``reshard_report``; nothing is moved.

    A device receives the slices of its target shard that it does not already hold.
    """

    name: str | None
    """Name of the tree."""

    rows: tuple[ReshardRow, ...]
    """The leaves that move, in the order of the tree."""

    unmoved_count: int = 0
    """Number of leaves that need no traffic."""

    skipped_count: int = 0
    """Number of leaves that are left out: deleted arrays, and leaves whose size or sharding is not known."""

    device_count: int = 1
    """Number of devices of the target shardings."""

    device_nbytes: int = 0
    """Bytes of all leaves that the device which receives the most must receive."""

    nbytes: int = 0
    """Bytes of all leaves that all devices together must receive."""

    process_nbytes: int | None = None
    """Part of ``nbytes`` that comes from other processes; None if the processes are not known."""
