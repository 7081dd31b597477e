"""Text for ``TimelineReport``: the answer, the picture, then the peak, growth, marks, jumps and processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from rich.console import Group, RenderableType
from rich.table import Table

from jax_array_info_core import format_bytes
from jax_array_info_core.pages.folds import split_rows
from jax_array_info_core.quantities import counted
from jax_array_info_core.reports import TimelineReport
from jax_array_info_core.reports.timeline import TimelineGroup, TimelineJump, TimelineMark
from jax_array_info_core.reports.timeline_process import TimelineProcess

from .. import style
from ..pictures.timeline import timeline_picture
from .words import NO_ALLOCATION_SITES, folding_table, site_words

MAX_ROWS = 10
"""Number of rows of each table, unless another one is asked for."""
_Row = TypeVar("_Row")


def timeline_table(
    report: TimelineReport, *, width: int = 80, use_color: bool = False, max_rows: int | None = MAX_ROWS
) -> RenderableType:
    """Return the answer, the picture and the tables.

    Args:
        report: The timeline.
        width: Maximum line length in characters.
        use_color: Whether to fill the areas with colors.
        max_rows: Maximum number of rows of each table; one more line has the rest. None shows all.
    """
    picture = style.ForConsole(
        lambda console, options: style.folding(
            timeline_picture(
                report,
                width=min(width, options.max_width),
                use_color=use_color and style.has_many_colors(console),
                encoding=options.encoding,
            )
        )
    )
    pictures: list[RenderableType] = ["", picture] if report.times else []
    return Group(timeline_answer(report), *pictures, timeline_details(report, max_rows=max_rows))


def timeline_answer(report: TimelineReport) -> RenderableType:
    """Return the first lines."""
    lines: list[RenderableType] = []
    for line in report.answer:
        is_bad = line.startswith(("out of memory", "growing"))
        lines.append(style.written(line, look=f"bold {style.WARNING}" if is_bad else "bold"))
    if report.times:
        lines.append(style.written(report.extent))
    return Group(*lines)


def timeline_details(report: TimelineReport, *, max_rows: int | None = MAX_ROWS) -> RenderableType:
    """Return what was alive at the peak, what stopped growing, marks, jumps, processes and unread files."""
    return Group(*_details(report, max_rows))


def _details(report: TimelineReport, max_rows: int | None) -> Iterator[RenderableType]:
    yield from _peak(report, max_rows)
    stopped = [grown for grown in report.growth if grown.stopped_at is not None]
    shown, rest = split_rows(stopped, max_rows)
    for grown in shown:
        since = report.time_words(grown.stopped_at or 0.0)
        yield style.written(f"no growth since {since}: {grown.words}")
    if rest:
        yield style.written(f"{counted(len(rest), 'more line', 'more lines')} no longer grow")
    if report.marks:
        marks = _table("bytes that each mark added", report.marks, _mark_columns(), max_rows)
        if report.chosen is not None and report.chosen.in_use_source == "arrays":
            marks.caption = "This backend reports no peak: what is freed between two samples is not seen."
        yield marks
    jumps = [jump for jump in report.jumps if jump.mark is None or len(report.marks) < 1]
    if jumps:
        yield _table("jumps outside of marks", jumps, _jump_columns(report), max_rows)
    if len(report.processes) > 1:
        yield _table("processes", report.processes, _process_columns(report), max_rows)
        chosen = report.chosen
        failed = [one for one in report.processes if one.message and one is not chosen]
        for process in failed[:max_rows]:
            yield style.written(f"{process.name} {process.ending}", look=style.WARNING)
    for unread in report.unread:
        yield style.written(f"not read: {unread.name}: {unread.reason}", look=style.WARNING)


def _peak(report: TimelineReport, max_rows: int | None) -> Iterator[RenderableType]:
    peak = report.peak
    if peak is None:
        return
    when = "at the peak"
    if peak.since is not None:
        when = f"at {report.time_words(peak.sampled_at)}, the sample next to the peak"
    columns: dict[str, Callable[[TimelineGroup], str]] = {
        ">bytes": lambda group: format_bytes(group.nbytes),
        ">arrays": lambda group: str(group.count) if group.count else "",
        "each": lambda group: group.content,
        "made at": lambda group: site_words(group.origin),
    }
    if all(group.origin is None for group in peak.groups):
        del columns["made at"]
    table = folding_table(style.written(f"alive {when}: {format_bytes(peak.sampled_nbytes)} in use"), columns)
    shown, rest = split_rows(peak.groups, max_rows)
    for group in shown:
        table.add_row(*(style.written(cell(group)) for cell in columns.values()))
    if rest:
        nbytes, count = sum(group.nbytes for group in rest), sum(group.count for group in rest)
        table.add_row(format_bytes(nbytes), str(count), f"{len(rest)} more")
    if peak.other_nbytes:
        table.add_row(format_bytes(peak.other_nbytes), "", "other arrays, not named in the record")
    if peak.not_arrays_nbytes:
        table.add_row(format_bytes(peak.not_arrays_nbytes), "", "not in arrays: temporary values, programs")
    if "made at" not in columns:
        table.caption = NO_ALLOCATION_SITES
    yield table


def _mark_columns() -> dict[str, Callable[[TimelineMark], str]]:
    return {
        "mark": lambda mark: mark.name,
        ">times": lambda mark: str(mark.count),
        ">added": lambda mark: _change(mark.added_nbytes),
        ">kept": lambda mark: _change(mark.kept_nbytes),
        ">peak": lambda mark: "unknown" if mark.peak_nbytes is None else format_bytes(mark.peak_nbytes),
        "most of it": lambda mark: _largest(mark.groups),
    }


def _jump_columns(report: TimelineReport) -> dict[str, Callable[[TimelineJump], str]]:
    return {
        "at": lambda jump: report.time_words(jump.time),
        ">step": lambda jump: "" if jump.step is None else f"{jump.step:,}",
        ">times": lambda jump: str(jump.count),
        ">added": lambda jump: _change(jump.nbytes),
        "most of it": lambda jump: _largest(jump.groups),
    }


def _process_columns(report: TimelineReport) -> dict[str, Callable[[TimelineProcess], str]]:
    def size(process: TimelineProcess, field: str) -> str:
        nbytes = getattr(process.fullest, field) if process.fullest else None
        return "" if nbytes is None else format_bytes(nbytes)

    return {
        ">process": lambda process: str(process.process),
        ">run": lambda process: str(process.run) if process.run_count > 1 else "",
        "host": lambda process: process.host_name,
        ">pid": lambda process: str(process.pid) if process.run_count > 1 else "",
        "job": lambda process: (process.job or "") if process.run_count > 1 else "",
        ">peak": lambda process: size(process, "peak_nbytes"),
        ">last": lambda process: size(process, "bytes_in_use"),
        ">limit": lambda process: size(process, "bytes_limit"),
        "until": lambda process: report.time_words(process.end),
        "state": lambda process: process.state_words.removeprefix("is "),
    }


def _table(
    title: str, rows: Sequence[_Row], columns: dict[str, Callable[[_Row], str]], max_rows: int | None
) -> Table:
    filled = {head: cell for head, cell in columns.items() if any(cell(row) for row in rows)}
    table = folding_table(style.written(title), filled)
    shown, rest = split_rows(rows, max_rows)
    for row in shown:
        table.add_row(*(style.written(cell(row)) for cell in filled.values()))
    if rest:
        table.add_row(f"{len(rest)} more")
    return table


def _change(nbytes: int | None) -> str:
    if nbytes is None:
        return "unknown"
    return f"{'+' if nbytes > 0 else ''}{format_bytes(nbytes)}"


def _largest(groups: Sequence[TimelineGroup]) -> str:
    if not groups:
        return ""
    group = groups[0]
    count = f"{group.count} × " if group.count > 1 else ""
    return f"{format_bytes(group.nbytes)}: {count}{group.content} {site_words(group.origin)}".rstrip()
