"""The report on a compiled program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...base import quantities
from ...base.grouping import by_key
from ...base.notebooks import Displayed
from ...base.quantities import LARGEST, counted, format_bytes, known_sum
from ...geometry.layouts.spec import MeshAxes
from .array import require_own_paths
from .collectives import Collective, SentTotals
from .compiler_messages import OutOfMemory, Rematerialization, full_replication, refusal, unread_lines
from .control_flow import FlopTotals
from .findings import Finding, Limits, accepted_words, findings_words, reported
from .layers import CostShare, Parameter
from .left_out import ALL, LeftOut, Parts
from .line_costs import Costs
from .lost_batch import LostBatch, lost_batches_found
from .origin import Origin
from .program_findings import (
    changed,
    constrained,
    lost_axes,
    lost_gradients,
    missing,
    moments,
    not_as_requested,
    not_handed_out,
    shared,
    unused,
)
from .program_memory import ProgramMemory, ProgramTimelineReport
from .program_values import Constraint, Donation, ProgramValue, RepeatedValue, UncountedFlops, repeated_values
from .work import WorkShare, repeated_work

_MOST = 3
"""Maximum number of arguments that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramReport(Displayed):
    """What XLA made of a function. Returned by ``program_report``.

    Bytes are those of one device. Shapes are global in arguments, outputs and constraints, and those of one
    device in the rest. The fields of a part that is left out because of an error are None.
    """

    name: str
    """Name of the function."""

    origin: Origin | None = None
    """Line of the function's definition."""

    mesh: MeshAxes | None = None
    """Axes of the arguments' mesh; None without one."""

    device_count: quantities.Count = 1
    """Number of devices that run the program."""

    platform: str
    """Platform that it is compiled for: ``cpu``, ``tpu``, ``gpu``."""

    topology: str | None = None
    """Topology that it is compiled for, such as ``v5p:2x2x2`` or ``2*v5p:2x2x2``; None for the devices of
    this process."""

    arguments: tuple[ProgramValue, ...] = ()
    """Leaves of the arguments, in their order."""

    outputs: tuple[ProgramValue, ...] = ()
    """Leaves of the outputs."""

    constraints: tuple[Constraint, ...] | None = ()
    """Sharding constraints inside the function. None for a Lowered or Compiled, which has no jaxpr."""

    donations: tuple[Donation, ...] | None = ()
    """Donated arguments."""

    donatable: tuple[Donation, ...] | None = ()
    """Arguments that are not donated, each with an output that could reuse its memory: it has the same dtype,
    shape, memory kind and sharding, and reuses no other argument."""

    collectives: tuple[Collective, ...] | None = ()
    """Collectives, the most bytes first; those with an unknown number of executions come first."""

    sent: SentTotals | None = field(default_factory=SentTotals)
    """Totals of the bytes sent."""

    passed_on: tuple[str, ...] | None = ()
    """Paths of the arguments that return with another sharding: donated ones, those with an output of the
    same keys, and those with an output that is their update or gradient. The figures are those of the first
    call: if the arguments are passed on as returned, the second call compiles again. Empty for a Lowered or
    Compiled."""

    steady_sent_nbytes: quantities.Total | None = None
    """Bytes that a device sends per call once no call compiles again; None unless ``steady`` is on, and if
    unknown."""

    lost_batches: tuple[LostBatch, ...] | None = ()
    """Mesh axes that stop sharding the data, the most bytes after it first. Empty where ``because`` is
    unknown: before JAX 0.10.1, of a Compiled, and without collectives."""

    rematerializations: tuple[Rematerialization, ...] | None = ()
    """Values that XLA replicates and shards again, the most bytes first."""

    repeated: tuple[RepeatedValue, ...] | None = ()
    """Values that every device computes or holds whole, the most bytes first."""

    memory: ProgramMemory | None = None
    """Memory per device; None if it did not fit."""

    out_of_memory: OutOfMemory | None = None
    """The program does not fit: the compiler's refusal. The other parts then describe the program that it
    refused, as far as it is known. Of a GPU topology, ``memory`` is known too."""

    timeline: ProgramTimelineReport | None = None
    """Memory along the schedule; None unless it was asked for, and if the program did not fit."""

    dot_flops: quantities.Total | None = None
    """Floating-point operations of dots and convolutions in one call, on one device: two for each
    multiply-add of real numbers, eight for one of complex numbers. None if some are not counted, in a loop of
    unknown length, or on one side of a conditional."""

    known_dot_flops: quantities.Total | None = 0
    """``dot_flops`` without these."""

    dot_totals: FlopTotals | None = None
    """Operations of dots and convolutions, with those in loops of unknown length and in conditionals. None in
    older reports."""

    fft_totals: FlopTotals | None = field(default_factory=FlopTotals)
    """Operations of Fourier transforms: 5 N log2 N for each of N elements, half for real numbers."""

    decompositions: tuple[FlopTotals, ...] | None = ()
    """Operations of each kind of matrix decomposition, and of triangular solves, by the usual counts."""

    xla_flops: quantities.Total | None = None
    """All floating-point operations on one device as XLA's cost analysis counts them: a loop's body once.
    None if unknown."""

    work: WorkShare | None = None
    """How the heavy work is divided over the devices."""

    parameters: tuple[Parameter, ...] | None = None
    """Arguments that are parameters, in their order. None in older reports."""

    costs: tuple[CostShare, ...] | None = None
    """What a device sends, computes and saves, by parameter and named scope. None in older reports."""

    uncounted_flops: tuple[UncountedFlops, ...] | None = ()
    """Operations that are not counted, such as kernels of Pallas."""

    reason: str | None = None
    """Reason why the compiled program is not known: its platform does not hand it out. None if it is known,
    and if it did not fit. The report then has only what JAX tells of it."""

    unread: tuple[str, ...] | None = ()
    """Lines of the program that could not be read. The other figures do not include them."""

    unread_local: tuple[str, ...] | None = ()
    """Those of ``unread`` that send nothing to other devices, such as an elementwise operation."""

    caveats: tuple[str, ...] = ()
    """Figures that differ on another platform, and parts that are left out."""

    left_out: tuple[LeftOut, ...] = ()
    """Parts that an error in this package left out."""

    ignored_codes: tuple[str, ...] = ()
    """Codes of findings to leave out."""

    min_nbytes: quantities.Size = 0
    """Bytes per device below which findings about bytes are left out."""

    findings: tuple[Finding, ...] | None = ()
    """Findings, computed from the other fields."""

    def __post_init__(self) -> None:
        for what, values in (("arguments", self.arguments), ("outputs", self.outputs)):
            require_own_paths(what, (value.path for value in values))
        parts = Parts(self.left_out)
        object.__setattr__(self, "findings", parts.made("findings", lambda: _findings(self), None))
        object.__setattr__(self, "left_out", parts.left_out)
        caveats = (*self.caveats, *(part.words for part in parts.left_out))
        object.__setattr__(self, "caveats", tuple(dict.fromkeys(caveats)))

    def lacks(self, part: str) -> str | None:
        """Return why a part, such as ``collectives``, is left out, in words; None if it is not."""
        return next((left_out.words for left_out in self.left_out if left_out.part in (part, ALL)), None)

    @property
    def answer(self) -> str:
        """What the program sends over slow links, whether it fits, as far as known, and the findings.

        Last, the line that costs more than each of them.
        """
        about = self.out_of_memory or self.memory
        fit = about.answer if about else ""
        sent = self.sent.over_links if self.sent else ""
        words = findings_words(self.findings or ()) if self.findings or not self.left_out else ""
        names = ", ".join(part.part for part in self.left_out)
        facts = (self.reason, names and f"left out: {names}", sent, fit, words, _most(self))
        return "; ".join(filter(None, facts))

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
        call = "second call" if _has_gradient(self) else "next step of the loop"
        return f"figures of the first call; {condition}, the {call} compiles again{steady}"

    @property
    def is_known(self) -> bool:
        """Whether the compiled program is known, also if it does not fit: its collectives and flops."""
        is_refused = self.out_of_memory is not None and not self.out_of_memory.is_program_known
        return self.reason is None and not is_refused

    @property
    def is_sent_known(self) -> bool:
        """Whether the collectives are all that the program sends, some maybe an unknown number of times."""
        return self.is_known and self.sent is not None and not self.unread_sending

    @property
    def sent_nbytes(self) -> int | None:
        """Bytes that a device sends in one call of the program; None if a part of them is unknown."""
        sent = self.sent if self.is_sent_known else None
        return None if sent is None or sent.unknown_count else sent.nbytes

    @property
    def fft_flops(self) -> int | None:
        """Operations of Fourier transforms in one call, on one device.

        N elements have 5 N log2 N, half for real numbers. None if some are in a loop of unknown length or on
        one side of a conditional.
        """
        return None if self.fft_totals is None else self.fft_totals.exact

    @property
    def decomposition_flops(self) -> int | None:
        """Floating-point operations of decompositions in one call, on one device; None if unknown."""
        totals = self.decompositions
        return None if totals is None else known_sum(one.exact for one in totals)

    @property
    def is_mostly_uncounted(self) -> bool:
        """Whether XLA counts ten times the operations counted here.

        If none are, whether it counts ten for each byte of the memory that the program needs.
        """
        older = FlopTotals(known=self.known_dot_flops or 0)
        totals = (self.dot_totals or older, self.fft_totals, *(self.decompositions or ()))
        ours = sum(total.counted for total in totals if total is not None)
        nbytes = self.memory.needed_nbytes if self.memory else None
        return (self.xla_flops or 0) >= 10 * (ours or nbytes or LARGEST)

    @property
    def unread_sending(self) -> tuple[str, ...]:
        """Lines of ``unread`` that may send bytes to other devices. With any, the bytes sent are unknown."""
        return tuple(line for line in self.unread or () if line not in (self.unread_local or ()))


