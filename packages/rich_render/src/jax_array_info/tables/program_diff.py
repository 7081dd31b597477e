"""Tables for ``ProgramDiff``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table

from jax_array_info_core import format_bytes
from jax_array_info_core.layouts.dtypes import type_text
from jax_array_info_core.pages.folds import folded_paths, split_rows
from jax_array_info_core.quantities import counted, grouped, known_sum
from jax_array_info_core.reports import (
    Donation,
    FigureChange,
    ProgramDiff,
    SentChange,
    ShardingChange,
    ShardingDescription,
    TemporaryChange,
)
from jax_array_info_core.reports.collectives import axes_words

from .. import style
from .pages import Grouping, Page, StackedColumn, stacked_table
from .program_words import (
    UNKNOWN,
    counted_path,
    folded_text,
    kept_words,
    without_indices,
)
from .words import origin_words, rule_results

_FIGURES = {
    "argument_nbytes": "arguments",
    "output_nbytes": "outputs",
    "alias_nbytes": "reused by donation",
    "temporary_nbytes": "temporaries",
    "code_nbytes": "code",
    "peak_nbytes": "peak",
    "host_argument_nbytes": "host arguments",
    "host_output_nbytes": "host outputs",
    "host_alias_nbytes": "host reused by donation",
    "host_temporary_nbytes": "host temporaries",
    "dot_flops": "matmul and convolution FLOPs",
    "known_dot_flops": "known FLOPs",
    "fft_flops": "FFT FLOPs",
}
"""Printed name of each figure."""
_UNCOUNTED = (
    "From the schedule, with values in the memory of outputs, which XLA's figure of temporaries leaves out."
)
_MOST_LINES = 3
"""Maximum number of lines below a kind of collectives; one more row has the sum of the others."""
_Numbers = tuple[int | None, int | None, bool]
"""A number before and after, and whether it is of bytes."""
_NUMBERS: Sequence[Grouping] = (
    (("of",), ("over",), ("before",), ("after",), ("difference",)),
    (("of", "over"), ("before",), ("after",), ("difference",)),
    (("of", "over", "before", "after", "difference"),),
)
_TEMPORARIES: Sequence[Grouping] = (
    (("of",), ("line",), ("kept",), ("before",), ("after",), ("difference",), ("note",)),
    (("of", "line", "kept", "note"), ("before",), ("after",), ("difference",)),
    (("of", "line", "kept", "before", "after", "difference", "note"),),
)
_RENAMED: Sequence[Grouping] = ((("before",), ("after",)), (("before", "after"),))
_LEAVES: Sequence[Grouping] = (
    (("path",), ("before", "its"), ("after", "their")),
    (("path", "before", "its", "after", "their"),),
)


def program_diff_table(report: ProgramDiff, *, max_rows: int | None = 100, width: int = 80) -> RenderableType:
    """Return the tables of what differs between two programs, with the bytes sent above.

    Args:
        report: The differences.
        max_rows: Maximum number of rows of each table. One more row has the number of the others. None shows
            all.
        width: Maximum line length in characters.

    Raises:
        ValueError: If ``max_rows`` is negative.
    """

    def make(_: Console, options: ConsoleOptions) -> RenderableType:
        page = Page(min(width, options.max_width), options.encoding)
        of = _Tables(max_rows, page)
        tables = (
            of.sent(report.sent),
            of.figures(report.figures),
            of.renamed(report.renamed),
            of.shardings(report.shardings),
            of.donations(report),
            of.temporaries(report),
        )
        _write_heading(page, report)
        return Group(
            *rule_results(report.rules), page.text(), *(table for table in tables if table is not None)
        )

    return style.ForConsole(make)


def _write_heading(page: Page, report: ProgramDiff) -> None:
    before, after = report.before_name, report.after_name
    title = before if before == after else f"from {before} to {after}"
    page.write(_answer(report), look="bold")
    page.write(title)
    old, new = report.sent_nbytes_before, report.sent_nbytes_after
    if old is not None and old == new:
        words = f"{format_bytes(old)} before and after"
    else:
        words = f"{_bytes(old)} before, {_bytes(new)} after"
        if old is not None and new is not None:
            words += f" ({_more(new - old)})"
    page.write(f"sent per device and call: {words}")
    if report.unknown:
        page.write("not compared:", look=f"bold {style.WARNING}")
    for words in report.unknown:
        page.write(words, indent=2)


_SIGNS = {"argument_nbytes": 1, "output_nbytes": 1, "temporary_nbytes": 1, "alias_nbytes": -1}
"""Figures that make up the memory of a program without a peak."""


def _answer(report: ProgramDiff) -> str:
    """Return what the second program sends and needs in addition, and the numbers of other differences."""
    if report.is_empty:
        return "no differences, as far as known" if report.unknown else "no differences"
    old, new = report.sent_nbytes_before, report.sent_nbytes_after
    parts = []
    if old is not None and new is not None:
        parts += [f"sends {_more(new - old)} per device and call"] if new != old else []
    elif report.sent:
        parts.append("sends other bytes, in part unknown")
    changes = {one.name: one for one in report.figures}
    names = {"peak_nbytes": 1} if "peak_nbytes" in changes else _SIGNS
    found = [(changes[name], sign) for name, sign in names.items() if name in changes]
    if found and all(one.before is not None and one.after is not None for one, _ in found):
        added = sum(sign * ((one.after or 0) - (one.before or 0)) for one, sign in found)
        parts += [f"needs {_more(added)} memory per device"] if added else []
    new = sum(one.before_type is None for one in report.shardings)
    gone = sum(one.after_type is None for one in report.shardings)
    leaves = ((len(report.renamed), "renamed"), (new, "new"), (gone, "absent"))
    parts += [f"{counted(count, 'leaf is', 'leaves are')} {word}" for count, word in leaves if count]
    counts = ((len(report.shardings) - new - gone, "sharding"), (len(report.donations), "donation"))
    differ = [counted(count, noun, f"{noun}s") for count, noun in counts if count]
    if differ:
        is_one = sum(count for count, _ in counts) == 1
        parts.append(f"{' and '.join(differ)} {'differs' if is_one else 'differ'}")
    return "; ".join(parts) or "other figures differ: see below"


def _more(nbytes: int) -> str:
    return f"{format_bytes(abs(nbytes))} {'more' if nbytes > 0 else 'less'}"


class _Tables:
    """Tables of a number of rows for one page."""

    def __init__(self, max_rows: int | None, page: Page) -> None:
        self._max_rows = max_rows
        self._page = page

    def sent(self, changes: Sequence[SentChange]) -> RenderableType | None:
        """Return the table of the bytes sent, by kind and axes; None without changes."""
        shown, rest = split_rows(changes, self._max_rows)
        rows = [row for one in shown for row in _sent_rows(one)]
        columns = [
            StackedColumn("of", [of for of, _, _ in rows]),
            StackedColumn("over", [over for _, over, _ in rows], "over "),
            *_number_columns([numbers for _, _, numbers in rows]),
        ]
        return self._table("sent per device and call", "collective", columns, _NUMBERS, len(rest))

    def figures(self, changes: Sequence[FigureChange]) -> RenderableType | None:
        """Return the table of memory and flops; None without changes."""
        shown, rest = split_rows(changes, self._max_rows)
        columns = [
            StackedColumn("of", [_FIGURES.get(one.name, one.name) for one in shown]),
            *_number_columns([(one.before, one.after, not one.name.endswith("_flops")) for one in shown]),
        ]
        return self._table("memory and flops per device", "figure", columns, _NUMBERS, len(rest))

    def temporaries(self, report: ProgramDiff) -> RenderableType | None:
        """Return the table of temporary values that appear and disappear; None without changes."""
        shown, rest = split_rows(report.temporaries, self._max_rows)
        values = [one.value for one in shown]
        columns = [
            StackedColumn("of", [type_text(one.dtype, one.shape) for one in values]),
            StackedColumn("line", [origin_words(one.origin, "line unknown") for one in values]),
            StackedColumn("kept", [kept_words(one).removeprefix("kept ") for one in values], "kept "),
            *_number_columns(
                [(one.value.nbytes * one.before, one.value.nbytes * one.after, True) for one in shown]
            ),
            StackedColumn("note", list(map(_elsewhere, shown))),
        ]
        table = self._table("temporaries at the peak", "array", columns, _TEMPORARIES, len(rest))
        if table is not None and report.has_uncounted_temporaries:
            table.caption = "\n".join(filter(None, (cast(str | None, table.caption), _UNCOUNTED)))
        return table

    def renamed(self, paths: Sequence[tuple[str, str]]) -> RenderableType | None:
        """Return the table of arguments and outputs with another path; None without any."""
        shown, rest = split_rows(paths, self._max_rows)
        columns = [
            StackedColumn("before", [old for old, _ in shown], is_path=True),
            StackedColumn("after", [new for _, new in shown], "after: ", is_path=True),
        ]
        return self._table("renamed arguments and outputs", "before", columns, _RENAMED, len(rest))

    def shardings(self, changes: Sequence[ShardingChange]) -> RenderableType | None:
        """Return the table of arguments and outputs; None without changes."""
        facts = [
            (
                _side(one.before_type, one.after_type, one.before, one.after, one.before_memory_kind),
                _side(one.after_type, one.before_type, one.after, one.before, one.after_memory_kind),
            )
            for one in changes
        ]
        return self._leaves("arguments and outputs", [one.path for one in changes], facts)

    def donations(self, report: ProgramDiff) -> RenderableType | None:
        """Return the table of donations; None without changes."""
        facts = [
            (_donation(one.before, one.is_absent_before), _donation(one.after, one.is_absent_after))
            for one in report.donations
        ]
        return self._leaves("donations", [one.path for one in report.donations], facts)

    def _leaves(
        self, title: str, paths: Sequence[str], facts: Sequence[tuple[tuple[str, str], tuple[str, str]]]
    ) -> RenderableType | None:
        """Return a table of leaves, those that differ only in the indices of their paths in one row."""
        cells = [(*before, *after) for before, after in facts]
        keys = [tuple(map(without_indices, row)) for row in cells]
        shown, rest = split_rows(folded_paths(paths, keys), self._max_rows)
        marks = self._page.marks
        rows = [
            [folded_text([cells[member][column] for member in members]) for column in range(4)]
            for _, members in shown
        ]
        names = [counted_path(path, len(members), marks) for path, members in shown]
        heads = (("before", "before: "), ("its", ""), ("after", "after: "), ("their", ""))
        columns = [
            StackedColumn("path", names, is_path=True),
            *(
                StackedColumn(name, [row[number] for row in rows], before)
                for number, (name, before) in enumerate(heads)
            ),
        ]
        left = sum(len(members) for _, members in rest)
        return self._table(title, "path", columns, _LEAVES, left)

    def _table(
        self,
        title: str,
        head: str,
        columns: Sequence[StackedColumn],
        groupings: Sequence[Grouping],
        left: int,
    ) -> Table | None:
        first = columns[0]
        if not (first.cells or left):
            return None
        return stacked_table(
            title,
            columns,
            groupings,
            width=self._page.width,
            encoding=self._page.encoding,
            heads={first.name: head},
            rest={first.name: f"{left} more"} if left else None,
        )


def _sent_rows(change: SentChange) -> Iterator[tuple[str, str, _Numbers]]:
    """Yield the row of a kind and axes, and those of the lines that it changed in, with their numbers."""
    yield change.kind, axes_words(change.axes), (change.before, change.after, True)
    shown, rest = split_rows(change.lines, _MOST_LINES)
    for line in shown:
        yield f"  {origin_words(line.origin, 'line unknown')}", "", (line.before, line.after, True)
    if rest:
        sums = (known_sum(line.before for line in rest), known_sum(line.after for line in rest), True)
        yield f"  {counted(len(rest), 'more line', 'more lines')}", "", sums


def _elsewhere(change: TemporaryChange) -> str:
    """Return whether a program has values away from its peak that are live at that of the other one."""
    if change.is_elsewhere_before:
        return "before: not at the peak"
    return "after: not at the peak" if change.is_elsewhere_after else ""


def _number_columns(numbers: Sequence[_Numbers]) -> list[StackedColumn]:
    """Return the columns of numbers before and after, and whether they are bytes."""
    return [
        StackedColumn(name, cells, f"{name}: ", is_number=True)
        for name, cells in (
            ("before", [_number(old, is_bytes) for old, _, is_bytes in numbers]),
            ("after", [_number(new, is_bytes) for _, new, is_bytes in numbers]),
            ("difference", [_difference(*number) for number in numbers]),
        )
    ]


def _number(number: int | None, is_bytes: bool) -> str:
    if number is None:
        return UNKNOWN
    return format_bytes(number) if is_bytes else grouped(number)


def _difference(old: int | None, new: int | None, is_bytes: bool) -> str:
    if old is None or new is None:
        return ""
    return ("+" if new > old else "-" if new < old else "") + _number(abs(new - old), is_bytes)


def _bytes(nbytes: int | None) -> str:
    return _number(nbytes, is_bytes=True)


def _side(
    type_: str | None,
    other_type: str | None,
    sharding: ShardingDescription | None,
    other_sharding: ShardingDescription | None,
    memory_kind: str | None,
) -> tuple[str, str]:
    """Return the type and the sharding of a leaf before or after, without a type that does not change."""
    if type_ is None:
        return "absent", ""
    words = UNKNOWN if sharding is None else sharding.beside(other_sharding)
    words += f" in {memory_kind}" if memory_kind else ""
    return (words, "") if type_ == other_type else (type_, words)


def _donation(donation: Donation | None, is_absent: bool) -> tuple[str, str]:
    """Return the output that reuses a donated argument, else the reason, and the bytes."""
    if donation is None:
        return "absent" if is_absent else "not donated", ""
    if donation.output is not None:
        is_named_alike = donation.output == f"outputs/{donation.path}"
        words = "reused" if is_named_alike else f"reused for {donation.output}"
        return words, format_bytes(donation.nbytes)
    return "not reused", f"{format_bytes(donation.nbytes)}, {donation.reason or 'reason unknown'}"
