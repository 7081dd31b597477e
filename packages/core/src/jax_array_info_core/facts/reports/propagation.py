"""The report on why each value of a program is sharded as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ...base import quantities
from ...base.notebooks import Displayed
from ...base.quantities import counted
from ...geometry.layouts.spec import MeshAxes, Spec
from .array import Leaf
from .codes import FindingKind
from .findings import Finding, FindingLeaf, Limits, accepted_words, findings_words, reported
from .lost_batch import LostBatch, lost_batches_found
from .origin import OperationFact, Origin, Phase, SourceLine

OriginKind = Literal["argument", "output", "constraint", "shard_map"]
"""What a mesh axis of a value comes from: an argument's or an output's requested sharding, a constraint
inside the program, or the specs of a ``shard_map``."""

LossReason = Literal["contracted", "conflict", "uneven", "constraint", "not propagated"]
"""Reason why the result of an operation lacks a mesh axis of an operand.

- ``contracted``: the operation sums the dimension, or needs all of it, and the result has none of it: this
  costs a collective, and no memory;
- ``conflict``: the mesh axis, or the dimension, is sharded in another way by another operand;
- ``uneven``: the dimension of the result does not divide by the mesh axis;
- ``constraint``: a constraint on the result leaves the axis out;
- ``not propagated``: none of these is known to be the reason.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisOrigin:
    """Where a mesh axis of a value comes from."""

    mesh_axis: str
    """The mesh axis, or a part of it: ``model:(1)8``."""

    kind: OriginKind | None
    """What it comes from; None if unknown."""

    path: str | None = None
    """Path of the argument or the output."""

    origin: Origin | None = None
    """Line of the constraint or the ``shard_map``."""

    via: tuple[SourceLine, ...] = ()
    """Lines of operations between, nearest first, at most ten: a shortest way along which all values have the
    axis from there."""

    def __str__(self) -> str:
        """Return the text form, such as ``argument params/wi`` or ``outputs/wi``."""
        place = self.path or (str(self.origin) if self.origin else "")
        if self.kind == "output" and place.startswith("output"):
            return place
        return f"{self.kind or 'unknown'} {place}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class PropagatedLeaf(Leaf):
    """An argument or an output."""

    spec: Spec | None
    """Sharding after propagation; None for a pruned argument, and without a mesh. The requested one if Shardy
    gave no answer."""

    nbytes: quantities.Size | None
    """Bytes per device; None if unknown."""

    axes: tuple[AxisOrigin, ...] = ()
    """Origin of each mesh axis in the spec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PropagatedValue(OperationFact):
    """Equal values that an operation of one line computes."""

    shape: tuple[quantities.Size, ...]
    """Global shape; inside a ``shard_map``, that of one shard of it."""

    in_shard_map: bool = False
    """Whether it is inside a ``shard_map``, whose mesh axes are then not in ``spec``."""

    manual_axes: MeshAxes | None = None
    """The manual mesh axes inside a ``shard_map``: each device along them has a value of its own."""

    invariant_axes: tuple[str, ...] | None = ()
    """Manual axes over which the value is known not to vary: the devices along them have replicas. None if it
    is not known, as after a collective."""

    dtype: str
    """Name of the dtype."""

    spec: Spec
    """Sharding after propagation."""

    nbytes: quantities.Size | None
    """Bytes per device; None if unknown."""

    axes: tuple[AxisOrigin, ...] = ()
    """Origin of each mesh axis in the spec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss(OperationFact):
    """A mesh axis that an operand has and the result has not."""

    mesh_axis: str
    """The mesh axis, or the part that is lost: ``model:(8)2``."""

    reason: LossReason
    """Reason."""

    nbytes: quantities.Size | None
    """Bytes that a device holds more than with the axis; 0 if the result has none of the dimension."""

    operand: str
    """Path of the operand, if it is an argument; else its line or its operation."""

    before: Spec
    """Sharding of the operand."""

    after: Spec
    """Sharding of the result."""

    shape: tuple[quantities.Size, ...]
    """Global shape of the result."""

    dtype: str
    """Name of the dtype of the result."""

    constraint: Origin | None = None
    """Line of the constraint that leaves the axis out; None for other reasons."""

    again: Origin | None = None
    """Line of a later value that the axis shards along the same dimension of the data; None if there is none,
    and for other reasons than ``constraint``."""

    size: quantities.Size | None = None
    """Size of the part of the dimension that does not divide; None for other reasons than ``uneven``."""

    divisor: MeshAxes | None = None
    """Mesh axes by which it does not divide, with their sizes; None for other reasons than ``uneven``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedValue(PropagatedValue):
    """Equal values that are replicated over mesh axes although a dimension divides by them."""

    mesh_axes: tuple[str, ...]
    """Mesh axes that could shard the value further."""

    avoidable_nbytes: quantities.Size
    """Bytes that a device would hold less."""

    path: str | None = None
    """Path of an argument; None for a value that an operation computes."""

    loss: Loss | None = None
    """The nearest operation before it that lost one of the axes; None if no value before it has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictOperand:
    """An operand of a conflict, or of a sum over devices."""

    name: str
    """Path of the operand, if it is an argument; else its line or its operation. Empty in what several
    operations have in common."""

    spec: Spec
    """Sharding of the operand."""

    letter: str
    """Letter of the rule that it shards over the mesh axis."""

    axis_origin: AxisOrigin
    """Where it has the mesh axis from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict(OperationFact):
    """An operation whose operands are sharded in ways that exclude each other, so that data must move."""

    mesh_axis: str
    """Mesh axis that shards two letters, or one of two axes that shard one letter, or the axis of a
    dimension that the operation needs whole."""

    rule: str
    """The operation as an einsum, such as ``ik,kj->ij``."""

    operands: tuple[ConflictOperand, ...]
    """All operands that ask for the mesh axis, or those and the ``result``, where the operation moves the
    axis to another letter. A single one shards a dimension that the operation needs whole."""

    result: Spec
    """Sharding of the result."""

    nbytes: quantities.Size | None
    """Bytes per device of the smallest of the operands: what moving one of them costs at least, for each
    device that sends or receives it. None if unknown."""

    following_nbytes: quantities.Size | None = None
    """Bytes per device of all values after it, in the same pass, that have the dimension of the data without
    the mesh axis, for all ``count`` together. None if it does not live on, or is not one of the data."""

    @property
    def cost_nbytes(self) -> int | None:
        """Bytes per device that follow it, or else those of the smallest operands; None if unknown."""
        if self.following_nbytes is not None or self.nbytes is None:
            return self.following_nbytes
        return self.nbytes * self.count

    @property
    def mesh_axes(self) -> tuple[str, ...]:
        """The mesh axes: two if they shard one letter."""
        names = (self.mesh_axis, *(operand.axis_origin.mesh_axis for operand in self.operands))
        return tuple(dict.fromkeys(name.partition(":")[0] for name in names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Because:
    """The operation that a collective is needed for."""

    kind: Literal["conflict", "sum", "constraint"]
    """``conflict``: its operands exclude each other, or it needs a dimension whole. ``sum``: it sums a
    dimension that is sharded. ``constraint``: a constraint on its result, or a requested output, leaves
    mesh axes out."""

    mesh_axes: tuple[str, ...]
    """Mesh axes of the conflict, those that shard the dimension, or those that are left out."""

    rule: str = ""
    """The operation as an einsum, such as ``ik,kj->ij``; empty for a constraint."""

    op: str
    """Name of the operation in JAX; ``return`` for a requested output."""

    operands: tuple[ConflictOperand, ...] = ()
    """Those of the conflict, or those that shard the dimension. Empty for a constraint, and for sums of equal
    name and line that differ in them."""

    origin: Origin | None = None
    """Line of the operation, or of the constraint."""

    phase: Phase | None = None
    """Forward or backward pass; None outside gradients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PropagationReport(Displayed):
    """Why each value of a program is sharded as it is. Returned by ``propagation_report``.

    It is Shardy's propagation, before XLA partitions and optimizes the program. Shapes are global, and
    bytes are those of one device.
    """

    name: str
    """Name of the function."""

    mesh: MeshAxes | None = None
    """Axes of the mesh; None without a mesh."""

    device_count: quantities.Count = 1
    """Number of devices of the mesh."""

    platform: str
    """Platform that the program is lowered for: ``cpu``, ``tpu``, ``gpu``."""

    arguments: tuple[PropagatedLeaf, ...] = ()
    """Leaves of the arguments, in the order of the function."""

    outputs: tuple[PropagatedLeaf, ...] = ()
    """Leaves of the outputs."""

    values: tuple[PropagatedValue, ...] = ()
    """Values that the operations compute, the most bytes per device first."""

    conflicts: tuple[Conflict, ...] = ()
    """Operations whose operands exclude each other, the most bytes first."""

    lost: tuple[Loss, ...] = ()
    """Mesh axes that results lack, the most bytes first."""

    replicated: tuple[ReplicatedValue, ...] = ()
    """Values that could be sharded over more mesh axes, the most avoidable bytes first: arguments without
    any, values that operations make without any, and those that lose one, but in a sum or on purpose."""

    lost_batches: tuple[LostBatch, ...] = ()
    """Mesh axes that stop sharding the data, the most bytes after it first."""

    caveats: tuple[str, ...] = ()
    """What may differ in the compiled program, and what is opaque, as sentences."""

    unread: tuple[str, ...] = ()
    """Operations without a rule, through which nothing propagates, such as kernels and callbacks."""

    reason: str | None = None
    """Reason why Shardy gave no answer; None if it did."""

    ignored_codes: tuple[str, ...] = ()
    """Codes of findings to leave out."""

    min_nbytes: quantities.Size = 0
    """Bytes per device below which findings about bytes are left out."""

    findings: tuple[Finding, ...] = ()
    """Findings in the order of their codes, computed from the other fields."""

    def __post_init__(self) -> None:
        limits = Limits(min_nbytes=self.min_nbytes)
        findings = sorted(
            reported(_findings(self), self.ignored_codes, limits), key=lambda finding: finding.code
        )
        object.__setattr__(self, "findings", tuple(findings))

    @property
    def accepted(self) -> tuple[str, ...]:
        """What the findings pass over, in words: small costs, and ignored codes."""
        limits = Limits(min_nbytes=self.min_nbytes)
        return tuple(accepted_words(_findings(self), self.ignored_codes, limits))

    @property
    def answer(self) -> str:
        """The findings, or why there are none."""
        if self.reason is not None:
            return f"unknown: Shardy gave no answer: {self.reason}"
        return "nothing is sharded: there is no mesh" if self.mesh is None else findings_words(self.findings)


