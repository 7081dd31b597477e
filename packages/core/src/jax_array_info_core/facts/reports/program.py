"""The report on a compiled program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from ...base import quantities
from ...base.grouping import by_key
from ...base.notebooks import Displayed
from ...base.quantities import counted, format_bytes
from ...geometry.layouts.spec import MeshAxes, Spec, effective_spec
from .array import ArrayType, Leaf, ShardingDescription, require_own_paths, same_sharding
from .collectives import Collective, SentTotals
from .control_flow import FlopTotals
from .findings import Finding, findings_words
from .origin import Origin
from .program_findings import program_findings
from .program_memory import OutOfMemory, ProgramMemory, ProgramTimelineReport
from .repeated import RepeatedValue

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
    of: path of that argument."""

    lost_axes: tuple[str, ...] = ()
    """Mesh axes over which the argument ``like`` is sharded, and this output is not."""

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
class Rematerialization(ArrayType):
    """A value that XLA replicates and shards again: its warning "Involuntary full rematerialization".

    In a program, each device gathers the value, and uses only a part of its own.
    """

    before: Spec | None
    """Partition spec before; None if the sharding is not a spec of the mesh, or there is no mesh. In a
    program, None also if mesh axes are left over which nothing is gathered: they may shard the value, too."""

    after: Spec | None
    """Partition spec after; None like ``before``."""

    before_text: str = ""
    """Sharding before, as XLA prints it in its warning; empty for a value of a program."""

    after_text: str = ""
    """Sharding after, like ``before_text``."""

    axes: tuple[str, ...] | None = None
    """Mesh axes over which it is gathered; None if they are not known, as from a warning."""

    shape: tuple[quantities.Size, ...]
    """Shape of the shard of a device before. Empty, like ``dtype`` and ``op``, in logs of versions before
    0.4.31, which do not have it."""

    whole_shape: tuple[quantities.Size, ...] = ()
    """Shape of the value as each device holds it, with XLA's padding; empty if unknown."""

    op: str
    """Name of the operation, such as ``jit(step)/sharding_constraint`` or ``%copy.3``."""

    nbytes: quantities.Size | None
    """Bytes of the value, which each device holds as a whole; None if unknown."""

    sent_nbytes: quantities.Total | None = None
    """Bytes that a device sends for it in one call of the program; from a warning, each time that it runs.
    None if unknown."""

    origin: Origin | None = None
    """Line of the operation."""

    count: quantities.Count = 1
    """Number of equal values or warnings."""

    def change(self, mesh: MeshAxes | None) -> str:
        """Return the shardings before and after, else the mesh axes over which it is gathered, if known."""
        sizes = {} if mesh is None else mesh.shape
        before, after = (
            text if spec is None else str(effective_spec(spec, sizes))
            for spec, text in ((self.before, self.before_text), (self.after, self.after_text))
        )
        over = f"gathered over {', '.join(self.axes)}" if self.axes else ""
        return f"from {before} to {after}" if before and after else over


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramReport(Displayed):
    """What XLA made of a function. Returned by ``program_report``.

    Bytes are those of one device. Shapes are global in arguments, outputs and constraints, and those of one
    device in the rest.
    """

    name: str
    """Name of the function."""

    origin: Origin | None = None
    """Line of the function's definition."""

    mesh: MeshAxes | None = None
    """Axes of the mesh of the arguments; None without a mesh."""

    device_count: quantities.Count = 1
    """Number of devices that run the program."""

    platform: str
    """Platform that it is compiled for: ``cpu``, ``tpu``, ``gpu``."""

    topology: str | None = None
    """Topology that it is compiled for, such as ``v5p:2x2x2`` or ``2*v5p:2x2x2``; None for the devices of
    this process."""

    arguments: tuple[ProgramValue, ...] = ()
    """Leaves of the arguments, in the order of the function."""

    outputs: tuple[ProgramValue, ...] = ()
    """Leaves of the outputs."""

    constraints: tuple[Constraint, ...] | None = ()
    """Sharding constraints inside the function. None for a Lowered or Compiled, which has no jaxpr."""

    donations: tuple[Donation, ...] = ()
    """Donated arguments."""

    donatable: tuple[Donation, ...] = ()
    """Arguments that are not donated, each with an output that could reuse its memory: it has the same dtype,
    shape, memory kind and sharding, and reuses no other argument."""

    collectives: tuple[Collective, ...] = ()
    """Collectives, the most bytes first; those with an unknown number of executions come first."""

    sent: SentTotals = field(default_factory=SentTotals)
    """Totals of the bytes sent."""

    passed_on: tuple[str, ...] = ()
    """Paths of the arguments that return with another sharding: donated ones, those with an output of the
    same keys, and those with an output that is their update or gradient. The figures are those of the first
    call: if the arguments are passed on as returned, the second call compiles again. Empty for a Lowered or
    Compiled."""

    steady_sent_nbytes: quantities.Total | None = None
    """Bytes that a device sends per call once no call compiles again; None unless ``steady`` is on, and if
    unknown."""

    rematerializations: tuple[Rematerialization, ...] = ()
    """Values that XLA replicates and shards again, the most bytes first."""

    repeated: tuple[RepeatedValue, ...] = ()
    """Values that every device computes or holds whole, the most bytes first."""

    memory: ProgramMemory | None = None
    """Memory per device; None if the program did not fit."""

    out_of_memory: OutOfMemory | None = None
    """The program does not fit: the compiler's refusal. The other parts then describe the program that it
    refused, as far as it is known. Of a GPU topology, ``memory`` is known too."""

    timeline: ProgramTimelineReport | None = None
    """Memory along the schedule; None unless it was asked for, and if the program did not fit."""

    dot_flops: quantities.Total | None = None
    """Floating-point operations of dots and convolutions in one call, on one device: two for each
    multiply-add of real numbers, eight for one of complex numbers. None if some are not counted, in a loop of
    unknown length, or on one side of a conditional."""

    known_dot_flops: quantities.Total = 0
    """``dot_flops`` without these."""

    dot_totals: FlopTotals | None = None
    """Operations of dots and convolutions, with those in loops of unknown length and in conditionals. None in
    reports of older versions."""

    fft_totals: FlopTotals = field(default_factory=FlopTotals)
    """Operations of Fourier transforms: 5 N log2 N for each of N elements, half for real numbers."""

    xla_flops: quantities.Total | None = None
    """All floating-point operations on one device as XLA's cost analysis counts them: a loop's body once.
    None where the backend tells none."""

    uncounted_flops: tuple[UncountedFlops, ...] = ()
    """Operations that are not counted, such as kernels of Pallas."""

    reason: str | None = None
    """Reason why the compiled program is not known: its platform does not hand it out. None if it is known,
    and if it did not fit. The report then has only what JAX tells of it."""

    unread: tuple[str, ...] = ()
    """Lines of the program that could not be read. The other figures do not include them."""

    unread_local: tuple[str, ...] = ()
    """Those of ``unread`` that send nothing to other devices, such as an elementwise operation."""

    caveats: tuple[str, ...] = ()
    """Figures that differ on another platform."""

    ignored_codes: tuple[str, ...] = ()
    """Codes of findings to leave out."""

    min_nbytes: quantities.Size = 0
    """Bytes per device below which findings about bytes are left out."""

    findings: tuple[Finding, ...] = ()
    """Findings, computed from the other fields."""

    def __post_init__(self) -> None:
        for what, values in (("arguments", self.arguments), ("outputs", self.outputs)):
            require_own_paths(what, (value.path for value in values))
        object.__setattr__(self, "findings", program_findings(self))

    @property
    def answer(self) -> str:
        """What the program sends over slow links, whether it fits, as far as known, and the findings."""
        about = self.out_of_memory or self.memory
        fit = about.answer if about else ""
        words = findings_words(self.findings)
        return "; ".join(filter(None, (self.reason, self.sent.over_links, fit, words)))

    @property
    def first_call(self) -> str:
        """What makes the figures those of the first call, and what later calls send; empty if nothing does.

        ``figures of the first call; if w is passed on as returned, the second call compiles again``
        """
        if not self.passed_on:
            return ""
        below = by_key((path.partition("/")[0], path) for path in self.passed_on)
        names = [paths[0] if len(paths) == 1 else name for name, paths in below.items()]
        if more := names[_MOST:]:
            names[_MOST:] = [f"{len(more)} more"]
        listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
        sends = self.steady_sent_nbytes
        steady = "" if sends is None else f" and sends {format_bytes(sends)} per device and call"
        are = "is" if len(names) == 1 else "are"
        condition = f"if {listed} {are} passed on as returned"
        return f"figures of the first call; {condition}, the second call compiles again{steady}"

    @property
    def is_known(self) -> bool:
        """Whether the compiled program is known, also if it does not fit: its collectives and flops."""
        is_refused = self.out_of_memory is not None and not self.out_of_memory.is_program_known
        return self.reason is None and not is_refused

    @property
    def is_sent_known(self) -> bool:
        """Whether the collectives are all that the program sends, some maybe an unknown number of times."""
        return self.is_known and not self.unread_sending

    @property
    def sent_nbytes(self) -> int | None:
        """Bytes that a device sends in one call of the program; None if a part of them is unknown."""
        return self.sent.nbytes if self.is_sent_known and not self.sent.unknown_count else None

    @property
    def fft_flops(self) -> int | None:
        """Floating-point operations of Fourier transforms in one call, on one device.

        N elements have 5 N log2 N, half for real numbers. None if some are in a loop of unknown length or on
        one side of a conditional.
        """
        return self.fft_totals.exact

    @property
    def unread_sending(self) -> tuple[str, ...]:
        """Lines of ``unread`` that may send bytes to other devices. With any, the bytes sent are unknown."""
        return tuple(line for line in self.unread if line not in self.unread_local)


def unknown_bytes(report: ProgramReport, *, has_loops: bool = True) -> Iterator[str]:
    """Yield each reason with the number of collectives.

    Args:
        report: The program.
        has_loops: Whether to count those whose bytes are known per iteration of a loop.
    """
    in_loops = 0 if has_loops else sum(one.count for one in report.collectives if one.is_in_loop)
    sends = sum(
        one.count for one in report.collectives if one.depends_on_data and (has_loops or not one.is_in_loop)
    )
    if runs := report.sent.unknown_count - in_loops - sends:
        yield f"{counted(runs, 'collective runs', 'collectives run')} an unknown number of times"
    if sends:
        yield f"{counted(sends, 'collective sends', 'collectives send')} bytes that depend on data"
