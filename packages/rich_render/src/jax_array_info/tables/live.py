"""Table for ``LiveArrayReport``."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from jax_array_info.tables.folds import path_pieces
from jax_array_info.tables.live_rows import LiveArrayRow, LiveArrayRows, live_array_rows
from jax_array_info_core import format_bytes
from jax_array_info_core.layouts.grid import copies_words
from jax_array_info_core.reports import LiveArrayReport
from jax_array_info_core.reports.live import UNKNOWN, By, is_in_host_memory
from jax_array_info_core.text import clipped, printable

from .. import style
from .words import NO_ALLOCATION_SITES, SEARCH_INCOMPLETE, origin_words

_MIN_FOLDED = 3
"""Minimum number of paths, with consecutive indices, that are folded into one."""

_MOST_INDICES = 50
"""Indices of a path that are folded, the first ones."""

_QUOTED = r"'(?:[^'\\]++|\\.)*+'|\"(?:[^\"\\]++|\\.)*+\""
_INDEX = re.compile(rf"{_QUOTED}|\[(\d+)\]")
"""A key in quotes, or an index."""
_STEP = re.compile(rf"(?:\[(?:{_QUOTED}|[^\]'\"])*+\]?|\.?(?:<[^<>]*>|[^\s.\[<])+|\S)\s*|\s+")
"""A key in brackets, an attribute or a word, with the spaces after it."""


def folded_paths(paths: Iterable[str]) -> list[str]:
    """Return paths, with those that differ in one index folded: ``meter.hist['hidden'][0:20]``.

    A number in a key counts as an index, as in trees: ``params['layers_0-23']``.

    A folded path takes the place of its first path.
    """
    folded = list(dict.fromkeys(map(clipped, paths)))
    most = max((len(_indices(path)) for path in folded), default=0)
    for place in reversed(range(min(most, _MOST_INDICES))):
        folded = list(_folded_at(place, folded))
    return folded


def _indices(path: str) -> list[tuple[int, int]]:
    """Return beginning and end of each index, and of each number in a key."""
    found = []
    for match in _INDEX.finditer(path):
        if match[1]:
            found.append(match.span(1))
            continue
        end = match.start() + 1
        for number, piece in enumerate(path_pieces(match[0][1:-1])):
            start, end = end, end + len(piece)
            if number % 2:
                found.append((start, end))
    return found


def _folded_at(place: int, paths: Sequence[str]) -> Iterator[str]:
    """Yield paths, with those folded that have consecutive indices at a place."""
    runs: dict[tuple[str, str] | str, list[int]] = {}
    for path in paths:
        found = _indices(path)
        if len(found) <= place:
            runs[path] = []
        else:
            start, end = found[place]
            runs.setdefault((path[:start], path[end:]), []).append(int(path[start:end]))
    for around, numbers in runs.items():
        if isinstance(around, str):
            yield around
            continue
        before, after = around
        for _, group in groupby(enumerate(sorted(numbers)), key=lambda entry: entry[1] - entry[0]):
            run = [number for _, number in group]
            if len(run) < _MIN_FOLDED:
                yield from (f"{before}{number}{after}" for number in run)
            else:
                text = f"{run[0]}:{run[-1] + 1}" if before.endswith("[") else f"{run[0]}-{run[-1]}"
                yield before + text + after


class PathTable(Table):
    """A table that wraps its other columns before its last column, of paths, breaks inside a key."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for column, width in zip(self.columns, self._divided(console, options), strict=True):
            column.width = width
        yield from super().__rich_console__(console, options)

    def _divided(self, console: Console, options: ConsoleOptions) -> Sequence[int | None]:
        """Return the widths of the columns; Nones if all fits, or if a key has to break."""
        endless = options.update(width=sys.maxsize)

        def measured(renderable: RenderableType) -> Measurement:
            return Measurement.get(console, endless, renderable)

        for column in self.columns:
            column.width = None
        *others, paths = (measured(Group(str(column.header), *column.cells)) for column in self.columns)
        wanted = sum(other.maximum for other in others)
        needed = sum(other.minimum for other in others)
        room = options.max_width - (measured(self).maximum - wanted - paths.maximum)
        if wanted + paths.maximum <= room or needed + paths.minimum > room:
            return [None] * len(self.columns)
        widths = [other.maximum for other in others]
        of_paths = min(max(paths.minimum, room - wanted, room // 3), paths.maximum, room - needed)
        while sum(widths) > room - of_paths:
            spare = [now - other.minimum for now, other in zip(widths, others, strict=True)]
            widths[spare.index(max(spare))] -= 1
        return [*widths, of_paths]


class PathLines:
    """Lines of a cell that wrap between the steps of paths, and inside a key only if it is too wide alone."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = list(lines)

    def _steps(self, encoding: str) -> list[list[str]]:
        return [_STEP.findall(printable(line, encoding)) for line in self._lines]

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        lines = self._steps(options.encoding)
        least = max((cell_len(step.rstrip()) for steps in lines for step in steps), default=0)
        most = max((cell_len("".join(steps)) for steps in lines), default=0)
        return Measurement(least, most).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for steps in self._steps(options.encoding):
            line = ""
            for step in steps:
                if line and cell_len(line + step.rstrip()) > options.max_width:
                    yield Text(line.rstrip())
                    line = ""
                line += step
            yield Text(line.rstrip())


NARROW = 80
"""Lines up to this length have no column ``of total``."""
MAX_PATHS = 5
"""Maximum number of reference paths per row."""

_Cells = Sequence[Sequence[str]]
"""The cells of a row, each a sequence of lines; missing cells are empty."""


def live_array_table(
    report: LiveArrayReport,
    *,
    by: By = "shape",
    hide_small_arrays: bool = False,
    max_rows: int | None = 100,
    specs: bool = False,
    width: int = NARROW,
) -> RenderableType:
    """Return the table of all live arrays, the largest first.

    Lines longer than 80 characters have a column ``of total`` if it fits: each row's share of the fullest
    device.

    Args:
        report: The live arrays. Allocation sites and referrers are shown if the report has them.
        by: Property that the arrays of a row share: ``shape`` (with every other column), ``origin``,
            ``device``, ``dtype`` or ``sharding``.
        hide_small_arrays: Whether to fold unlabeled arrays under 3 KiB per device into one row.
        max_rows: Maximum number of rows of arrays. One more row has the rest. None shows all.
        specs: Whether to show the partition spec of every sharded array. By default, only rows that differ in
            nothing else show it.
        width: Maximum line length in characters.
    """
    rows = live_array_rows(report, by=by, hide_small_arrays=hide_small_arrays, max_rows=max_rows, specs=specs)
    # The paths of all rows take as many lines as there may be rows.
    most_paths = MAX_PATHS
    if max_rows is not None:
        most_paths = max(1, min(MAX_PATHS, max_rows // max(1, len(rows.rows))))

    def table(console: Console, options: ConsoleOptions) -> Table:
        def width_of(table: Table) -> int:
            return Measurement.get(console, options.update(width=sys.maxsize), table).maximum

        marks = style.marks(options.encoding)
        content = _content(report, by, rows, marks, most_paths, with_shares=width > NARROW)
        quick = _table(report, by, content, as_one=True)
        if width > NARROW and width_of(quick) > width:
            content = _content(report, by, rows, marks, most_paths, with_shares=False)
            quick = _table(report, by, content, as_one=True)
        return quick if width_of(quick) <= options.max_width else _table(report, by, content, as_one=False)

    return style.ForConsole(table)


class _Column(NamedTuple):
    """A column of the table: its head, and the lines of its cell in each row."""

    name: str
    lines: Callable[[LiveArrayRow], Sequence[str]]
    justify: JustifyMethod = "left"
    cell: Callable[[Sequence[str]], RenderableType] = lambda lines: style.written(*map(clipped, lines))


class _Content(NamedTuple):
    """The columns of a table, and its sections of rows."""

    columns: list[_Column]
    sections: list[list[_Cells]]


def _table(report: LiveArrayReport, by: By, content: _Content, *, as_one: bool) -> Table:
    """Return a table with notes below it on missing or shared information.

    Args:
        report: The live arrays.
        by: Property that the arrays of a row share.
        content: Columns and rows of the table.
        as_one: Whether to lay out the rows of a section as one row. The result is the same if no line has to
            be folded, and Rich takes a third of the time.
    """
    notes = []
    if report.origins == "not told by this jax":
        notes.append(NO_ALLOCATION_SITES)
    if report.holders == "incomplete":
        notes.append(SEARCH_INCOMPLETE.format("referrers"))
    if by != "device" and report.is_shared:
        notes.append("Shared buffers are counted once per array, and once in the total.")
    table_class = Table if report.holders == "not asked" else PathTable
    title = "allocated jax arrays" if by == "shape" else f"allocated jax arrays by {by}"
    table = table_class(title=title, caption="\n".join(notes) or None)
    for column in content.columns:
        table.add_column(column.name, justify=column.justify, overflow="fold")
    for section in content.sections:
        for row in [_joined(section)] if as_one else section:
            table.add_row(*(column.cell(lines) for column, lines in zip(content.columns, row, strict=False)))
        table.add_section()
    return table


def _joined(rows: Sequence[_Cells]) -> _Cells:
    """Return several rows as one row, with their lines below each other."""
    joined: list[list[str]] = [[] for _ in range(max(map(len, rows)))]
    for row in rows:
        height = max(map(len, row))
        for number, lines in enumerate(joined):
            more = row[number] if number < len(row) else []
            lines += [*more, *[""] * (height - len(more))]
    return joined


def _content(
    report: LiveArrayReport,
    by: By,
    rows: LiveArrayRows,
    marks: style.Marks,
    most_paths: int,
    *,
    with_shares: bool,
) -> _Content:
    numbers = list(_numbers(report, by))
    if with_shares and by != "device":
        numbers.insert(1, _Column("of total", lambda row: [_share(row)], "right"))
    columns = [*numbers, *_words(report, by, marks, most_paths)]

    def full(row: LiveArrayRow) -> _Cells:
        return [column.lines(row) for column in columns]

    def short(row: LiveArrayRow, words: str) -> _Cells:
        return [*(column.lines(row) for column in numbers), [words]]

    largest = list(map(full, rows.rows))
    if rows.rest:
        largest.append(short(rows.rest, _rest_words(rows.rest, rows.rest_count, by)))
    if rows.small:
        largest.append(short(rows.small, "small arrays"))
    last: list[_Cells] = [[[format_bytes(report.fullest_nbytes)]]]
    if report.fullest_host_nbytes:
        host = format_bytes(report.fullest_host_nbytes)
        last.insert(0, [[host], *[[""]] * (len(numbers) - 1), ["in host memory"]])
    return _Content(
        columns, [section for section in (largest, list(map(full, rows.scalars)), last) if section]
    )


def _rest_words(rest: LiveArrayRow, count: int, by: By) -> str:
    return f"{count} more" if by != "shape" else f"{rest.count} more array{'s' if rest.count > 1 else ''}"


def _numbers(report: LiveArrayReport, by: By) -> Iterator[_Column]:
    """Yield the columns of numbers, except ``of total``."""
    if by == "shape":
        yield _Column("size", lambda row: [format_bytes(row.nbytes)])
        return
    # The report has no bytes on the devices of other processes.
    devices = "all devices" if len(report.device_nbytes) >= report.visible_devices else "local devices"
    size = "size" if by == "device" else "max per device"
    yield _Column(size, lambda row: [format_bytes(row.nbytes)], "right")
    if by != "device" or report.host_nbytes:
        name = "with host memory" if by == "device" else devices
        yield _Column(name, lambda row: [format_bytes(row.total_nbytes)], "right")
    yield _Column("arrays", lambda row: [str(row.count)], "right")


def _words(report: LiveArrayReport, by: By, marks: style.Marks, most_paths: int) -> Iterator[_Column]:
    """Yield the columns of text that have any content."""
    if by == "shape":
        yield from _shape_columns(report, marks)
    else:
        yield _Column("made at" if by == "origin" else by, lambda row: [row.of])
    if report.holders != "not asked":
        yield _Column("held by", lambda row: _referrer_lines(row, report, most_paths), cell=PathLines)


def _shape_columns(report: LiveArrayReport, marks: style.Marks) -> Iterator[_Column]:
    """Yield the columns of the properties that the arrays of a row share."""
    yield _Column("shape", lambda row: _shape_lines(row, report, marks))
    yield _Column("dtype", lambda row: [row.groups[0].dtype])
    if report.visible_devices > 1:
        yield _Column("sharded", lambda row: _sharded_lines(row, marks), "center")
    if any(group.label is not None for group in report.groups if group.shape):
        yield _Column("label", lambda row: [row.groups[0].label or "" if row.groups[0].shape else ""])
    if report.origins == "known":
        yield _Column("made at", lambda row: [origin_words(row.groups[0].origin, UNKNOWN)])


def _shape_lines(row: LiveArrayRow, report: LiveArrayReport, marks: style.Marks) -> list[str]:
    """Return the shape, then one line each for host memory and for the array of a view."""
    group = row.groups[0]
    text = f"{row.count}{marks.times}s"
    if group.shape:
        text = str(group.shape) if row.count == 1 else f"{group.shape} {marks.times}{row.count}"
    lines = [text]
    if group.shape and is_in_host_memory(report, group):
        lines.append(f"in {group.memory_kind}")
    if group.views_of is not None:
        lines.append(f"views of {group.views_of}")
    return lines


def _sharded_lines(row: LiveArrayRow, marks: style.Marks) -> list[str]:
    """Return the bytes and the replicas of a sharded array, and its partition spec if the row shows it."""
    group = row.groups[0]
    is_here = any(group.device_counts for group in row.groups)
    if not group.shape:
        return []
    if group.device_count == 1:
        return ["" if is_here else "not on this process"]
    copies = copies_words(group.unreduced, group.partial_sums, group.replicas)
    here = "" if is_here else ", not on this process"
    line = f"{marks.check} ({format_bytes(group.nbytes)} total{copies and f', {copies}'}{here})"
    return [line, row.spec] if row.spec else [line]


def _share(row: LiveArrayRow) -> str:
    return "" if row.share is None else f"{row.share:.1%}"


def _referrer_lines(row: LiveArrayRow, report: LiveArrayReport, most: int) -> list[str]:
    """Return the reference paths of the arrays of a row, one line each; a single one with their number."""
    paths = folded_paths(row.holders)
    lines = paths[:most]
    if len(paths) > most:
        more = f"and {len(paths) - most} more"
        lines = [f"{lines[0]} {more}"] if most == 1 else [*lines, more]
    if row.unheld_count:
        number = "" if row.unheld_count == row.count else f"{row.unheld_count} of {row.count}: "
        because = "search incomplete" if report.holders == "incomplete" else "held by JAX or C++"
        lines.append(f"{number}no Python referrer found ({because})")
    return lines
