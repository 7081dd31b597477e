"""Text for ``ProgramReport``: a summary for the first screen, then tables."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, Group, RenderableType

from jax_array_info_core import ProgramReport
from jax_array_info_core.quantities import counted, format_count
from jax_array_info_core.reports.flops import uncounted_words
from jax_array_info_core.reports.rows import split_rows

from .. import style
from .pages import Page
from .program_memory import memory_table, write_memory, write_rematerializations
from .program_sent import collectives_table, write_sent
from .program_values import free_values_table, write_donatable, write_donations, write_not_fixed, write_values
from .program_words import UNKNOWN, title_words
from .tree_words import grouped

_MOST_UNREAD = 3
"""Maximum number of unread lines that are shown."""


def program_table(report: ProgramReport, *, max_rows: int | None = 20, width: int = 80) -> RenderableType:
    """Return the summary of a program, then the tables of its collectives and temporaries.

    Args:
        report: The program.
        max_rows: Maximum number of rows of each table. One more row sums the others. None shows all.
        width: Maximum line length in characters.

    Raises:
        ValueError: If ``max_rows`` is negative.
    """
    summary = program_summary(report, width=width)
    return Group(summary, program_details(report, max_rows=max_rows, width=width))


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


def program_summary(report: ProgramReport, *, width: int = 80) -> RenderableType:
    """Return what moves, what is not as asked, and the memory of a program, in as few lines as possible."""

    def make(_: Console, options: ConsoleOptions) -> RenderableType:
        page = Page(min(width, options.max_width), options.encoding)
        _write_summary(page, report)
        return page.text()

    return style.ForConsole(make)


def _write_summary(page: Page, report: ProgramReport) -> None:
    page.write(title_words(report), look="bold")
    if report.is_known:
        write_sent(page, report)
    write_values(page, report)
    write_not_fixed(page, report)
    write_donations(page, report.donations)
    write_donatable(page, report.donatable)
    write_rematerializations(page, report)
    write_memory(page, report)
    if report.is_known:
        page.write(f"dot flops: {'; '.join(_flops(report))}")
    _write_unread(page, report)
    for caveat in report.caveats:
        page.write(caveat, look=style.ASIDE)


def _flops(report: ProgramReport) -> Iterator[str]:
    """Yield the flops, and the operations that are not counted."""
    if report.dot_flops is not None:
        yield f"{grouped(report.dot_flops)} per device and call"
    elif report.known_dot_flops:
        yield f"at least {format_count(report.known_dot_flops)}"
    else:
        yield UNKNOWN
    yield from uncounted_words(report.uncounted_flops)


def _write_unread(page: Page, report: ProgramReport) -> None:
    """Add the lines that could not be read."""
    if not report.unread:
        return
    lines = counted(len(report.unread), "line", "lines")
    local = "" if report.unread_sending else " without collectives"
    page.write(f"unread: {lines}{local}, not included in the figures above", look=f"bold {style.WARNING}")
    shown, rest = split_rows(report.unread, _MOST_UNREAD)
    for line in shown:
        page.write(line.strip(), indent=2)
    if rest:
        page.write(f"and {len(rest)} more", indent=2)
