"""Text for ``PropagationReport``: conflicts, lost mesh axes, then the values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType

from jax_array_info_core import format_bytes
from jax_array_info_core.layouts.dtypes import type_text
from jax_array_info_core.pages.folds import path_keys, split_rows
from jax_array_info_core.quantities import counted
from jax_array_info_core.reports import PropagatedLeaf, PropagatedValue, PropagationReport

from .. import style
from .links import Pieces, text_of_pieces, words_of
from .pages import INDENT, Page, StackedColumn, stacked_table
from .program_words import counted_path
from .propagation_words import (
    ENTRIES,
    ValueRow,
    leaf_spec_words,
    place_words,
    size_words,
    some_ops,
    value_rows,
    value_size_words,
    value_spec_words,
)
from .words import mesh_words, origin_words

_SHORT_LINE = "short line"
"""Name of the column with lines and operations, below which the origins are."""
_MOST_OPS = 4


def propagation_table(
    report: PropagationReport, *, with_ways: bool = False, max_rows: int | None = 20, width: int = 80
) -> RenderableType:
    """Return the conflicts and the lost mesh axes of a program, then the table of its values.

    Args:
        report: The report.
        with_ways: Whether to list the values with the way of each mesh axis from its origin, without a table.
        max_rows: Maximum number of entries of each kind. One more has the number of the others. None shows
            all.
        width: Maximum line length in characters.

    Raises:
        ValueError: If ``max_rows`` is negative.
    """
    details = propagation_details(report, with_ways=with_ways, max_rows=max_rows, width=width)
    return Group(propagation_summary(report, width=width), details)


def propagation_summary(report: PropagationReport, *, width: int = 80) -> RenderableType:
    """Return the answer, and the program that it is about."""

    def make(_: Console, options: ConsoleOptions) -> RenderableType:
        page = Page(min(width, options.max_width), options.encoding)
        page.write(report.answer, look="bold")
        devices = counted(report.device_count, "device", "devices")
        mesh = "" if report.mesh is None else f": {mesh_words(report.mesh)}"
        page.write(f"{report.name}, lowered for {report.platform.upper()}, {devices}{mesh}")
        for words in report.accepted:
            page.write(words)
        return page.text()

    return style.ForConsole(make)


def propagation_details(
    report: PropagationReport, *, with_ways: bool = False, max_rows: int | None = 20, width: int = 80
) -> RenderableType:
    """Return what ``propagation_table`` has below the summary."""

    def make(_: Console, options: ConsoleOptions) -> RenderableType:
        page = Page(min(width, options.max_width), options.encoding)
        _write(page, report, max_rows)
        if with_ways:
            _write_ways(page, report, max_rows)
            return page.text()
        table, above = _values_table(report, max_rows, page), [] if page.is_empty else [page.text()]
        return Group(*above, *([] if table is None else [table]))

    return style.ForConsole(make)


def _write_ways(page: Page, report: PropagationReport, max_rows: int | None) -> None:
    """Add the arguments, outputs and values of a line, each mesh axis with its way from its origin."""
    rows: list[PropagatedLeaf | PropagatedValue] = [*report.arguments, *report.outputs, *report.values]
    shown, rest = split_rows(rows, max_rows)
    for one in shown:
        if isinstance(one, PropagatedLeaf):
            size, head, where = size_words(one.nbytes), f"{one.path}  {one.type}", ""
        else:
            array = counted_path(type_text(one.dtype, one.shape), one.count, page.marks)
            size = value_size_words(one.nbytes, one.count)
            head, where = f"{one.op}  {array}", origin_words(one.origin)
            where += f" ({one.phase})" if one.phase else ""
        spec = value_spec_words(one) if isinstance(one, PropagatedValue) else leaf_spec_words(one)
        page.write_entry(size, "", f"{head} {spec}".rstrip(), where)
        for axis in one.axes:
            way = f" by way of {', '.join(step.place for step in axis.via)}" if axis.via else ""
            page.write(f"{axis.mesh_axis}: from {axis}{way}", indent=4)
    if rest:
        page.write(f"and {len(rest)} more", indent=2)


def _write(page: Page, report: PropagationReport, max_rows: int | None) -> None:
    """Add the findings with their entries, then what is not known."""
    for finding in report.findings:
        # What the compiled program sends for a conflict is another figure, in the output of print_program.
        of = "smallest operands, " if finding.kind == "conflict" else ""
        cost = f": {of}{format_bytes(finding.nbytes)} per device" if finding.nbytes else ""
        page.write_rule(f"{finding.code} {finding.name}{cost}")
        page.write(finding.problem, hang=0)
        page.write(finding.remedy, hang=0)
        shown, rest = split_rows(ENTRIES[finding.kind](report), max_rows)
        for one in shown:
            times = "" if one.times == 1 else f" {page.marks.times}{one.times}"
            page.write_entry(one.size, "", f"{one.head}{times}", one.where)
            for pieces in one.details:
                _write_detail(page, pieces)
        if rest:
            page.write(f"and {len(rest)} more", indent=2)
    for operation in report.unread:
        page.write(f"nothing propagates through {operation}", look=style.WARNING)
    for caveat in report.caveats:
        page.write(caveat, look=style.ASIDE)


def _write_detail(page: Page, pieces: Pieces) -> None:
    """Add a line below an entry; its last piece below the others if they do not fit in one line."""
    whole = text_of_pieces(pieces)
    if cell_len(whole) + 4 <= page.width or len(pieces) == 1:
        page.write(whole, indent=4)
        return
    page.write(text_of_pieces(pieces[:-1]).rstrip(), indent=4)
    page.write(words_of(pieces[-1]).lstrip(", "), indent=6)


def _values_table(report: PropagationReport, max_rows: int | None, page: Page) -> RenderableType | None:
    shown, rest = split_rows(value_rows(report.values), max_rows)
    if not shown or report.mesh is None:
        return None
    sizes = [value_size_words(row.value.nbytes, row.times) for row in shown]
    types = [row.type_words(page.marks) for row in shown]
    specs = [value_spec_words(row.value) for row in shown]
    lines = ["" if row.value.origin is None else place_words(row.value.origin) for row in shown]
    widest = [max(map(cell_len, cells)) for cells in (["per device", *sizes], types, specs)]
    room = page.width - widest[0] - max(widest[1], widest[2] + len(INDENT)) - 10  # of the borders
    columns = [
        StackedColumn("per device", sizes, is_number=True),
        StackedColumn("value", types),
        StackedColumn("sharding", specs),
        StackedColumn("from", ["; ".join(map(text_of_pieces, row.origins)) for row in shown]),
        StackedColumn("line", lines),
        StackedColumn("function", [row.value.origin.function if row.value.origin else "" for row in shown]),
        StackedColumn("op", [some_ops(row.ops) for row in shown]),
        StackedColumn(
            _SHORT_LINE,
            [_short_line(*pair, room) for pair in zip(lines, shown, strict=True)],
            short_for=("line", "op"),
        ),
        *_short_origins(shown, room - len(INDENT), page),
    ]
    short = [column.name for column in columns[8:]]
    wide = ("per device", "value", "sharding", "from", "line", "op", "function")
    groupings = (
        [[name] for name in wide],
        [[name] for name in wide[:-1]],
        [["per device"], ["value", "sharding"], [_SHORT_LINE, *short], ["function"]],
        [["per device"], ["value", "sharding"], [_SHORT_LINE, *short]],
        [["per device"], ["value", "sharding", "line", "from"]],
    )
    more = {"per device": "", "value": f"{sum(row.times for row in rest)} more"} if rest else None
    return stacked_table(
        "values",
        columns,
        groupings,
        width=page.width,
        encoding=page.encoding,
        rest=more,
        heads={_SHORT_LINE: "line, op and origin"},
    )


def _short_line(line: str, row: ValueRow, room: int) -> str:
    """Return a line with as many of its operations as there is room for."""
    choices = [f"{line} {some_ops(row.ops, most)}" for most in range(_MOST_OPS, 0, -1)]
    if len(row.ops) == 1:
        choices.append(f"{line} {row.value.op}")  # without its pass
    return _fitting(choices, f"{line}, {counted(len(row.ops), 'operation', 'operations')}", room)


def _short_origins(rows: Sequence[ValueRow], room: int, page: Page) -> list[StackedColumn]:
    """Return the origins of the mesh axes below each other, each as long as there is room for."""
    count = max(len(row.origins) for row in rows)
    cells = [[_short_origin(pieces, room, page) for pieces in row.origins] for row in rows]
    return [
        StackedColumn(
            f"origin {place}",
            [cell[place] if place < len(cell) else "" for cell in cells],
            short_for=("from",),
        )
        for place in range(count)
    ]


def _short_origin(pieces: Pieces, room: int, page: Page) -> str:
    """Return an origin without its kind, without the function, or without the begin of its path."""
    axes, origin = map(words_of, pieces)
    kind, _, name = origin.partition(" ")

    def choices() -> Iterator[str]:
        yield axes + origin
        yield axes + name
        if kind == "argument":
            keys = path_keys(name)
            for start in range(1, len(keys)):
                yield f"{axes}{page.marks.skipped_columns}/{'/'.join(keys[start:])}"
        yield axes + name.partition(" ")[0]

    return _fitting(choices(), axes + origin, room)


def _fitting(choices: Iterable[str], last: str, room: int) -> str:
    """Return the first text that there is room for, else the last one."""
    return next((words for words in choices if cell_len(words) <= room), last)
