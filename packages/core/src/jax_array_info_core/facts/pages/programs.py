"""The pages of a compiled program: a summary for the first screen and tables; its memory over time."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from ...base.grouping import sums_by_key
from ...base.quantities import format_bytes, grouped
from ...base.text import UNKNOWN, that_apply
from ...geometry.layouts.dtypes import type_text
from ..reports import Collective, ProgramReport, ProgramTimelineReport, SentBytes
from ..reports.collectives import (
    because_words,
    link_words,
    most_nbytes,
    over_words,
    sent_by,
    sent_outside_words,
    sent_words,
)
from ..reports.control_flow import FlopTotals, per_iteration_words, waiting_words
from ..reports.program import accepted, unknown_bytes
from ..reports.program_values import uncounted_words
from .blocks import (
    Block,
    Column,
    Further,
    Listing,
    Picture,
    Row,
    Sentence,
    Source,
    Table,
    counted_path,
    limited,
    listed,
    more,
    said,
)
from .findings import finding_blocks
from .folds import folded, folded_text, without_indices
from .program_lines import line_blocks
from .program_parts import TABLES as PART_TABLES
from .program_parts import (
    backward_blocks,
    free_values_table,
    memory_lines,
    memory_table,
    value_lines,
)
from .program_words import (
    collective_axes_words,
    each_words,
    name_words,
    phase_words,
    platform_words,
    scope_words,
    title_words,
    total_words,
    within_words,
    work_words,
)
from .words import origin_words

_COLLECTIVES = (
    Column("total", "number", meaning="bytes that a device sends in one call for the collectives of the row"),
    Column("each", meaning="factors of the total: number of collectives, bytes of one, runs of the loop"),
    Column("runs", "text", meaning="side of a conditional or loop of unknown length that it runs in"),
    Column("collective", meaning="operation that moves data between devices"),
    Column("over", before="over ", meaning="mesh axes over which data moves"),
    Column("link", before="by ", meaning="slowest link between devices that exchange data"),
    Column("array", meaning="dtype and shape of the result on one device"),
    Column("argument", "path", meaning="path of the argument that is moved"),
    Column("line", meaning="line of your code, or near it, of the operation that needs the data"),
    Column("scope", "path", before="in ", meaning="names of jax.named_scope around the operation"),
    Column("phase", meaning="pass of a training step: forward, or backward with what it computes again"),
    Column(
        "because",
        "text",
        before="because ",
        meaning="operation that needs the collective, as an einsum, or the constraint that leaves axes out",
    ),
)
TABLES = {"collectives": _COLLECTIVES, **PART_TABLES}
"""Columns of each table, by its title."""
_IN_FULL = 2
"""Number of findings that have room for a value on each page."""


def program_page(report: ProgramReport) -> Iterator[Listing]:
    """Yield the answer, the memory, what moves and why, the findings, the shardings, and what was asked for.

    Args:
        report: The program.
    """
    yield Sentence(report.answer, "answer")
    yield Sentence(title_words(report))
    if report.first_call:
        yield Sentence(report.first_call, "warning")
    yield from said(memory_lines(report))
    if report.is_known:
        yield from sent_blocks(report)
    if report.work is not None:
        yield Sentence(f"work: {work_words(report.work, report.device_count)}")
    yield Source(report)
    yield from finding_blocks(report.findings or (), in_full=_IN_FULL)
    yield from said(_next_step(report))
    yield from line_blocks(report)
    yield Further([_collectives(report)])
    if report.memory is not None:
        yield Further([memory_table(report.memory)])
        yield Further([*backward_blocks(report.memory)], is_if_room=True)
    if report.is_known:
        yield Further([*said(_flops(report))], is_if_room=True)
    yield Further([*said(value_lines(report))], is_if_room=True)
    yield free_values_table(report)
    yield Further([*said(accepted(report))], is_if_room=True)
    yield from said(report.caveats, "aside")
    if report.timeline is not None:
        yield from program_timeline_page(report.timeline)


def _next_step(report: ProgramReport) -> Iterator[str]:
    """Yield the command that tries changes, if a finding costs something and a file has the function."""
    origin, findings = report.origin, report.findings or ()
    has_costs = any(finding.nbytes or finding.sent_nbytes or finding.flops for finding in findings)
    if origin is None or origin.cell is not None or (origin.code[:1] or " ").isspace():
        return  # a file has no such name: it is that of a notebook, or of a function in another
    if has_costs and report.device_count > 1 and report.is_known and origin.function.isidentifier():
        yield f"which change helps: jai-cli advise {origin.name}:{origin.function}"


def sent_blocks(report: ProgramReport) -> Iterator[Listing]:
    """Yield the bytes that a device sends, with the sums by kind and axes."""
    sent, collectives = report.sent, report.collectives or ()
    if sent is None:
        yield Sentence(f"sent per device and call: {UNKNOWN}", "answer")
        return
    words = sent_words(sent, bound=most_nbytes(collectives))
    if not collectives and not sent.nbytes and not sent.unknown_count:
        words = "none in the lines that could be read" if report.unread_sending else "none"
    phases = (f"{part.phase or 'unknown pass'} {sent_words(part, has_loops=False)}" for part in sent.by_phase)
    if any(part.phase for part in sent.by_phase):
        words += f" ({', '.join(phases)})"
    yield Sentence(f"sent per device and call: {words}", "answer")
    has_loops = len(sent.per_iteration) > 1

    def entry(part: SentBytes) -> Sequence[str]:
        loops = per_iteration_words(part.per_iteration, has_loops=has_loops)
        name = f"{part.kind or 'unknown'} {over_words(part.axes, report.mesh)}"
        lines = sums_by_key(
            (origin_words(collective.origin), collective.total_nbytes or 0)
            for collective in collectives
            if collective.origin and (collective.kind, collective.axes) == (part.kind, part.axes)
        )
        most = [f"{'most at ' if len(lines) > 1 else ''}{line}" for line, _ in lines.most_common(1)]
        return [sent_outside_words(part), "", name, *(f"+ {words}" for words in loops), *most]

    def rest(others: Sequence[SentBytes]) -> str:
        keys = {(part.kind, part.axes) for part in others}
        ones = (collective for collective in collectives if (collective.kind, collective.axes) in keys)
        return f"{more(len(others))}, {sent_words(sent_by(ones), has_loops=False)}"

    yield Further([listed(sent.by_kind_and_axes, entry, rest)])
    reasons = unknown_bytes(report, has_loops=False)
    yield from said((f"?: {reason}" for reason in reasons), "warning", indent=2)
    yield from said(waiting_words(sent.per_iteration, report.device_count), indent=2)


def _flops(report: ProgramReport) -> Iterator[str]:
    """Yield the flops of dots, with the operations that are not counted, and those of other kinds.

    Those that XLA counts follow where they are many more.
    """
    flops, ffts = report.dot_flops, report.fft_totals
    if report.known_dot_flops is None or ffts is None:
        yield f"FLOPs: {UNKNOWN}"
        return
    if flops != 0:
        older = FlopTotals(known=report.known_dot_flops if flops is None else flops, bound=flops)
        words = ((report.dot_totals or older).words, *uncounted_words(report.uncounted_flops or ()))
        yield f"matmul and convolution FLOPs: {'; '.join(words)}"
    if ffts.exact != 0:
        yield f"FFT FLOPs: {ffts.words} (5 N log2 N, half for real numbers)"
    for totals in report.decompositions or ():
        yield f"{totals.operation} FLOPs: {totals.words}"
    if report.is_mostly_uncounted:
        yield f"FLOPs by XLA's count: {grouped(report.xla_flops or 0)} per device and call, each loop once"


def _collectives(report: ProgramReport) -> Table:
    """Return the table of the collectives, the most bytes first, with the slowest link where it says more."""
    has_links = report.sent is not None and bool(report.sent.over_links)

    def row(fold: tuple[Collective, str]) -> Row:
        collective, because = fold
        return {
            "total": total_words(collective),
            "each": each_words(collective),
            "runs": within_words(collective),
            "collective": collective.kind,
            "over": collective_axes_words(collective, report.mesh),
            "link": link_words(collective.link) if has_links else "",
            "array": type_text(collective.dtype, collective.shape),
            "argument": collective.path or "",
            "line": origin_words(collective.origin),
            "scope": scope_words(collective.scopes),
            "phase": phase_words(collective),
            "because": because,
        }

    def rest(others: Sequence[tuple[Collective, str]]) -> Row:
        ones = [collective for collective, _ in others]
        total = sent_words(sent_by(ones), has_loops=False)
        return {"total": total, "collective": more(sum(collective.count for collective in ones))}

    name, place = ("collective", "over", "link"), ("line", "scope")
    array = ("array", "each", "runs", "argument")
    groupings = (
        [(column.name,) for column in _COLLECTIVES],
        (("total",), name, array, (*place, "phase", "because")),
        (("total",), (*name, "phase"), (*array, *place, "because")),
        (("total",), (*name, *array, *place, "phase", "because")),
    )
    rows = limited(folded_collectives(report.collectives or ()), row, rest, is_apart=True)
    return Table("collectives", _COLLECTIVES, [rows], groupings)


def folded_collectives(collectives: Sequence[Collective]) -> list[tuple[Collective, str]]:
    """Return the collectives, those of arguments that differ only in the indices of their paths as one.

    Each has the words on what it is needed for.
    """

    def fact(collective: Collective) -> Hashable:
        within = tuple(loop if loop.side is None else replace(loop, number=0) for loop in collective.within)
        alike = replace(collective, path=None, count=1, because=(), within=within)
        return alike, without_indices(because_words(collective))

    rows = []
    for path, alike in folded(collectives, fact, lambda collective: collective.path or ""):
        count = sum(collective.count for collective in alike)
        name = counted_path(path, len(alike)) if path else None
        because = folded_text([*map(because_words, alike)])
        rows.append((replace(alike[0], path=name, count=count), because))
    if len(rows) < len(collectives):
        rows.sort(key=lambda row: (row[0].times is not None, -(row[0].bound_nbytes or 0)))
    return rows


_SOURCES = {
    "peak": "the peak, arguments and outputs are XLA's figures",
    "sum": "arguments and outputs are XLA's figures",
    "unknown": "the backend reports no bytes of arguments and outputs",
}


def program_timeline_page(report: ProgramTimelineReport) -> Iterator[Block]:
    """Yield the peak and the program, then the live bytes along the schedule and the sources of the figures.

    Args:
        report: The timeline. One without points has no picture.
    """
    if report.out_of_memory is not None:
        yield Sentence(report.out_of_memory.answer, "alarm")
    if report.peak is not None:
        facts = filter(None, (report.operations[report.peak], origin_words(report.peak_origin)))
        yield Sentence(f"{report.peak_words}: {', '.join(facts)}", "answer")
    title = filter(None, (name_words(report), report.topology or platform_words(report.platform)))
    yield Sentence(f"{', '.join(title)}: live bytes per device along the schedule")
    if not report.points:
        return
    yield Picture(report)
    estimated = "Estimated from the schedule, which has the body of a loop once"
    notes = that_apply(
        (True, f"{estimated}; {_SOURCES[report.needed_source]}."),
        (report.excess_nbytes, f"The estimate is {format_bytes(report.excess_nbytes)} more than XLA needs."),
    )
    yield from said(notes, "aside")
    if report.host_nbytes:
        yield Sentence(f"not shown: {format_bytes(report.host_nbytes)} in host memory")
