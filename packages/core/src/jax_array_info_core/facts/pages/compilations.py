"""Pages of compilations and of compile caches."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from ...base.grouping import by_key
from ...base.quantities import counted, seconds_words
from ..reports import Compilation, CompilationsReport, CompileCache, CompileCachesReport
from ..reports.compiles import total_entries
from .blocks import Block, Column, Row, Section, Sentence, Table, limited, more

_SHAPE = re.compile(r"shape \([0-9, ]*\) became \([0-9, ]*\)")
_NUMBER = re.compile(r"[0-9]+")
TABLES = {
    "compilations": (
        Column("function", is_kept=True),
        Column("called at", is_kept=True, meaning="line of your code that called the function"),
        Column("times", "number", is_kept=True, meaning="compilations with this function, line and reason"),
        Column("duration", "number", is_kept=True, meaning="time that XLA took for all of them"),
        Column(
            "reason",
            is_kept=True,
            meaning="first call in the block, or what differs from the nearest earlier call of the function",
        ),
    ),
    "compile caches": (
        Column("function", is_kept=True),
        Column("line", is_kept=True, meaning="where the function is defined"),
        Column(
            "entries",
            "number",
            is_kept=True,
            meaning="entries of the call cache, one for each combination of argument types, shardings and "
            "static arguments",
        ),
        Column(
            "executables",
            "number",
            is_kept=True,
            meaning="compiled programs in memory, which several entries may share",
        ),
    ),
}
"""Columns of each table, by its title."""
_MOST_NAMES = 3
"""Maximum number of functions in the first line."""
_MIN_FOLDED = 3
"""Least number of compilations in one row that differ in a length."""


def compilations_page(report: CompilationsReport) -> Iterator[Block]:
    """Yield the number of recompilations, then the compilations in order, with alike ones in one row.

    Below them are the programs from the persistent cache, then the totals.

    Args:
        report: The compilations.
    """
    totals = (
        ("total", report.count, report.seconds or None),
        ("not watched", report.other_count, None),
        ("JAX's own", report.jax_count, report.jax_seconds),
    )
    yield Sentence(_answer(report), "answer", hang=0)
    yield Table(
        "compilations",
        TABLES["compilations"],
        [
            _rows(report.compilations),
            _rows(report.cache_hits, "persistent cache"),
            [
                {
                    "function": name,
                    "times": str(count),
                    "duration": "" if seconds is None else seconds_words(seconds),
                }
                for name, count, seconds in totals
                if count or name == "total"
            ],
        ],
        groupings=[
            [["function"], ["called at"], ["times"], ["duration"], ["reason"]],
            [["function", "called at"], ["times"], ["duration"], ["reason"]],
            [["function", "called at", "reason"], ["times"], ["duration"]],
        ],
        breaks="words",
    )


def _answer(report: CompilationsReport) -> str:
    """Return how often functions were compiled again."""
    if not report.count:
        is_other = report.jax_count or report.other_count
        return "no watched function was compiled" if is_other else "nothing was compiled"
    functions = counted(report.function_count, "function", "functions")
    again = list(dict.fromkeys(compilation.function for compilation in report.recompilations))
    compilations = counted(report.count, "compilation", "compilations")
    if not again:
        once = report.count == report.function_count
        words = f"{functions} compiled once" if once else f"{compilations} of {functions}"
        return f"no recompilations: {words}, {seconds_words(report.seconds)}"
    names = ", ".join(again[:_MOST_NAMES]) + (" and others" if len(again) > _MOST_NAMES else "")
    words = counted(len(report.recompilations), "recompilation", "recompilations")
    return f"{words} of {names}; {compilations} of {functions} took {seconds_words(report.seconds)}"


def _rows(compilations: Sequence[Compilation], place: str = "") -> Section:
    """Return the rows of compilations, and one for those beyond the maximum.

    Args:
        compilations: The compilations.
        place: Place that the programs come from, if they were not compiled.
    """

    def row(alike: Sequence[Compilation]) -> Row:
        return {
            "function": alike[0].function,
            "called at": _line(alike[0]),
            **_sums(alike),
            "reason": ": ".join(filter(None, (place, _reason(alike)))),
        }

    def rest(rows: Sequence[Sequence[Compilation]]) -> Row:
        others = [compilation for alike in rows for compilation in alike]
        return {"function": more(len(rows), "row", "rows"), **_sums(others), "reason": place}

    return limited(_alike(compilations), row, rest)


def _sums(compilations: Sequence[Compilation]) -> Row:
    return {
        "times": str(len(compilations)),
        "duration": seconds_words(sum(compilation.seconds for compilation in compilations)),
    }


def _alike(compilations: Sequence[Compilation]) -> list[list[Compilation]]:
    """Return the compilations of one function and line with one reason together, in order.

    So are three or more whose reasons differ only in the lengths of shapes.
    """
    folded = [
        _key(compilation, _SHAPE.sub(lambda shape: _NUMBER.sub("#", shape[0]), compilation.reason))
        for compilation in compilations
    ]
    counts, pairs = Counter(folded), zip(folded, compilations, strict=True)
    keys = (
        (key if counts[key] >= _MIN_FOLDED else _key(compilation, compilation.reason), compilation)
        for key, compilation in pairs
    )
    return list(by_key(keys).values())


def _key(compilation: Compilation, reason: str) -> object:
    return compilation.function, compilation.definition, compilation.origin, reason


def _reason(alike: Sequence[Compilation]) -> str:
    """Return the reason of some compilations, with the least and the largest of the lengths that differ."""
    columns = zip(*(_NUMBER.findall(compilation.reason) for compilation in alike), strict=True)
    ordered = [sorted(set(column), key=int) for column in columns]
    texts = iter([" to ".join(dict.fromkeys((lengths[0], lengths[-1]))) for lengths in ordered])
    return _NUMBER.sub(lambda _: next(texts), alike[0].reason)


def _line(row: Compilation | CompileCache) -> str:
    # The function that contains the line is known to the reader, or has a column of its own.
    return "" if row.origin is None else row.origin.place


def compile_caches_page(report: CompileCachesReport) -> Iterator[Block]:
    """Yield the number of jitted functions, then their compile caches, the most entries first.

    The last rows have JAX's own functions, and the executables that belong to no live function.

    Args:
        report: The compile caches.
    """
    functions = counted(len(report.functions), "jitted function", "jitted functions")
    entries = counted(total_entries(report.functions), "cache entry", "cache entries")
    most = [f"; most: {row.name}, {row.entries}" for row in report.functions[:1] if (row.entries or 0) > 1]
    yield Sentence(f"{functions}, {entries}{''.join(most)}", "answer", hang=0)
    yield Table(
        "compile caches",
        TABLES["compile caches"],
        [
            limited(
                report.functions,
                _cache,
                lambda others: _numbers(
                    more(len(others), "function", "functions"), total_entries(others), ""
                ),
            ),
            [
                _numbers(
                    f"{report.jax_function_count} functions of JAX itself",
                    report.jax_entries,
                    report.jax_compilations,
                ),
                _numbers("executables without a live function", "", report.unowned_executables),
            ],
        ],
        groupings=[
            [["function"], ["line"], ["entries"], ["executables"]],
            [["function", "line"], ["entries"], ["executables"]],
        ],
        breaks="words",
    )


def _cache(cache: CompileCache) -> Row:
    return _numbers(cache.name, cache.entries, cache.compilations) | {"line": _line(cache)}


def _numbers(function: str, entries: int | str | None, executables: int | str | None) -> dict[str, str]:
    """Return the numbers of a function; unknown ones are ``?``."""
    numbers = {"entries": entries, "executables": executables}
    return {"function": function} | {
        name: "?" if number is None else str(number) for name, number in numbers.items()
    }
