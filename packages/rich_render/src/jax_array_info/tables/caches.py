"""Table for ``CompileCachesReport``."""

from __future__ import annotations

from rich.table import Table

from jax_array_info_core import CompileCache, CompileCachesReport
from jax_array_info_core.reports.caches import total_entries
from jax_array_info_core.reports.rows import split_rows

from .. import style
from .columns import folding_table


def compile_caches_table(report: CompileCachesReport, *, max_rows: int | None = 100) -> Table:
    """Return the table of the compile caches of jitted functions, the most entries first.

    The last rows have JAX's own functions, and the executables that belong to no live function.

    Args:
        report: The compile caches.
        max_rows: Maximum number of functions. One more row has the rest. None shows all.
    """
    table = folding_table("compile caches", ("function", "line", ">entries", ">executables"))
    shown, rest = split_rows(report.functions, max_rows)
    for cache in shown:
        cells = (cache.name, _line(cache), _number(cache.entries), _number(cache.compilations))
        table.add_row(*map(style.written, cells))
    if rest:
        more = f"{len(rest)} more function{'s' if len(rest) > 1 else ''}"
        table.add_row(more, "", str(total_entries(rest)), "")
    table.add_section()
    table.add_row(
        f"{report.jax_function_count} functions of JAX itself",
        "",
        str(report.jax_entries),
        _number(report.jax_compilations),
    )
    table.add_row("executables without a live function", "", "", _number(report.unowned_executables))
    return table


def _line(cache: CompileCache) -> str:
    # The function has a column of its own.
    return "" if cache.origin is None else cache.origin.place


def _number(number: int | None) -> str:
    return "?" if number is None else str(number)
