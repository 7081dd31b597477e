"""Page for ``LogReport``."""

from __future__ import annotations

from rich.console import RenderableType

from jax_array_info.tables.folds import split_rows
from jax_array_info_core import format_bytes
from jax_array_info_core.layouts.dtypes import type_text
from jax_array_info_core.quantities import counted, format_number
from jax_array_info_core.reports import LogReport

from .. import style
from .pages import Page
from .program_memory import write_rematerialized
from .program_words import counted_path
from .words import mesh_words


def log_table(report: LogReport, *, max_rows: int | None = 100, width: int = 80) -> RenderableType:
    """Return the rematerialization and donation warnings in a log, the most bytes first.

    Args:
        report: The report on the log.
        max_rows: Maximum number of entries of each kind. One more has the number of the others. None shows
            all.
        width: Maximum line length in characters.
    """

    def make(encoding: str) -> RenderableType:
        page = Page(width, encoding)
        _write_title(page, report)
        if report.rematerializations:
            words = "rematerialized in full, then sharded again (bytes of the whole array):"
            page.write(words, look=f"bold {style.WARNING}")
            write_rematerialized(page, report.rematerializations, report.mesh, max_rows)
        else:
            page.write("rematerialized: no warnings")
        if report.donations:
            words = "donated, but not reused by an output (bytes per device):"
            page.write(words, look=f"bold {style.WARNING}")
            _write_donations(page, report, max_rows)
        else:
            page.write("donated, but not reused: no warnings")
        if report.unlisted_count:
            page.write(f"not listed: {_warnings(report.unlisted_count)}, because of their number")
        if report.unread:
            page.write(f"not read: {_warnings(len(report.unread))}", look=style.WARNING)
            shown, rest = split_rows(report.unread, max_rows)
            for text in shown:
                page.write(text, indent=2)
            if rest:
                page.write(f"and {len(rest)} more", indent=2)
        return page.text()

    return style.ForConsole(lambda _, options: make(options.encoding))


def _write_title(page: Page, report: LogReport) -> None:
    """Add the name of the log, its number of lines and the mesh."""
    name = {None: "lines", "-": "standard input"}.get(report.name, report.name)
    lines = f"{format_number(report.line_count)} line{'' if report.line_count == 1 else 's'}"
    title = lines if report.name is None else f"{name}, {lines}"
    page.write(title if report.mesh is None else f"{title}, mesh: {mesh_words(report.mesh)}", look="bold")


def _write_donations(page: Page, report: LogReport, max_rows: int | None) -> None:
    shown, rest = split_rows(report.donations, max_rows)
    sizes = ["?" if one.nbytes is None else format_bytes(one.nbytes) for one in shown]
    widest = max(map(len, sizes), default=0)
    for size, one in zip(sizes, shown, strict=True):
        page.write_entry(
            size.rjust(widest), "", counted_path(type_text(one.dtype, one.shape), one.count, page.marks)
        )
    if rest:
        page.write_entry("", "", f"and {counted(len(rest), 'more type', 'more types')}")


def _warnings(count: int) -> str:
    return f"{format_number(count)} warning{'' if count == 1 else 's'}"
