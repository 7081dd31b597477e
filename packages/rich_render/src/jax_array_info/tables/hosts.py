"""Text for ``HostsReport``: the answer, the heat map, the fullest and emptiest processes, the findings."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.text import Text

from jax_array_info_core import format_bytes
from jax_array_info_core.reports import HostsReport, HostSummary

from .. import style
from ..pictures.hosts import hosts_picture
from .findings import write_findings
from .pages import Page
from .words import folding_table

MAX_ROWS = 10
"""Number of processes in the table, unless another one is asked for."""


def hosts_table(
    report: HostsReport, *, width: int = 80, use_color: bool = False, max_rows: int | None = MAX_ROWS
) -> RenderableType:
    """Return the answer, the heat map, the fullest and the emptiest processes, and the findings.

    Args:
        report: The processes.
        width: Maximum line length in characters.
        use_color: Whether to fill the cells of the heat map.
        max_rows: Maximum number of processes in the table, half of them the fullest. None shows all.
    """
    parts = [hosts_answer(report)]
    if report.process_count > MAX_ROWS:  # of fewer, the table has each
        parts.append(style.folding(hosts_picture(report, width=width, use_color=use_color)))
    return Group(*parts, hosts_details(report, width=width, max_rows=max_rows))


def hosts_answer(report: HostsReport) -> RenderableType:
    """Return the first lines."""
    return style.written(report.answer, look="bold")


def hosts_details(report: HostsReport, *, width: int = 80, max_rows: int | None = MAX_ROWS) -> RenderableType:
    """Return the table of processes and the findings."""

    def make(_: Console, options: ConsoleOptions) -> Text:
        page = Page(min(width, options.max_width), options.encoding)
        write_findings(page, report.findings, total=report.fullest_nbytes, syntax=report.syntax, min_share=0)
        if report.ignored_codes:
            page.write(f"ignored codes: {', '.join(report.ignored_codes)}", hang=0)
        return page.text()

    parts: list[RenderableType] = [_processes(report, max_rows)] if report.hosts and max_rows != 0 else []
    return Group(*parts, *([style.ForConsole(make)] if report.findings or report.ignored_codes else []))


def _processes(report: HostsReport, max_rows: int | None) -> RenderableType:
    """Return the table of the fullest and the emptiest processes."""
    columns: dict[str, Callable[[HostSummary], str | None]] = {
        ">process": lambda host: str(host.process),
        "host": lambda host: host.host_name,
        ">bytes": lambda host: format_bytes(host.nbytes),
        ">arrays": lambda host: None if host.array_count is None else str(host.array_count),
        ">devices": lambda host: str(host.device_count),
        ">in use": lambda host: _size(host.device.bytes_in_use if host.device else None),
        ">peak": lambda host: _size(host.peak_nbytes),
        ">limit": lambda host: _size(host.device.bytes_limit if host.device else None),
    }
    if len(report.hosts) > 1 and report.machine_count == 1:
        del columns["host"]
    if len({host.device_count for host in report.hosts}) == 1:
        del columns[">devices"]
    ranked = report.ranked
    most = len(ranked) if max_rows is None or max_rows + 1 == len(ranked) else max_rows
    top, bottom = ranked[: -(-most // 2)], ranked[-(-most // 2) :]
    left_out = max(len(ranked) - most, 0)
    shown = [*top, *bottom[left_out:]]
    columns = {head: cell for head, cell in columns.items() if any(cell(host) is not None for host in shown)}
    title = f"bytes {report.bytes_words}"
    if ">in use" in columns:
        title += "; in use, peak and limit of the fullest device"
    table = folding_table(style.written(title), columns)
    for number, host in enumerate(shown):
        if left_out and number == len(top):
            mark = style.marked(lambda marks: [marks.skipped_rows])
            table.add_row(mark, style.written(f"{left_out} more"))
        table.add_row(*(style.written(cell(host) or "") for cell in columns.values()))
    return table


def _size(nbytes: int | None) -> str | None:
    return None if nbytes is None else format_bytes(nbytes)