def _findings(report: PropagationReport) -> Iterator[Finding]:
    """Yield the findings about a propagation."""
    if conflicts := [row for row in report.conflicts if not row.is_meant]:
        whole = [row for row in conflicts if len(row.operands) == 1]
        apart = sum(row.count for row in conflicts) - sum(row.count for row in whole)
        problems = [
            f"{counted(apart, 'operation has', 'operations have')} operands that exclude each other, so that"
            " data moves: one operand is gathered, or the result is summed over devices."
            if apart
            else "",
            f"{counted(sum(row.count for row in whole), 'operation needs', 'operations need')} the whole of a"
            " dimension that is sharded, so that data moves."
            if whole
            else "",
        ]
        yield _finding(
            "conflict",
            conflicts,
            " ".join(filter(None, problems)),
            " ".join(dict.fromkeys(_CONFLICT_REMEDIES[len(row.operands) > 1] for row in conflicts)),
        )
    if lost := [row for row in report.lost if row.nbytes != 0 and not row.is_meant]:
        number = counted(sum(row.count for row in lost), "result lacks", "results lack")
        yield _finding(
            "lost mesh axis",
            lost,
            f"{number} a mesh axis of an operand, so that each device holds more.",
            _remedy(lost, "Constrain the result with jax.lax.with_sharding_constraint."),
        )
    if report.replicated:
        number = counted(sum(row.count for row in report.replicated), "value is", "values are")
        # Nothing that follows an operation without a rule reaches what it computes.
        opaque = [row for row in report.replicated if f"{row.op} of {row.origin}" in report.unread]
        calls = " and ".join(dict.fromkeys(row.op for row in opaque))
        others = [row.loss for row in report.replicated if row not in opaque]
        yield _finding(
            "replicated value",
            report.replicated,
            f"{number} replicated over mesh axes that divide a dimension.",
            " ".join(
                [
                    *([_IN_SHARD_MAP.format(calls)] if opaque else []),
                    _remedy(others, _CONSTRAIN_OTHERS if opaque else _CONSTRAIN),
                ]
            ).rstrip(),
        )

    yield from lost_batches_found(report.lost_batches)


