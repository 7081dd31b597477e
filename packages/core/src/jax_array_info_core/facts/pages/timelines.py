"""The page of the memory of a job: the answer, the picture, the peak, growth, marks, jumps and processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from ...base.quantities import format_bytes, format_device_ids, grouped, seconds_words
from ..reports import TimelineReport
from ..reports.timeline import TimelineGroup, TimelineJump, TimelineMark, TimelinePeak, TimelineRecompilation
from ..reports.timeline_process import STALLED, TimelineProcess, standing_groups
from .blocks import (
    TIMES,
    Column,
    Grouping,
    Limited,
    Listing,
    Picture,
    Row,
    Sentence,
    Table,
    limited,
    more,
    number,
    said,
)
from .words import NO_ALLOCATION_SITES, site_words, size_words

NO_PEAKS = "This backend reports no peak: what is freed between two samples is not seen."
_MOST_PLACES, _MOST_STACKS, _MOST_CALLS = 2, 4, 6
"""Number of processes that stand or wait, of the stacks of each, and of their lines."""
_T = TypeVar("_T")

_MOST_OF_IT = Column("most of it", "text", meaning="arrays that grew most, and their allocation site")
TABLES = {
    "alive at the peak": (
        Column("bytes", "number", meaning="bytes of the arrays on the device"),
        Column("arrays", "number", meaning="number of arrays"),
        Column("each", "text", meaning="dtype and shape of each array"),
        Column("made at", "text", meaning="allocation site"),
    ),
    "bytes that each mark added": (
        Column("mark", meaning="name that the program gave to a part of it"),
        Column("times", "number", meaning="how often the mark began"),
        Column(
            "added",
            "number",
            before="added ",
            meaning="most bytes in use above those at its begin",
        ),
        Column(
            "kept",
            "number",
            before="kept ",
            meaning="bytes in use at its ends above those at its begins, summed over its times",
        ),
        Column("peak", "number", before="peak ", meaning="most bytes in use inside the mark"),
        Column(
            "highest",
            "number",
            before="highest ",
            meaning="most bytes in a sample inside the mark, of a backend that reports no peak",
        ),
        _MOST_OF_IT,
    ),
    "jumps outside of marks": (
        Column("at", meaning="time of the first sample after the jump"),
        Column("step", "number", before="step ", meaning="last step before the jump"),
        Column("times", "number", meaning="number of jumps of the same allocation site"),
        Column("added", "number", before="added ", meaning="bytes by which the use rose"),
        _MOST_OF_IT,
    ),
    "recompilations": (
        Column("function", is_kept=True),
        Column("called at", meaning="line of your code that called the function"),
        Column("at", meaning="time at which the first one ended"),
        Column("step", "number", before="step ", meaning="last step before it"),
        Column(
            "times", "number", meaning="recompilations with this function, line and reason, in one process"
        ),
        Column("duration", "number", meaning="time that XLA took for all of them, in one process"),
        Column("processes", before="processes ", meaning="indices of the processes, if there are several"),
        Column("reason", is_kept=True, meaning="what differs from the nearest earlier call of the function"),
    ),
    "processes": (
        Column("process", "number", meaning="index of the process in JAX"),
        Column(
            "run",
            "number",
            before="run ",
            meaning="number of the program, where several had this index at the same time",
        ),
        Column("step", "number", before="step ", meaning="last step, where a process stands in one"),
        Column("host", meaning="name of the machine"),
        Column("pid", "number", before="pid ", meaning="id of the process on its machine"),
        Column("job", before="job ", meaning="job of the scheduler, such as SLURM"),
        Column("peak", "number", before="peak ", meaning="most bytes in use on its fullest device"),
        Column(
            "highest",
            "number",
            before="highest ",
            meaning="most bytes on that device in any sample, of a backend that reports no peak",
        ),
        Column("last", "number", before="last ", meaning="bytes in use on that device at the last sample"),
        Column("limit", "number", before="limit ", meaning="most bytes that JAX may allocate on that device"),
        Column("until", meaning="time of the last sample"),
        Column("state", meaning="whether the process runs, ended, or was killed"),
    ),
}
"""Columns of each table, by its title."""
_GROUPINGS: dict[str, Sequence[Grouping]] = {
    "alive at the peak": [
        [["bytes"], ["arrays"], ["each"], ["made at"]],
        [["bytes", "arrays"], ["each", "made at"]],
    ],
    "bytes that each mark added": [
        [["mark"], ["times"], ["added"], ["kept"], ["peak"], ["highest"], ["most of it"]],
        [["mark", "times"], ["added", "kept", "peak", "highest"], ["most of it"]],
        [["mark", "times", "added", "kept", "peak", "highest", "most of it"]],
    ],
    "jumps outside of marks": [
        [["at"], ["step"], ["times"], ["added"], ["most of it"]],
        [["at", "step", "times", "added"], ["most of it"]],
    ],
    "recompilations": [
        [["function"], ["called at"], ["at"], ["step"], ["times"], ["duration"], ["processes"], ["reason"]],
        [["function", "called at"], ["at", "step"], ["times", "duration", "processes"], ["reason"]],
        [["function", "called at", "at", "step"], ["times", "duration", "processes"], ["reason"]],
        [["function", "called at", "reason"], ["at", "step", "times", "duration", "processes"]],
    ],
    "processes": [
        [
            ["process"],
            ["run"],
            ["step"],
            ["host"],
            ["pid"],
            ["job"],
            ["peak"],
            ["highest"],
            ["last"],
            ["limit"],
            ["until"],
            ["state"],
        ],
        [
            ["process", "run", "step"],
            ["host", "pid", "job"],
            ["peak", "highest", "last", "limit"],
            ["until", "state"],
        ],
        [
            ["process", "run", "step", "host", "pid", "job"],
            ["peak", "highest", "last", "limit"],
            ["until", "state"],
        ],
    ],
}
"""Groupings of the columns of each table."""


def timeline_page(report: TimelineReport) -> Iterator[Listing]:
    """Yield the answer, the picture and the tables.

    Args:
        report: The timeline.
    """
    standing = report.standing
    for line in report.answer:
        is_bad = line.startswith(("out of memory", "growing")) or line == standing
        yield Sentence(line, "alarm" if is_bad else "answer", hang=0)
    stalled = [group[0] for kind, group in standing_groups(report.processes) if kind in STALLED]
    for process in stalled[:_MOST_PLACES]:
        yield from said(_stacks(process), hang=2)
    resting = [process for process in report.processes if process.resting and not stalled]
    yield Limited(
        resting,
        lambda shown: said((_resting(process, report) for process in shown), hang=0),
        lambda others: said([more(len(others), "main thread that does not run", "such threads")], hang=0),
    )
    if report.times:
        yield Sentence(report.extent, hang=0)
        if report.chosen and report.chosen.host_words:
            yield Sentence(f"memory of the process on its host: {report.chosen.host_words}", hang=0)
        yield Sentence("")
        yield Picture(report)
    if report.peak is not None:
        yield _peak(report, report.peak)
    stopped = [
        (report.time_words(trend.stopped_at), trend.words)
        for trend in report.growth
        if trend.stopped_at is not None
    ]
    yield Limited(
        stopped,
        lambda shown: said((f"no growth since {since}: {words}" for since, words in shown), hang=0),
        lambda others: said([f"{more(len(others), 'line', 'lines')} no longer grow"], hang=0),
    )
    caption = "" if report.has_peaks else NO_PEAKS
    yield _table("bytes that each mark added", report.marks, partial(_mark, report.has_peaks), caption)
    jumps = [jump for jump in report.jumps if jump.mark is None or not report.marks]
    yield _table("jumps outside of marks", jumps, partial(_jump, report))
    again = _table("recompilations", report.recompilations, partial(_recompilation, report))
    yield again._replace(breaks="words")
    if len(report.processes) > 1:
        yield _table("processes", report.processes, partial(_process, report, bool(standing)))
        failed = [
            failure
            for failure in report.processes
            if failure is not report.chosen and failure.message and failure.short_message not in standing
        ]
        yield Limited(
            failed,
            lambda shown: said((f"{failure.name} {failure.ending}" for failure in shown), "warning", hang=0),
            lambda others: said([f"{more(len(others), 'process', 'processes')} failed"], "warning", hang=0),
        )
    yield from said((f"not read: {file.name}: {file.reason}" for file in report.unread), "warning", hang=0)


def _resting(process: TimelineProcess, report: TimelineReport) -> str:
    """Return where the main thread of a process does not run."""
    name = f"{process.name}, " if len(report.processes) > 1 else ""
    return f"{name}{process.resting}"


def _stacks(process: TimelineProcess) -> Iterator[str]:
    """Yield the stacks of the first threads of a process that stands."""
    for thread in process.stall.threads[:_MOST_STACKS] if process.stall else ():
        lines = [*map(str, thread.frames[:_MOST_CALLS]), *(["…"] if thread.frames[_MOST_CALLS:] else [])]
        yield f"{process.name}, {thread.name}: {' from '.join(lines)}"


def _peak(report: TimelineReport, peak: TimelinePeak) -> Table:
    """Return the table of the arrays that were alive at the peak."""
    when = "at the peak" if report.has_peaks else "at the highest sample"
    if peak.since is not None:
        when = f"at {report.time_words(peak.sampled_at)}, the sample next to the peak"
    has_sites = any(group.origin for group in peak.groups)

    def row(group: TimelineGroup) -> Row:
        return {
            "bytes": format_bytes(group.nbytes),
            "arrays": number(group.count, "array") if group.count else "",
            "each": group.content,
            "made at": site_words(group.origin) if has_sites else "",
        }

    def rest(groups: Sequence[TimelineGroup]) -> Row:
        nbytes, count = sum(group.nbytes for group in groups), sum(group.count for group in groups)
        return {"bytes": format_bytes(nbytes), "arrays": number(count, "array"), "each": more(len(groups))}

    others = {
        "other arrays, not named in the record": peak.other_nbytes,
        "not in arrays: temporary values, programs": peak.not_arrays_nbytes,
    }
    sums = [{"bytes": format_bytes(nbytes), "each": what} for what, nbytes in others.items() if nbytes]
    return Table(
        f"alive {when}: {format_bytes(peak.sampled_nbytes)} in use",
        TABLES["alive at the peak"],
        [limited(peak.groups, row, rest), sums],
        _GROUPINGS["alive at the peak"],
        "" if has_sites else NO_ALLOCATION_SITES,
    )


def _table(
    title: str,
    rows: Sequence[_T],
    row: Callable[[_T], Row],
    caption: str = "",
) -> Table:
    """Return a table of marks, jumps or processes, with the number of those that are left out."""
    columns = TABLES[title]
    section = limited(rows, row, lambda others: {columns[0].name: more(len(others))})
    return Table(title, columns, [section], _GROUPINGS[title], caption)


def _mark(has_peaks: bool, mark: TimelineMark) -> Row:
    """Return the row of a mark."""
    return {
        "mark": mark.name,
        "times": number(mark.count, "time"),
        "added": _change(mark.added_nbytes),
        "kept": _change(mark.kept_nbytes),
        "peak" if has_peaks else "highest": size_words(mark.peak_nbytes, "unknown"),
        "most of it": _largest(mark.groups),
    }


def _jump(report: TimelineReport, jump: TimelineJump) -> Row:
    """Return the row of a jump."""
    return {
        "at": report.time_words(jump.time),
        "step": "" if jump.step is None else f"{jump.step:,}",
        "times": number(jump.count, "time"),
        "added": _change(jump.nbytes),
        "most of it": _largest(jump.groups),
    }


def _recompilation(report: TimelineReport, recompilation: TimelineRecompilation) -> Row:
    """Return the row of a recompilation."""
    origin, step = recompilation.origin, recompilation.step
    return {
        "function": recompilation.function,
        "called at": "" if origin is None else origin.place,
        "at": report.time_words(recompilation.time),
        "step": "" if step is None else grouped(step),
        "times": number(recompilation.count, "time"),
        "duration": seconds_words(recompilation.seconds),
        "processes": format_device_ids(recompilation.processes) if len(report.processes) > 1 else "",
        "reason": recompilation.reason,
    }


def _process(report: TimelineReport, has_step: bool, process: TimelineProcess) -> Row:
    """Return the row of a process."""
    fullest = process.fullest
    row = {
        "process": str(process.process),
        "host": process.host_name,
        process.peak_name: size_words(fullest.peak_nbytes if fullest else None),
        "last": size_words(fullest.bytes_in_use if fullest else None),
        "limit": size_words(fullest.bytes_limit if fullest else None),
        "until": report.time_words(process.end),
        "state": process.state_words.removeprefix("is "),
    }
    if process.run_count > 1:
        row |= {"run": str(process.run), "pid": str(process.pid), "job": process.job or ""}
    if has_step and process.step is not None:
        row["step"] = grouped(process.step)
    if process.stall is not None and process.state == "running":
        row["state"] = f"stands in {process.stall.place}"
    return row


def _change(nbytes: int | None) -> str:
    """Return a change with its sign."""
    return f"{'+' if nbytes and nbytes > 0 else ''}{size_words(nbytes, 'unknown')}"


def _largest(groups: Sequence[TimelineGroup]) -> str:
    """Return the arrays of the first group."""
    if not groups:
        return ""
    group = groups[0]
    count = f"{group.count} {TIMES} " if group.count > 1 else ""
    return f"{format_bytes(group.nbytes)}: {count}{group.content} {site_words(group.origin)}".rstrip()
