"""The page of a compiler's log."""

from __future__ import annotations

from collections.abc import Iterator

from ..quantities import counted
from ..reports import LogReport
from .blocks import Listing, Sentence, said, that_apply
from .findings import finding_blocks
from .words import mesh_words


def log_page(report: LogReport) -> Iterator[Listing]:
    """Yield the findings in a log: resharding by full replication, unused donations. The most bytes first.

    Args:
        report: The report on the log.
    """
    name = "standard input" if report.name == "-" else report.name
    mesh = "" if report.mesh is None else f"mesh: {mesh_words(report.mesh)}"
    warnings = counted(report.unlisted_count, "warning or error", "warnings or errors")
    yield Sentence(report.answer, "answer")
    yield Sentence(", ".join(filter(None, (name, counted(report.line_count, "line", "lines"), mesh))))
    yield from finding_blocks(report.findings)
    rest = that_apply(
        (report.ignored_codes, f"ignored codes: {', '.join(report.ignored_codes)}"),
        (report.unlisted_count, f"not listed: {warnings}, because of their number"),
    )
    yield from said(rest)
