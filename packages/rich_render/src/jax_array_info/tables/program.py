"""Text for ``ProgramReport``: a summary for the first screen, then tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType

from jax_array_info_core.layouts.dtypes import type_text
from jax_array_info_core.pages.folds import folded_paths, split_rows
from jax_array_info_core.reports import Collective, ProgramReport, SentTotals
from jax_array_info_core.reports.collectives import (
    because_words,
    link_words,
    most_nbytes,
    over_words,
    sent_by,
    sent_outside_words,
    sent_words,
)
from jax_array_info_core.reports.control_flow import FlopTotals, per_iteration_words
from jax_array_info_core.reports.program import uncounted_words, unknown_bytes
from jax_array_info_core.reports.program_findings import accepted

from .. import style
from .findings import write_findings
from .pages import Grouping, Page, StackedColumn, stacked_table
from .program_memory import memory_table, write_memory
from .program_timeline import program_timeline_table
from .program_values import free_values_table, write_values
from .program_words import (
    collective_axes_words,
    counted_path,
    each_words,
    folded_text,
    phase_words,
    scope_words,
    title_words,
    total_words,
    within_words,
    without_indices,
)
from .words import origin_words

_MOST_SUMS = 8
"""Maximum number of sums by kind and axes."""
_WIDE: Grouping = (
    ("total",), ("each",), ("runs",), ("collective",), ("over",), ("link",), ("array",), ("argument",),
    ("line",), ("scope",), ("phase",), ("because",),
)  # fmt: skip
_GROUPINGS: Sequence[Grouping] = (
    _WIDE,
    (
        ("total",),
        ("collective", "over", "link"),
        ("array", "each", "runs", "argument"),
        ("line", "scope", "phase", "because"),
    ),
    (
        ("total",),
        ("collective", "over", "link", "phase"),
        ("array", "each", "runs", "argument", "line", "scope", "because"),
    ),
    (
        ("total",),
        (
            "collective",
            "over",
            "link",
            "array",
            "each",
            "runs",
            "argument",
            "line",
            "scope",
            "phase",
            "because",
        ),
    ),
)


def write_sent(page: Page, report: ProgramReport) -> None:
    """Add the bytes that a device sends, with the sums by kind and axes."""
    sent = report.sent
    words = sent_words(sent, bound=most_nbytes(report.collectives))
    if not report.collectives and not sent.nbytes and not sent.unknown_count:
        words = "none" if not report.unread_sending else "none in the lines that could be read"
    page.write(f"sent per device and call: {words}{_phases(sent)}", look="bold")
    has_loops = len(sent.per_iteration) > 1
    shown, rest = split_rows(sent.by_kind_and_axes, _MOST_SUMS)
    sizes = [*map(sent_outside_words, shown)]
    widest = max(map(len, sizes), default=0)
    for size, part in zip(sizes, shown, strict=True):
        loops = [f"+ {words}" for words in per_iteration_words(part.per_iteration, has_loops=has_loops)]
        page.write_entry(size.rjust(widest), "", f"{part.kind or 'unknown'} {over_words(part.axes)}", *loops)
    if rest:
        keys = {(part.kind, part.axes) for part in rest}
        more = sent_by(one for one in report.collectives if (one.kind, one.axes) in keys)
        page.write_entry("", "", f"and {len(rest)} more, {sent_words(more, has_loops=False)}")
    for reason in unknown_bytes(report, has_loops=False):
        page.write(f"?: {reason}", indent=2, look=style.WARNING)


def _phases(sent: SentTotals) -> str:
    """Return the sums by pass, if any collective has one."""
    if not any(part.phase for part in sent.by_phase):
        return ""
    parts = [f"{part.phase or 'unknown pass'} {sent_words(part, has_loops=False)}" for part in sent.by_phase]
    return f" ({', '.join(parts)})"


def collectives_table(
    report: ProgramReport, *, max_rows: int | None, width: int, encoding: str
) -> RenderableType | None:
    """Return the table of the collectives, the most bytes first; None if there are none."""
    shown, rest = split_rows(_folded(report.collectives, style.marks(encoding)), max_rows)
    if not shown:
        return None
    columns = _columns(shown, style.marks(encoding), has_links=bool(report.sent.over_links))
    return stacked_table(
        "collectives",
        columns,
        _GROUPINGS,
        width=width,
        encoding=encoding,
        rest=_rest([one for one, _ in rest]) if rest else None,
    )


def _folded(collectives: Sequence[Collective], marks: style.Marks) -> list[tuple[Collective, str]]:
    """Return the collectives, those of arguments that differ only in the indices of their paths as one.

    Each has the words on what it is needed for.
    """
    paths = [one.path or "" for one in collectives]
    words = [because_words(one) for one in collectives]
    facts = [
        (
            replace(
                one,
                path=None,
                count=1,
                because=(),
                within=tuple(each if each.side is None else replace(each, number=0) for each in one.within),
            ),
            without_indices(text),
        )
        for one, text in zip(collectives, words, strict=True)
    ]
    folded = []
    for path, members in folded_paths(paths, facts):
        count = sum(collectives[member].count for member in members)
        name = counted_path(path, len(members), marks) if path else None
        text = folded_text([words[member] for member in members])
        folded.append((replace(collectives[members[0]], path=name, count=count), text))
    if len(folded) < len(collectives):
        folded.sort(key=lambda row: (row[0].times is not None, -(row[0].bound_nbytes or 0)))
    return folded


def _columns(
    rows: Sequence[tuple[Collective, str]], marks: style.Marks, *, has_links: bool
) -> list[StackedColumn]:
    """Return the columns, with the slowest link of each collective where it tells something."""
    collectives = [one for one, _ in rows]
    return [
        StackedColumn("total", [*map(total_words, collectives)], is_number=True),
        StackedColumn("each", [each_words(one, marks) for one in collectives]),
        StackedColumn("runs", [*map(within_words, collectives)], is_text=True),
        StackedColumn("collective", [one.kind for one in collectives]),
        StackedColumn("over", [*map(collective_axes_words, collectives)], "over "),
        StackedColumn("link", [link_words(one.link) if has_links else "" for one in collectives], "by "),
        StackedColumn("array", [type_text(one.dtype, one.shape) for one in collectives]),
        StackedColumn("argument", [one.path or "" for one in collectives], is_path=True),
        StackedColumn("line", [origin_words(one.origin) for one in collectives]),
        StackedColumn("scope", [scope_words(one.scopes) for one in collectives], "in ", is_path=True),
        StackedColumn("phase", [*map(phase_words, collectives)]),
        StackedColumn("because", [words for _, words in rows], "because ", is_text=True),
    ]


def _rest(rest: Sequence[Collective]) -> dict[str, str]:
    """Return the cells of the row that sums further collectives."""
    count = sum(one.count for one in rest)
    return {
        "total": sent_words(sent_by(rest), has_loops=False),
        "collective": f"{count} more" if count != 1 else "1 more",
    }


_MOST_UNREAD = 3
"""Maximum number of unread lines that are shown."""


def program_table(
    report: ProgramReport, *, max_rows: int | None = 20, width: int = 80, use_color: bool = False
) -> RenderableType:
    """Return the summary of a program, the tables of its collectives and temporaries, and its timeline.

    Args:
        report: The program.
        max_rows: Maximum number of rows of each table. One more row sums the others. None shows all.
        width: Maximum line length in characters.
        use_color: Whether to fill the areas of the timeline with colors.

    Raises:
        ValueError: If ``max_rows`` is negative.
    """
    parts = [
        program_summary(report, max_rows=max_rows, width=width),
        program_details(report, max_rows=max_rows, width=width),
    ]
    if report.timeline is not None:
        parts.append(program_timeline_table(report.timeline, width=width, use_color=use_color))
    return Group(*parts)


def program_details(report: ProgramReport, *, max_rows: int | None = 20, width: int = 80) -> RenderableType:
    """Return the tables of the collectives, of the temporaries, and of the shardings that XLA chose."""

    def make(_: Console, options: ConsoleOptions) -> RenderableType:
        most, encoding = min(width, options.max_width), options.encoding
        tables = [
            table(report, max_rows=max_rows, width=most, encoding=encoding)
            for table in (collectives_table, memory_table, free_values_table)
        ]
        return Group(*(table for table in tables if table is not None))

    return style.ForConsole(make)


def program_summary(report: ProgramReport, *, max_rows: int | None = 20, width: int = 80) -> RenderableType:
    """Return the answer, what moves, the memory and the findings, in as few lines as possible.

    Each finding has its largest rows, and all of them if ``max_rows`` is None.
    """

    def make(_: Console, options: ConsoleOptions) -> RenderableType:
        page = Page(min(width, options.max_width), options.encoding)
        _write_summary(page, report, shows_all=max_rows is None)
        return page.text()

    return style.ForConsole(make)


def _write_summary(page: Page, report: ProgramReport, *, shows_all: bool) -> None:
    page.write(report.answer, look="bold")
    page.write(title_words(report))
    if report.first_call:
        page.write(report.first_call, look=style.WARNING)
    if report.is_known:
        write_sent(page, report)
    write_memory(page, report)
    if report.is_known:
        if report.dot_flops != 0:
            page.write(f"matmul and convolution FLOPs: {'; '.join(_flops(report))}")
        if report.fft_flops != 0:
            page.write(f"FFT FLOPs: {report.fft_totals.words} (5 N log2 N, half for real numbers)")
    write_values(page, report)
    for words in accepted(report):
        page.write(words)
    for caveat in report.caveats:
        page.write(caveat, look=style.ASIDE)
    total = sum(one.nbytes or 0 for one in (*report.arguments, *report.outputs))
    rows: dict[str, Any] = {"max_rows": None, "min_share": 0} if shows_all else {}
    write_findings(page, report.findings, total=total, **rows)


def _flops(report: ProgramReport) -> Iterator[str]:
    """Yield the flops of dots, and the operations that are not counted."""
    flops = report.dot_flops
    older = FlopTotals(known=report.known_dot_flops if flops is None else flops, bound=flops)
    dots = report.dot_totals or older
    yield dots.words
    yield from uncounted_words(report.uncounted_flops)
