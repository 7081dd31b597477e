"""Arguments, outputs, constraints, donations, repeated values and uncounted operations of a program."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ...base import quantities
from ...base.quantities import counted, format_bytes
from ...geometry.layouts.dtypes import type_text
from .array import ArrayType, Leaf, ShardingDescription, same_sharding
from .findings import Finding, FindingLeaf
from .origin import Origin

Uncounted = Literal["kernel", "size", "executions"]
"""Reason why flops are not counted.

- ``kernel``: a custom call that may contain dots, such as one written in Pallas, or an attention of cuDNN;
- ``size``: a dot whose size depends on data, such as a ragged dot, or was not understood;
- ``executions``: a dot or a convolution in a part of the program whose caller could not be read.
"""

_MOST = 3
"""Maximum number of lines of each reason that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UncountedFlops:
    """Equal operations of one line whose flops are not counted."""

    reason: Uncounted
    """Reason: ``kernel``, ``size`` or ``executions``."""

    operation: str
    """Name of the operation in XLA, such as ``ragged-dot``; of a custom call its target, such as
    ``tpu_custom_call``."""

    count: quantities.Size = 1
    """Number of equal operations."""

    origin: Origin | None = None
    """Line of the operation."""


def uncounted_words(rows: Iterable[UncountedFlops]) -> Iterator[str]:
    """Yield the operations of each reason: ``kernel of attend.py:20 attend not counted``."""
    rows = tuple(rows)
    for reason, singular, plural, missing in (
        ("kernel", "kernel", "kernels", "not counted"),
        ("size", "dot of unknown size", "dots of unknown size", "not counted"),
        ("executions", "dot", "dots", "run an unknown number of times"),
    ):
        of_reason = [row for row in rows if row.reason == reason]
        if not of_reason:
            continue
        names = list(dict.fromkeys(str(row.origin or row.operation).rstrip() for row in of_reason))
        of = ", ".join(names[:_MOST])
        if len(names) > _MOST:
            of += f" and {counted(len(names) - _MOST, 'line', 'lines')} more"
        if (count := sum(row.count for row in of_reason)) == 1:
            yield f"{singular} of {of} {missing.replace('run', 'runs', 1)}"
        else:
            yield f"{count} {plural} of {of} {missing}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramValue(Leaf):
    """An argument or an output of a program.

    Its path is ``params/wi`` below the argument ``params``, ``outputs/0/w``, or ``outputs`` for a single
    array.
    """

    nbytes: quantities.Size | None
    """Bytes per device; of a pruned argument, the bytes that it would take. None if unknown."""

    asked: ShardingDescription | None = None
    """Requested sharding; None if it is left to the compiler, or unknown."""

    is_asked_known: bool = True
    """Whether the requested sharding is known. A Compiled does not record it."""

    got: ShardingDescription | None = None
    """Sharding in the compiled program; None if unknown, and for a pruned argument."""

    reason: str | None = None
    """Reason why ``got`` differs from ``asked``, or how the output differs from the argument ``like``."""

    is_padded_inside: bool = False
    """For an output: whether a constraint pads values of its shape and dtype inside the program. ``got`` is
    the sharding of the array as returned."""

    is_pruned: bool = False
    """Whether JAX removed the argument, because the function does not use it."""

    like: str | None = None
    """For an output that is sharded over fewer mesh axes than the argument that it is a gradient or an update
    of: path of that argument. For an optimizer's moment among the arguments that is sharded over fewer mesh
    axes than its parameter: path of the parameter."""

    lost_axes: tuple[str, ...] = ()
    """Mesh axes over which the argument ``like`` is sharded, and this value is not."""

    lost_at: Origin | None = None
    """Line after which this output, or the output in the place of this moment, lacks ``lost_axes``; else the
    line that computes an output with ``replaces``."""

    lost_sent_nbytes: quantities.Total | None = None
    """Bytes that a device sends in one call to gather the value after this line; None if unknown."""

    replaces: str | None = None
    """For an output that is an update of an argument with another sharding: path of that argument. A call
    with the output in its place compiles again."""

    memory_kind: str | None = None
    """Memory kind of the compiled value, such as ``device`` or ``pinned_host``; None if unknown."""

    is_in_host_memory: bool = False
    """Whether the memory kind is one of the host, and not the default of the devices."""

    @property
    def host_memory_kind(self) -> str | None:
        """The memory kind in host memory; None for the default memory of the devices."""
        return self.memory_kind if self.is_in_host_memory else None

    @property
    def is_unrecorded(self) -> bool:
        """Whether it is not known which sharding was requested."""
        return not (self.is_asked_known or self.is_pruned)

    @property
    def is_free(self) -> bool:
        """Whether the sharding is left to the compiler, as a whole or in part."""
        if self.asked is None:
            return self.is_asked_known and not self.is_pruned
        return bool(self.asked.spec and self.asked.spec.unconstrained) and not self.is_pruned

    @property
    def differs(self) -> bool:
        """Whether the value is known to have another sharding than the requested one."""
        if self.is_pruned or self.lost_axes or self.is_free:
            return False
        return self.reason is not None or same_sharding(self.asked, self.got) is False

    @property
    def is_as_asked(self) -> bool:
        """Whether the value has the requested sharding."""
        return self.got is not None and not (self.is_free or self.differs or self.is_unrecorded)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint(ArrayType):
    """Sharding constraints of one line inside the program."""

    shape: tuple[quantities.Size, ...]
    """Global shape."""

    asked: ShardingDescription
    """Requested sharding."""

    got: ShardingDescription | None
    """Sharding of the value inside the program: ``asked``, if the compiled program has an array of the shape
    of its shard in the line of the constraint or next to it. None if it has none, and if part of it is left
    to the compiler."""

    reason: str | None = None
    """Reason why ``got`` is unknown, and the padding of a value that is not divisible."""

    origin: Origin | None = None
    """Line of the constraint."""

    count: quantities.Count = 1
    """Number of equal constraints on this line."""

    is_gradient: bool = False
    """Whether the value is a gradient, outside of the function that is differentiated."""

    lost_axes: tuple[str, ...] = ()
    """Of a gradient: mesh axes that shard all arguments of its shape and dtype, and not the gradient."""

    @property
    def is_free(self) -> bool:
        """Whether the constraint leaves axes to the compiler."""
        return bool(self.asked.spec and self.asked.spec.unconstrained)

    @property
    def is_unknown(self) -> bool:
        """Whether the program does not show what the constraint got."""
        return self.got is None and not self.is_free

    @property
    def is_padded(self) -> bool:
        """Whether the constraint is applied, to a value that XLA pads."""
        return self.got is not None and self.reason is not None

    @property
    def is_as_asked(self) -> bool:
        """Whether the value has the requested sharding, without padding."""
        return not (self.is_free or self.is_unknown or self.is_padded)


