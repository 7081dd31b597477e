"""Reports on differences between programs or trees, and on resharding."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from ...base import quantities
from ...base.notebooks import Displayed
from ...geometry.layouts.spec import Spec
from .array import Leaf, ShardingDescription
from .moves import DevicePeaks, MoveWay, WayName
from .origin import Origin
from .program_memory import Temporary
from .program_values import (
    Donation,
)
from .tree import TreeMesh, TreeRow, require_meshes


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A figure of two programs or trees."""

    before: quantities.Total | None
    """Figure of the first program or tree; None if it is unknown, in whole or in part."""

    after: quantities.Total | None
    """Figure of the second program or tree; None like ``before``."""

    @property
    def difference(self) -> int | None:
        """The second figure minus the first; None if one is unknown."""
        return None if self.before is None or self.after is None else self.after - self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult(Change):
    """Whether the differences of two programs or trees break a rule."""

    rule: str
    """The rule, such as ``sent+5%``."""

    passed: bool
    """Whether the rule is not broken. An unknown figure breaks it."""

    fact: str
    """What changed and what is allowed: ``sent +12.0 % (1.0 MiB to 1.1 MiB), allowed +5 %``."""

    is_left_out: bool = False
    """Whether the part of a program that the rule is about is left out of a report because of an error."""

    before: quantities.Total | None = None
    """Figure of the first program or tree; None if unknown. 0 for a rule on leaves. For ``work``, the
    operations that a device repeats."""

    after: quantities.Total | None = None
    """Figure of the second program or tree; None if unknown. For a rule on leaves, the number of those that
    break it."""


def rule_lines(results: Iterable[RuleResult]) -> list[str]:
    """Return a line for each rule, broken ones first."""
    ordered = sorted(results, key=lambda result: result.passed)
    return [f"{'passed' if result.passed else 'failed'}: {result.fact}" for result in ordered]


