"""The page of the processes of a job: the answer, the fullest and emptiest, the findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...base.text import that_apply
from ..reports import HostsReport, HostSummary
from .blocks import (
    SKIPPED_ROWS,
    Column,
    Limited,
    Listing,
    Row,
    Sentence,
    Table,
    more,
    number,
    said,
)
from .findings import finding_blocks
from .words import size_words

_COLUMNS = (
    Column("process", "number", meaning="index of the process in JAX"),
    Column("host", "names", meaning="name of the machine"),
    Column("bytes", "number", meaning="the bytes of the title, by which processes are compared"),
    Column("arrays", "number", meaning="number of live arrays without views, or of leaves"),
    Column("devices", "number", meaning="number of local devices, if processes differ in it"),
    Column("in use", "number", meaning="allocated bytes on the fullest device of the process"),
    Column("peak", "number", before="peak ", meaning="most bytes in use at one time on that device"),
    Column("limit", "number", before="limit ", meaning="most bytes that JAX may allocate on that device"),
)
TABLES = {"bytes of processes": _COLUMNS}
"""Columns of the table; its title says which bytes."""
_GROUPINGS = [
    [[column.name] for column in _COLUMNS],
    [["process"], ["host"], ["bytes", "arrays", "devices"], ["in use", "peak", "limit"]],
    [["process", "host"], ["bytes", "arrays", "devices"], ["in use", "peak", "limit"]],
]


def hosts_page(report: HostsReport) -> Iterator[Listing]:
    """Yield the answer, the fullest and the emptiest processes, and the findings.

    Args:
        report: The processes.
    """
    yield Sentence(report.answer, "answer", hang=0)
    yield _processes(report)
    yield from finding_blocks(report.findings, total=report.fullest_nbytes, syntax=report.syntax, min_share=0)
    yield from said(
        that_apply((report.ignored_codes, f"ignored codes: {', '.join(report.ignored_codes)}")), hang=0
    )


def _processes(report: HostsReport) -> Table:
    """Return the table of the fullest and the emptiest processes."""
    ranked = report.ranked
    has_host = len(ranked) == 1 or report.machine_count > 1
    has_devices = len({host.device_count for host in ranked}) > 1

    def row(host: HostSummary) -> Row:
        device = host.device
        return {
            "process": str(host.process),
            "host": host.host_name if has_host else "",
            "bytes": size_words(host.nbytes),
            "arrays": "" if host.array_count is None else number(host.array_count, "array"),
            "devices": number(host.device_count, "device") if has_devices else "",
            "in use": size_words(device.bytes_in_use if device else None),
            "peak": size_words(host.peak_nbytes),
            "limit": size_words(device.bytes_limit if device else None),
        }

    def show(shown: Sequence[HostSummary]) -> Iterator[Row]:
        skipped, half = len(ranked) - len(shown), -(-len(shown) // 2)
        yield from map(row, ranked[:half])
        if skipped:
            yield {"process": SKIPPED_ROWS, "host" if has_host else "bytes": more(skipped)}
        yield from map(row, ranked[half + skipped :])

    has_memory = any(host.device and host.device.bytes_in_use is not None for host in ranked)
    return Table(
        f"bytes {report.bytes_words}{'; in use, peak and limit of the fullest device' if has_memory else ''}",
        _COLUMNS,
        [Limited(ranked, show, lambda others: ())],
        _GROUPINGS,
    )