def costs_of(report: ProgramReport) -> Costs:
    """Return what a program costs, as a whole and by line."""
    return Costs(report.collectives or (), report.memory, report.work, report.sent_nbytes is not None)


def _has_gradient(report: ProgramReport) -> bool:
    """Return whether a program computes a gradient, as far as its collectives and its memory tell."""
    is_passed = any(part.phase for part in (report.sent.by_phase if report.sent else ()))
    memory = report.memory
    return is_passed or (memory is not None and (memory.saved or memory.live_at_backward) is not None)


def unknown_bytes(report: ProgramReport, *, has_loops: bool = True) -> Iterator[str]:
    """Yield each reason with the number of collectives.

    Args:
        report: The program.
        has_loops: Whether to count those whose bytes are known per iteration of a loop.
    """
    in_loops = (
        0
        if has_loops
        else sum(collective.count for collective in report.collectives or () if collective.is_in_loop)
    )
    sends = sum(
        collective.count
        for collective in report.collectives or ()
        if collective.depends_on_data and (has_loops or not collective.is_in_loop)
    )
    if runs := (report.sent.unknown_count if report.sent else 0) - in_loops - sends:
        yield f"{counted(runs, 'collective runs', 'collectives run')} an unknown number of times"
    if sends:
        yield f"{counted(sends, 'collective sends', 'collectives send')} bytes that depend on data"


