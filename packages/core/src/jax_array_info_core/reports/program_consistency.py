"""Contradictions between the fields of reports on programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from ..quantities import format_number
from .log import LogReport, UnusableDonation
from .origin import SourceLine
from .program import (
    Collective,
    Constraint,
    Donation,
    ProgramReport,
    ProgramValue,
    Rematerialization,
    SentBytes,
    SentTotals,
)
from .program_changes import DonationChange, FigureChange, ProgramDiff, SentChange, TemporaryChange
from .program_memory import LargeBuffer, OutOfMemory, ProgramMemory, Temporary
from .tree_consistency import contradictions_of_shape

_COUNTS: dict[type, tuple[str, ...]] = {
    ProgramValue: ("nbytes",),
    Donation: ("nbytes",),
    Collective: ("sent_nbytes", "times", "at_most"),
    SentBytes: ("nbytes", "unknown_count"),
    SentTotals: ("nbytes", "unknown_count"),
    Rematerialization: ("nbytes",),
    Temporary: ("nbytes",),
    ProgramMemory: (
        "argument_nbytes",
        "output_nbytes",
        "alias_nbytes",
        "temporary_nbytes",
        "code_nbytes",
        "peak_nbytes",
        "live_nbytes",
        "required_nbytes",
        "available_nbytes",
        "host_argument_nbytes",
        "host_output_nbytes",
        "host_alias_nbytes",
        "host_temporary_nbytes",
    ),
    LargeBuffer: ("nbytes",),
    OutOfMemory: ("required_nbytes", "available_nbytes"),
    ProgramReport: ("dot_flops", "known_dot_flops"),
    SentChange: ("before", "after"),
    TemporaryChange: ("before", "after"),
    FigureChange: ("before", "after"),
    ProgramDiff: ("sent_nbytes_before", "sent_nbytes_after"),
    LogReport: ("line_count",),
    UnusableDonation: ("nbytes",),
}
"""Fields that are at least 0."""

_PARTS: dict[type, tuple[str, ...]] = {
    Constraint: ("count",),
    Collective: ("count", "group_size"),
    Rematerialization: ("count",),
    Temporary: ("count",),
    ProgramReport: ("device_count",),
    UnusableDonation: ("count",),
}
"""Fields that are at least 1."""

_TOTALS = {
    "by_kind": ("kind",),
    "by_axes": ("axes",),
    "by_kind_and_axes": ("kind", "axes"),
    "by_line": ("origin",),
    "by_phase": ("phase",),
}
"""Fields of a collective that the parts of each total have in common."""


def contradictions_of_programs(part: Any) -> Iterator[str]:
    """Yield the contradictions within one part of a report on a program, not of the parts in it."""
    for least, fields in ((0, _COUNTS), (1, _PARTS)):
        for name in fields.get(type(part), ()):
            number = getattr(part, name)
            if number is not None and number < least:
                yield f"{name} is {format_number(number)}, less than {least}"
    match part:
        case ProgramValue():
            yield from contradictions_of_shape(part.path, part.shape)
            if bool(part.lost_axes) != (part.like is not None):
                yield f"{part.path}: lost axes without an argument to compare with, or the reverse"
        case Constraint() | Rematerialization() | Temporary() | LargeBuffer() | UnusableDonation():
            yield from contradictions_of_shape(part.dtype, part.shape)
        case Collective():
            yield from contradictions_of_shape(part.kind, part.shape)
            if part.times is not None and part.at_most is not None:
                yield f"{part.kind}: at_most with a known number of executions"
            if part.times is not None and part.depends_on_data:
                yield f"{part.kind}: known bytes that depend on data"
        case Donation() if part.output is not None and part.reason is not None:
            yield f"{part.path}: a donation that is reused, with a reason why not"
        case SourceLine() if part.cell is not None and part.cell < 0:
            yield f"a cell with the number {format_number(part.cell)}"
        case DonationChange():
            if (part.before and part.is_absent_before) or (part.after and part.is_absent_after):
                yield f"{part.path}: a donation of an argument that is absent"
        case TemporaryChange() if part.before == part.after:
            yield f"{format_number(part.after)} temporary values before and after, as a difference"
        case ProgramReport():
            yield from _of_program(part)
        case ProgramDiff():
            yield from _of_paths("leaves", (change.path for change in part.shardings))
            yield from _of_paths("donations", (change.path for change in part.donations))


def _of_program(report: ProgramReport) -> Iterator[str]:
    yield from _of_paths("arguments", (value.path for value in report.arguments))
    yield from _of_paths("outputs", (value.path for value in report.outputs))
    yield from _of_paths("donations", (donation.path for donation in report.donations))
    arguments = {value.path for value in report.arguments}
    outputs = {value.path for value in report.outputs}
    for value in (*report.arguments, *report.outputs):
        if value.like is not None and value.like not in arguments:
            yield f"{value.path} is like {value.like!r}, which is not an argument"
        if value.replaces is not None and value.replaces not in arguments:
            yield f"{value.path} replaces {value.replaces!r}, which is not an argument"
    yield from _of_paths("donatable arguments", (donation.path for donation in report.donatable))
    for donation in (*report.donations, *report.donatable):
        if donation.path not in arguments:
            yield f"the donation {donation.path!r} is not an argument"
        if donation.output is not None and donation.output not in outputs:
            yield f"{donation.path}: {donation.output!r} is not an output"
    # The compiler for GPUs refuses no program.
    if report.memory is not None and report.out_of_memory is not None and report.platform != "gpu":
        yield "the memory of a program that does not fit"
    if not set(report.unread_local) <= set(report.unread):
        yield "unread lines that send nothing, which are not among the unread lines"
    if report.dot_flops is not None and report.uncounted_flops:
        yield "dot_flops without operations that are not counted"
    yield from _of_axes(report)
    yield from _of_totals(report)


def _of_axes(report: ProgramReport) -> Iterator[str]:
    """Yield the mesh axes of collectives and values that the mesh does not have."""
    names = () if report.mesh is None else report.mesh.names
    used = [name for collective in report.collectives for name in collective.axes or ()]
    used += [name for value in report.outputs for name in value.lost_axes]
    for name in dict.fromkeys(used):
        # A part of an axis is written as ``tensor:(2)4``.
        if name not in names and name.rpartition(":(")[0] not in names:
            yield f"the mesh axis {name!r} over a mesh with {names}"


def _of_totals(report: ProgramReport) -> Iterator[str]:
    """Yield the totals that are not the sums of the collectives."""
    sent, rows = report.sent, report.collectives
    known = sum(row.total_nbytes or 0 for row in rows)
    unknown = sum(row.count for row in rows if row.times is None)
    if (sent.nbytes, sent.unknown_count) != (known, unknown):
        yield (
            f"{format_number(sent.nbytes)} bytes sent and {format_number(sent.unknown_count)} unknown, "
            f"but collectives with {format_number(known)} and {format_number(unknown)}"
        )
    for field, names in _TOTALS.items():
        sums: dict[tuple[object, ...], tuple[int, int]] = {}
        for row in rows:
            key = tuple(getattr(row, name) for name in names)
            nbytes, count = sums.get(key, (0, 0))
            more = row.count if row.times is None else 0
            sums[key] = (nbytes + (row.total_nbytes or 0), count + more)
        given = {
            tuple(getattr(part, name) for name in names): (part.nbytes, part.unknown_count)
            for part in getattr(sent, field)
        }
        if given != sums or len(given) != len(getattr(sent, field)):
            yield f"sent.{field} is not the sum of the collectives"


def _of_paths(what: str, paths: Iterable[str]) -> Iterator[str]:
    for path, count in Counter(paths).items():
        if count > 1:
            yield f"{count} {what} have the path {path!r}"
