"""Table for ``CompilationsReport``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from jax_array_info_core import Compilation, CompilationsReport
from jax_array_info_core.reports.rows import split_rows

from .. import style
from .columns import folding_table


def compilations_table(report: CompilationsReport, *, max_rows: int | None = 100) -> Table:
    """Return the table of the compilations in a block, in order, with alike ones in one row.

    Below them are the programs from the persistent cache, then the totals.

    Args:
        report: The compilations.
        max_rows: Maximum number of rows of compilations. One more row has the rest. None shows all.
    """
    table = folding_table("compilations", ("function", "called at", ">times", ">duration", "reason"))
    for compilations, note in ((report.compilations, ""), (report.cache_hits, "persistent cache: ")):
        shown, rest = split_rows(_alike(compilations), max_rows)
        for alike in shown:
            first = alike[0]
            cells = (first.function, _line(first), str(len(alike)), _seconds(alike), note + first.reason)
            table.add_row(*map(style.written, cells))
        if rest:
            others = [one for alike in rest for one in alike]
            table.add_row(f"{len(rest)} more rows", "", str(len(others)), _seconds(others), note.rstrip(": "))
        if compilations:
            table.add_section()
    for name, count, seconds in _totals(report):
        table.add_row(name, "", str(count), "" if seconds is None else duration(seconds), "")
    return table


def duration(seconds: float) -> str:
    """Return a duration as text: ``12 ms``, ``3.4 s``."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _alike(compilations: Sequence[Compilation]) -> list[list[Compilation]]:
    """Return the compilations of one function and line with one reason together, in order."""
    groups: dict[object, list[Compilation]] = {}
    for one in compilations:
        groups.setdefault((one.function, one.definition, one.origin, one.reason), []).append(one)
    return list(groups.values())


def _line(compilation: Compilation) -> str:
    # The function that contains the line is known to the reader.
    return "" if compilation.origin is None else str(compilation.origin).partition(" ")[0]


def _seconds(compilations: Sequence[Compilation]) -> str:
    return duration(sum(one.seconds for one in compilations))


def _totals(report: CompilationsReport) -> Iterator[tuple[str, int, float | None]]:
    yield "total", report.count, report.seconds or None
    if report.other_count:
        yield "not watched", report.other_count, None
    if report.jax_count:
        yield "JAX's own", report.jax_count, report.jax_seconds