_CONSTRAIN = "Constrain the value, or the argument or output that it comes from or goes to."
_CONSTRAIN_OTHERS = "Values that do not come from it: constrain them, their arguments or their outputs."
_IN_SHARD_MAP = (
    "Call {} inside jax.shard_map: no sharding propagates through it, and a constraint on its result gathers "
    "its operands all the same."
)
"""The fixes for a replicated value, for those next to an operation without a rule, and for that operation."""
_LARGEST_OF = (
    "The bytes are those of the largest.",
    "The bytes are those of the arguments and of the largest other value.",
)
_FOLLOWED = "The bytes are those of the values after the costliest, and of the smallest operands of others."
_CONFLICT_REMEDIES = (
    "An operation that needs a whole dimension needs an operand that is sharded along another one.",
    "Shard one operand over another mesh axis, or constrain it before the operation.",
)
"""The fix for a dimension that is needed whole, and for operands that exclude each other."""
_REMEDIES = {
    "requested output": "Request the output with the mesh axis that it lacks.",
    "constraint": "In the constraint, write the mesh axis, or P.UNCONSTRAINED to leave the dimension to XLA:"
    " None replicates it.",
    "uneven": "A dimension that does not divide needs another size, or another mesh axis.",
}
"""The fix for the reason of a loss."""


