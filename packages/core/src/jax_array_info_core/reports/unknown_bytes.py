"""Reasons why the bytes that collectives send are unknown."""

from __future__ import annotations

from collections.abc import Iterator

from ..quantities import counted
from .program import ProgramReport


def unknown_bytes(report: ProgramReport) -> Iterator[str]:
    """Yield each reason with the number of collectives."""
    sends = sum(one.count for one in report.collectives if one.depends_on_data)
    if runs := report.sent.unknown_count - sends:
        yield f"{counted(runs, 'collective runs', 'collectives run')} an unknown number of times"
    if sends:
        yield f"{counted(sends, 'collective sends', 'collectives send')} bytes that depend on data"