@dataclass(frozen=True, slots=True, kw_only=True)
class SentLine(Change):
    """Bytes that a device sends by collectives of one kind and mesh axes in one line, in two programs."""

    origin: Origin | None
    """The line, in the second program if it sends any there; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentChange(Change):
    """Bytes that a device sends by collectives of one kind over some mesh axes, in two programs."""

    kind: str
    """Name of the operation in XLA."""

    axes: tuple[str, ...] | None
    """Mesh axes; None if they are unknown."""

    lines: tuple[SentLine, ...] = ()
    """Lines whose bytes differ, the largest difference first. The lines of a function are aligned by their
    text, or by their distance where it is unknown: a line that an edit moves is the same line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureChange(Change):
    """A figure that differs between two programs."""

    name: str
    """Field of the figure: ``temporary_nbytes``, another field of ``ProgramMemory``, ``dot_flops``,
    ``known_dot_flops`` where that is unknown, ``fft_flops``,
    ``decomposition_flops``, or ``repeated_flops`` of ``WorkShare``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingChange:
    """An argument or output whose shape, dtype or sharding differs between two programs."""

    path: str
    """Path of the leaf."""

    before: ShardingDescription | None
    """Sharding in the first program; None if unknown or absent."""

    after: ShardingDescription | None
    """Sharding in the second program; None if unknown or absent."""

    before_type: str | None
    """Dtype and global shape in the first program, such as ``float32[8,4]``; None if the leaf is only in the
    second."""

    after_type: str | None
    """Dtype and global shape in the second program; None if the leaf is only in the first."""

    before_memory_kind: str | None = None
    """Memory kind in the first program, such as ``pinned_host``; None for the default of the devices."""

    after_memory_kind: str | None = None
    """Memory kind in the second program; None for the default of the devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DonationChange:
    """A donation that is made, or whose memory is reused, in one of two programs only."""

    path: str
    """Path of the argument."""

    before: Donation | None
    """In the first program; None if it is not donated, or not an argument."""

    after: Donation | None
    """In the second program; None if it is not donated, or not an argument."""

    is_absent_before: bool = False
    """Whether the first program has no argument with this path."""

    is_absent_after: bool = False
    """Whether the second program has no argument with this path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporaryChange:
    """Equal temporary values at the highest point of two programs, where their number differs."""

    value: Temporary
    """One of the values: of the first program, or of the second if they appear."""

    before: quantities.Size
    """Number of them in the first program; 0 if none are live there."""

    after: quantities.Size
    """Number of them in the second program; 0 if none are live there."""

    is_elsewhere_before: bool = False
    """Whether the first program has such values, but none is live at its highest point."""

    is_elsewhere_after: bool = False
    """Whether the second program has such values, but none is live at its highest point."""

    @property
    def nbytes(self) -> Change:
        """Bytes of all of them in each program."""
        return Change(before=self.value.nbytes * self.before, after=self.value.nbytes * self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramDiff(Displayed):
    """Figures that differ between two programs. Returned by ``program_diff_report``."""

    before_name: str
    """Name of the first program."""

    after_name: str
    """Name of the second program."""

    sent: tuple[SentChange, ...] = ()
    """Bytes sent by kind and axes, where they differ; the largest difference first."""

    sent_nbytes_before: quantities.Total | None = 0
    """Bytes that a device sends in the first program; None if part of them is unknown."""

    sent_nbytes_after: quantities.Total | None = 0
    """Bytes that a device sends in the second program; None if part of them is unknown."""

    work_share_before: float | None = None
    """Share of the heavy work that each device does in the first program, as in ``WorkShare``; None if it is
    unknown."""

    work_share_after: float | None = None
    """Share of the heavy work that each device does in the second program; None if it is unknown."""

    figures: tuple[FigureChange, ...] = ()
    """Memory and flops, where they differ."""

    shardings: tuple[ShardingChange, ...] = ()
    """Arguments and outputs that differ; one that is renamed has its path in the second program."""

    renamed: tuple[tuple[str, str], ...] = ()
    """Paths of arguments and outputs in the first program and in the second, where they differ although no
    other value of the type ends alike, such as ``outputs/w`` and ``outputs/0/w``."""

    donations: tuple[DonationChange, ...] = ()
    """Donations that differ."""

    temporaries: tuple[TemporaryChange, ...] = ()
    """Largest temporary values whose number at the highest point differs; the largest difference first. They
    are compared by file, function, shape and dtype, not by line, which changes with every edit."""

    unknown: tuple[str, ...] = ()
    """Parts that could not be compared, with the reason: unread lines, loops without a known length,
    kernels."""

    rules: tuple[RuleResult, ...] = ()
    """Results of the rules of ``jai-cli diff --fail-on``."""

    @property
    def sent_nbytes(self) -> Change:
        """Bytes that a device sends in each program."""
        return Change(before=self.sent_nbytes_before, after=self.sent_nbytes_after)

    @property
    def has_uncounted_temporaries(self) -> bool:
        """Whether the temporaries of a program are more than XLA's figure, where it differs and is known."""
        old = sum(one.value.nbytes * one.before for one in self.temporaries)
        new = sum(one.value.nbytes * one.after for one in self.temporaries)
        return any(
            (one.before is not None and old > one.before) or (one.after is not None and new > one.after)
            for one in self.figures
            if one.name == "temporary_nbytes"
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs."""
        return not (
            self.sent or self.figures or self.shardings or self.renamed or self.donations or self.temporaries
        )


ShardingField = Literal["spec", "axis_types", "memory_kind"]
ChangedField = Literal["shape", "dtype", ShardingField]
"""Field of a ``TreeRow`` in which a leaf changed; ``axis_types``: the types of the axes of its mesh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafChange:
    """A leaf with different properties in two trees."""

    before: TreeRow
    """The leaf in the first tree."""

    after: TreeRow
    """The leaf in the second tree."""

    fields: tuple[ChangedField, ...]
    """Fields that differ."""

    before_types: str = ""
    """Types of the mesh axes in the first tree, such as ``Explicit``, if they differ; else empty."""

    after_types: str = ""
    """Types of the mesh axes in the second tree, if they differ; else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeDiff(Displayed):
    """Leaves that were added, removed or changed between two trees. Returned by ``tree_diff_report``."""

    before_name: str | None
    """Name of the first tree."""

    after_name: str | None
    """Name of the second tree."""

    added: tuple[TreeRow, ...] = ()
    """Leaves of the second tree only."""

    removed: tuple[TreeRow, ...] = ()
    """Leaves of the first tree only."""

    changed: tuple[LeafChange, ...] = ()
    """Leaves that differ in shape, dtype, spec, axis types or memory kind."""

    unchanged_count: quantities.Size = 0
    """Number of leaves that are equal in shape, dtype, spec, axis types and memory kind."""

    meshes_before: tuple[TreeMesh, ...] = ()
    """Meshes of the first tree; ``TreeRow.mesh`` of removed leaves and of ``before`` is an index into it."""

    meshes_after: tuple[TreeMesh, ...] = ()
    """Meshes of the second tree."""

    nbytes_before: quantities.Total = 0
    """Bytes of the first tree, without replicas."""

    nbytes_after: quantities.Total = 0
    """Bytes of the second tree, without replicas."""

    device_nbytes_before: quantities.Total = 0
    """Bytes of the first tree on its fullest device."""

    device_nbytes_after: quantities.Total = 0
    """Bytes of the second tree on its fullest device."""

    rules: tuple[RuleResult, ...] = ()
    """Results of the rules of ``jai-cli diff --fail-on``."""

    def __post_init__(self) -> None:
        require_meshes([*self.removed, *(change.before for change in self.changed)], self.meshes_before)
        require_meshes([*self.added, *(change.after for change in self.changed)], self.meshes_after)

    @property
    def is_empty(self) -> bool:
        """Whether no leaf was added, removed or changed in a field that is compared."""
        return not (self.added or self.removed or self.changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReshardRow(Leaf):
    """Traffic of resharding one leaf."""

    before: Spec | None
    """Current partition spec; None for a sharding without one."""

    after: Spec | None
    """Partition spec of the target; None for a sharding without one."""

    device_nbytes: quantities.Total
    """Bytes of this leaf that the device which receives the most must receive."""

    nbytes: quantities.Total
    """Bytes of this leaf that all devices together must receive."""

    process_nbytes: quantities.Total | None
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

    unmoved_count: quantities.Size = 0
    """Number of leaves that need no traffic."""

    skipped_count: quantities.Size = 0
    """Number of leaves that are left out: deleted arrays, and leaves whose size or sharding is not known."""

    device_count: quantities.Count = 1
    """Number of devices of the target shardings."""

    device_nbytes: quantities.Total = 0
    """Bytes of all leaves that the device which receives the most must receive."""

    nbytes: quantities.Total = 0
    """Bytes of all leaves that all devices together must receive."""

    restored_nbytes: quantities.Total = 0
    """Bytes that a device of the target holds at most of all leaves. A restore from files needs all of them,
    whatever the devices hold before."""

    process_nbytes: quantities.Total | None = None
    """Part of ``nbytes`` that comes from other processes; None if the processes are not known."""

    shorter_count: quantities.Size = 0
    """Number of leaves of the target that are replicated because they have fewer axes than a spec for all
    leaves."""

    meshes_before: tuple[TreeMesh, ...] = ()
    """Meshes and sets of devices of the leaves now, each kind once. They have no platform and no ids."""

    meshes_after: tuple[TreeMesh, ...] = ()
    """Those of the target."""

    ways: tuple[MoveWay, ...] = ()
    """Memory that each way to move the tree needs; empty if no leaf moves."""

    peaks: tuple[DevicePeaks, ...] = ()
    """The same for each device; devices that are alike in all figures are together."""

    hbm_nbytes: quantities.Size | None = None
    """Memory of a device to compare with; None if it was not given."""

    def __post_init__(self) -> None:
        names = tuple(way.name for way in self.ways)
        if names and names != get_args(WayName):
            raise ValueError(f"ways {names}: expected each once, in the order of {get_args(WayName)}")
        if any(len(alike.peaks) != len(names) for alike in self.peaks):
            raise ValueError(f"devices without a peak for each of {len(names)} ways")