def _remedy(losses: Sequence[Loss | None], other: str) -> str:
    """Return the fixes for the reasons of some losses, the costliest first; ``other`` for other reasons."""
    reasons = (
        "" if loss is None else "requested output" if loss.op == "return" else loss.reason for loss in losses
    )
    return " ".join(dict.fromkeys(_REMEDIES.get(reason, other) for reason in reasons))


def _finding(
    kind: FindingKind, rows: Sequence[Conflict | Loss | ReplicatedValue], problem: str, remedy: str
) -> Finding:
    """Return a finding on some rows."""
    followed = [row for row in rows if isinstance(row, Conflict) and row.following_nbytes is not None]
    leaves = tuple(
        FindingLeaf(
            path=(row.path or "") if isinstance(row, ReplicatedValue) else "",
            shape=() if isinstance(row, Conflict) else row.shape,
            dtype="" if isinstance(row, Conflict) else row.dtype,
            nbytes=row.avoidable_nbytes
            if isinstance(row, ReplicatedValue)
            else row.following_nbytes or row.nbytes
            if isinstance(row, Conflict)
            else row.nbytes,
            change=f"{row.op} {row.rule}" if isinstance(row, Conflict) else row.op,
            origin=row.origin,
            count=1 if row in followed else row.count,
        )
        for row in rows
    )
    axes = (
        row.mesh_axes if isinstance(row, ReplicatedValue) else (row.mesh_axis.partition(":")[0],)
        for row in rows
    )
    # What moves adds up, and so do arguments. What follows, and other values, need not be held at the same
    # time.
    added = [
        leaf
        for row, leaf in zip(rows, leaves, strict=True)
        if leaf.path or (isinstance(row, Conflict) and row not in followed)
    ]
    others = [leaf for leaf in leaves if leaf not in added]
    nbytes = sum((leaf.nbytes or 0) * leaf.count for leaf in added)
    if sum(leaf.count for leaf in others) > 1 or (others and added):
        problem = f"{problem} {_FOLLOWED if followed else _LARGEST_OF[bool(added)]}"
    return Finding(
        kind=kind,
        problem=problem,
        remedy=remedy,
        nbytes=nbytes + max((leaf.nbytes or 0 for leaf in others), default=0),
        leaves=leaves,
        mesh_axes=tuple(dict.fromkeys(name for names in axes for name in names)),
    )