CALL_FAILS = "a call fails: other arguments share a buffer"
"""Reason for an argument whose memory would be reused if a call could run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Donation:
    """A donated argument."""

    path: str
    """Path of the argument."""

    nbytes: quantities.Size
    """Bytes per device."""

    output: str | None = None
    """Path of the output that reuses its memory; None if it is not reused."""

    reason: str | None = None
    """Reason why its memory is not reused: it is unused, or no output that is left has its dtype, shape,
    memory kind and sharding; or a call with it fails."""

    shares_with: tuple[str, ...] = ()
    """Paths of the arguments that share its buffer, if a call therefore fails: a buffer that an output reuses
    cannot be passed twice."""

    @property
    def is_unused(self) -> bool:
        """Whether its memory is not reused, although a call runs."""
        return self.output is None and not self.shares_with and self.reason != CALL_FAILS


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedValue(ArrayType):
    """Equal values of one line that each device computes or holds whole, after a collective.

    What the collective moves is sharded. Devices then use parts of the value, or they all compute the same.
    """

    op: str
    """Name of the operation that computes the value, such as ``fft``."""

    shape: tuple[quantities.Size, ...]
    """Shape on a device."""

    nbytes: quantities.Size
    """Bytes on a device of the value, or of an array that is gathered for it if that is larger."""

    repeated_nbytes: quantities.Size
    """Those of ``nbytes`` that a device would not hold with the sharding before."""

    repeated_flops: quantities.Total | None = None
    """Operations that other devices do as well, in reports of older versions; newer ones have them in
    ``ProgramReport.work``."""

    axes: tuple[str, ...] | None = None
    """Mesh axes that sharded it, or what it is computed from, before; None if they are not known."""

    is_sum: bool = False
    """Whether each device scatters into all of it, and the results are summed. Else it is gathered, or
    computed from what is."""

    before_shape: tuple[quantities.Size, ...] = ()
    """Shape on a device of what is moved: a shard, or what is summed. Of several arrays, the one of the most
    repeated bytes."""

    before_dtype: str = ""
    """Name of its dtype."""

    before_axes: tuple[str, ...] | None = None
    """Mesh axes over which it is gathered or summed; None if they are not known."""

    path: str | None = None
    """Path of the argument that is gathered; None if something else is."""

    origin: Origin | None = None
    """Line of the operation."""

    count: quantities.Count = 1
    """Number of equal values."""

    @property
    def words(self) -> str:
        """What was sharded before: ``gathered over x from float32[64,8] of a``."""
        over = f" over {', '.join(self.before_axes)}" if self.before_axes else ""
        before = type_text(self.before_dtype, self.before_shape)
        if self.is_sum:
            return f"each device scatters into all of it, summed{over}"
        return f"gathered{over} from {before}{'' if self.path is None else f' of {self.path}'}"

    @property
    def remedy(self) -> str:
        """How to divide the work on it; empty if no way is known."""
        if self.op == "fft":
            return _TRANSFORM if _can_change_axes(self.before_shape, self.shape) else ""
        if self.is_sum:
            return _SCATTER
        return _DIVIDE if sum(dim > 1 for dim in self.shape) > _NEEDED.get(self.op, 0) else ""


def repeated_values(rows: Sequence[RepeatedValue]) -> Iterator[Finding]:
    """Yield the finding on values that every device computes or holds whole, if there are any."""
    if not rows:
        return
    leaves = tuple(
        FindingLeaf(
            path=row.op,
            shape=row.shape,
            dtype=row.dtype,
            nbytes=row.repeated_nbytes,
            change=row.words,
            origin=row.origin,
            count=row.count,
        )
        for row in rows
    )
    largest = max(row.repeated_nbytes for row in rows)
    are = counted(sum(row.count for row in rows), "value is", "values are")
    size = "" if len(leaves) == 1 and rows[0].count == 1 else f" The largest takes {format_bytes(largest)}."
    yield Finding(
        kind="repeated value",
        problem=f"{are} computed or held whole by every device, of what is sharded before or after.{size}",
        remedy=" ".join(filter(None, dict.fromkeys(row.remedy for row in rows))),
        nbytes=largest,
        leaves=leaves,
        mesh_axes=tuple(dict.fromkeys(name.partition(":")[0] for row in rows for name in row.axes or ())),
    )


_TRANSFORM = (
    "In a shard_map, transform the axes that a device has whole, shard another one with all_to_all, and "
    "transform the rest."
)
_SCATTER = "In a shard_map, let each device scatter into its own part, and exchange the borders."
_DIVIDE = "Shard a dimension that the operation does not need whole, or compute it on shards in a shard_map."
_NEEDED = {
    "sort": 1,
    **dict.fromkeys(("cholesky", "eig", "eigh", "geqrf", "householder_product", "lu", "svd"), 2),
}
"""Number of dimensions that an operation needs whole, where it cannot be computed on their shards."""


def _can_change_axes(shard: Sequence[int], whole: Sequence[int]) -> bool:
    """Return whether shards have a whole dimension that divides among their devices, as an all-to-all needs.

    Transforms of and to real numbers have another length, and do not divide.
    """
    parts = math.prod(whole) // max(math.prod(shard), 1)
    is_same = len(shard) == len(whole) and all(
        dim % max(part, 1) == 0 for part, dim in zip(shard, whole, strict=True)
    )
    return is_same and any(
        part == dim and dim % max(parts, 1) == 0 for part, dim in zip(shard, whole, strict=True)
    )
