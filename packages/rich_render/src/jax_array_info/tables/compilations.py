"""Tables of compilations, compile caches and the compiler's log."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType

from jax_array_info_core.grouping import by_key
from jax_array_info_core.pages.folds import split_rows
from jax_array_info_core.quantities import counted, format_number
from jax_array_info_core.reports import (
    Compilation,
    CompilationsReport,
    CompileCache,
    CompileCachesReport,
    LogReport,
)
from jax_array_info_core.reports.compiles import total_entries

from .. import style
from .findings import write_findings
from .pages import Page
from .words import folding_table, mesh_words

_SHAPE = re.compile(r"shape \([0-9, ]*\) became \([0-9, ]*\)")
_NUMBER = re.compile(r"[0-9]+")
_MOST_NAMES = 3
"""Maximum number of functions in the first line."""
_MIN_FOLDED = 3
"""Least number of compilations in one row that differ in a length."""


def compilations_table(report: CompilationsReport, *, max_rows: int | None = 100) -> RenderableType:
    """Return the number of recompilations, then the compilations in order, with alike ones in one row.

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
            cells = (first.function, _line(first), str(len(alike)), _seconds(alike), note + _reason(alike))
            table.add_row(*map(style.written, cells))
        if rest:
            others = [one for alike in rest for one in alike]
            table.add_row(f"{len(rest)} more rows", "", str(len(others)), _seconds(others), note.rstrip(": "))
        if compilations:
            table.add_section()
    for name, count, seconds in _totals(report):
        table.add_row(name, "", str(count), "" if seconds is None else duration(seconds), "")
    return Group(style.written(_compilations_words(report), look="bold"), table)


def _compilations_words(report: CompilationsReport) -> str:
    """Return how often functions were compiled again."""
    if not report.count:
        is_other = report.jax_count or report.other_count
        return "no watched function was compiled" if is_other else "nothing was compiled"
    each = counted(report.function_count, "function", "functions")
    again = list(dict.fromkeys(one.function for one in report.recompilations))
    if not again:
        return f"no recompilations: {each} compiled once, {duration(report.seconds)}"
    names = ", ".join(again[:_MOST_NAMES]) + (" and others" if len(again) > _MOST_NAMES else "")
    words = counted(len(report.recompilations), "recompilation", "recompilations")
    compilations = counted(report.count, "compilation", "compilations")
    return f"{words} of {names}; {compilations} of {each} took {duration(report.seconds)}"


def duration(seconds: float) -> str:
    """Return a duration as text: ``12 ms``, ``3.4 s``."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _alike(compilations: Sequence[Compilation]) -> list[list[Compilation]]:
    """Return the compilations of one function and line with one reason together, in order.

    So are three or more whose reasons differ only in the lengths of shapes.
    """
    counts = Counter(_key(one, _without_lengths(one.reason)) for one in compilations)
    folded = ((_key(one, _without_lengths(one.reason)), one) for one in compilations)
    keys = ((key if counts[key] >= _MIN_FOLDED else _key(one, one.reason), one) for key, one in folded)
    return list(by_key(keys).values())


def _key(one: Compilation, reason: str) -> object:
    return one.function, one.definition, one.origin, reason


def _without_lengths(reason: str) -> str:
    return _SHAPE.sub(lambda shape: _NUMBER.sub("#", shape[0]), reason)


def _reason(alike: Sequence[Compilation]) -> str:
    """Return the reason of some compilations, with the least and the largest of the lengths that differ."""
    columns = zip(*(_NUMBER.findall(one.reason) for one in alike), strict=True)
    texts = iter([_range(sorted(set(column), key=int)) for column in columns])
    return _NUMBER.sub(lambda _: next(texts), alike[0].reason)


def _range(lengths: Sequence[str]) -> str:
    return lengths[0] if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"


def _line(row: Compilation | CompileCache) -> str:
    # The function that contains the line is known to the reader, or has a column of its own.
    return "" if row.origin is None else row.origin.place


def _seconds(compilations: Sequence[Compilation]) -> str:
    return duration(sum(one.seconds for one in compilations))


def _totals(report: CompilationsReport) -> Iterator[tuple[str, int, float | None]]:
    yield "total", report.count, report.seconds or None
    if report.other_count:
        yield "not watched", report.other_count, None
    if report.jax_count:
        yield "JAX's own", report.jax_count, report.jax_seconds


def compile_caches_table(report: CompileCachesReport, *, max_rows: int | None = 100) -> RenderableType:
    """Return the compile caches of jitted functions, the most entries first, below their number.

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
    functions = counted(len(report.functions), "jitted function", "jitted functions")
    words = f"{functions}, {counted(total_entries(report.functions), 'cache entry', 'cache entries')}"
    most = report.functions[0] if report.functions else None
    if most is not None and (most.entries or 0) > 1:
        words += f"; most: {most.name}, {_number(most.entries)}"
    return Group(style.written(words, look="bold"), table)


def _number(number: int | None) -> str:
    return "?" if number is None else str(number)


def log_table(report: LogReport, *, max_rows: int | None = 100, width: int = 80) -> RenderableType:
    """Return the findings in a log: resharding by full replication, unused donations. The most bytes first.

    Args:
        report: The report on the log.
        max_rows: Maximum number of entries of each kind. One more has the number of the others. None shows
            all.
        width: Maximum line length in characters.
    """

    def make(encoding: str) -> RenderableType:
        page = Page(width, encoding)
        page.write(report.answer, look="bold")
        _write_title(page, report)
        write_findings(page, report.findings, total=0, max_rows=max_rows)
        if report.ignored_codes:
            page.write(f"ignored codes: {', '.join(report.ignored_codes)}")
        if report.unlisted_count:
            page.write(f"not listed: {_warnings(report.unlisted_count)}, because of their number")
        return page.text()

    return style.ForConsole(lambda _, options: make(options.encoding))


def _write_title(page: Page, report: LogReport) -> None:
    """Add the name of the log, its number of lines and the mesh."""
    name = {None: "lines", "-": "standard input"}.get(report.name, report.name)
    lines = f"{format_number(report.line_count)} line{'' if report.line_count == 1 else 's'}"
    title = lines if report.name is None else f"{name}, {lines}"
    page.write(title if report.mesh is None else f"{title}, mesh: {mesh_words(report.mesh)}")


def _warnings(count: int) -> str:
    return f"{format_number(count)} {'warning or error' if count == 1 else 'warnings or errors'}"