def _findings(report: ProgramReport) -> tuple[Finding, ...]:
    """Return the findings about a program that are neither in its ``ignored_codes`` nor accepted.

    Errors and unread lines come first, then the findings with the largest parts of what the program costs.
    """
    findings = reported(_all_findings(report), report.ignored_codes, Limits(min_nbytes=report.min_nbytes))
    costs = costs_of(report)
    return tuple(sorted(findings, key=lambda finding: (not _is_first(finding), -costs.of_finding(finding))))


def _is_first(finding: Finding) -> bool:
    """Return whether the other findings may not matter, or may be incomplete, before this one is mended."""
    return finding.severity == "error" or finding.kind == "unread lines"


def _most(report: ProgramReport) -> str:
    """Return the line that costs more than each finding, and more than is accepted; empty without one."""
    costs, findings = costs_of(report), report.findings or ()
    line = max(costs.lines, key=lambda line: max(costs.of_line(line)), default=None)
    if line is None or line.origin is None or any(_is_first(finding) for finding in findings):
        return ""
    is_small = max(line.sending_nbytes, line.live_nbytes) < max(report.min_nbytes, 1)
    part = max(costs.of_line(line))
    if is_small or any(costs.of_finding(finding) >= part for finding in findings):
        return ""
    words = costs.words(line)
    return f"most: {words}" if words else ""


def accepted(report: ProgramReport) -> Iterator[str]:
    """Yield what the findings pass over: small costs, and ignored codes."""
    found = () if report.findings is None else _all_findings(report)
    yield from accepted_words(found, report.ignored_codes, Limits(min_nbytes=report.min_nbytes))


def _all_findings(report: ProgramReport) -> tuple[Finding, ...]:
    """Return all findings about a program."""
    work = [*repeated_work(report.work, report.repeated or (), report.lost_batches or ())]
    at = {str(leaf.origin) for finding in work for leaf in finding.leaves}
    repeated = [row for row in report.repeated or () if str(row.origin) not in at]
    return (
        *refusal(report.out_of_memory),
        *lost_axes([output for output in report.outputs if output.lost_axes]),
        *lost_gradients(
            [constraint for constraint in report.constraints or () if constraint.lost_axes],
            report.collectives or (),
        ),
        *moments([argument for argument in report.arguments if argument.lost_axes], report.mesh),
        *not_as_requested([value for value in (*report.arguments, *report.outputs) if value.differs]),
        *constrained(
            [constraint for constraint in report.constraints or () if constraint.is_padded],
            kind="padded constraint",
            problem="XLA pads the values of {}.",
            nouns=("sharding constraint", "sharding constraints"),
            remedy="Use shapes that the mesh axes divide, or constrain another axis.",
        ),
        *constrained(
            [constraint for constraint in report.constraints or () if constraint.is_unknown],
            kind="unknown constraint",
            problem="The program does not show whether {} applied.",
            nouns=("sharding constraint is", "sharding constraints are"),
            remedy="Call tap_sharding on the value: it prints the sharding that XLA chose.",
        ),
        *changed([value for value in report.outputs if value.replaces is not None], report.arguments),
        *shared([donation for donation in report.donations or () if donation.shares_with]),
        *unused([donation for donation in report.donations or () if donation.is_unused]),
        *missing(report.donatable or ()),
        *lost_batches_found(report.lost_batches or ()),
        *full_replication(report.rematerializations or (), report.mesh),
        *work,
        *repeated_values(repeated),
        *not_handed_out(report.reason),
        *unread_lines(
            report.unread or (),
            "The figures do not include it.",
            "The figures do not include them.",
            "" if report.unread_sending else " without collectives",
        ),
    )
