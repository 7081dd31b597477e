"""Table for ``LiveArrayReport``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType
from rich.markup import escape
from rich.table import Table

from jax_array_info.tables.live_rows import LiveArrayRow, LiveArrayRows, live_array_rows
from jax_array_info_core import format_bytes
from jax_array_info_core.layouts.grid import copies_words
from jax_array_info_core.pages.folds import path_pieces
from jax_array_info_core.reports import LiveArrayReport
from jax_array_info_core.reports.live import (
    By,
    device_words,
    held_counts,
    is_in_host_memory,
)
from jax_array_info_core.text import clipped, printable

from .. import style
from .pages import INDENT, Cell, Content, fitted_table, wrapped_widths
from .tree_words import Line
from .words import NO_ALLOCATION_SITES, SEARCH_INCOMPLETE, site_words

_MIN_FOLDED = 3
"""Minimum number of paths, with consecutive indices, that are folded into one."""

_MOST_INDICES = 50
"""Indices of a path that are folded, the first ones."""

_QUOTED = r"'(?:[^'\\]++|\\.)*+'|\"(?:[^\"\\]++|\\.)*+\""
_INDEX = re.compile(rf"{_QUOTED}|\[(\d+)\]")
"""A key in quotes, or an index."""
_KEY = re.compile(rf"(?:\[(?:{_QUOTED}|[^\]'\"])*+\]?|\.?(?:<[^<>]*>|[^\s.\[<])+|\S)\s*|\s+")
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


def reference_keys(path: str) -> list[str]:
    """Return the keys, attributes and words of a reference path, each with the spaces after it."""
    return _KEY.findall(path)


NARROW = 80
"""Lines up to this length have no column ``of total``."""
_SHARE = "of total"
_FULLEST = "fullest device"
"""What the total is if the rows do not add up to it: they are on other devices, or share buffers."""
MAX_PATHS = 5
"""Maximum number of reference paths per row."""


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

    def table(_: Console, options: ConsoleOptions) -> Table:
        def content(*, with_shares: bool = False, is_narrow: bool = False) -> Content:
            columns = list(_columns(report, by, style.marks(options.encoding), most_paths, with_shares))
            columns = _stacked(columns) if is_narrow else columns
            return _content(report, by, rows, columns, options.encoding)

        def contents() -> Iterator[Content]:
            if width > NARROW and by != "device":
                yield content(with_shares=True)
            yield content()
            if by == "shape":
                yield content(is_narrow=True)

        device = "" if report.device is None else f" on {device_words(report, report.device)}"
        where = escape(printable(clipped(device), options.encoding))
        title = f"allocated jax arrays{where}{'' if by == 'shape' else f' by {by}'}"
        return fitted_table(
            title, contents(), options.max_width, needed=_needed, caption=_caption(report, by)
        )

    return style.ForConsole(table)


def _needed(content: Content, wanted: Sequence[int], width: int) -> Sequence[int]:
    """Return the widths that the columns need: a column of shares breaks no path."""
    return wanted if _SHARE in content.heads else wrapped_widths(content, wanted, width)


def _caption(report: LiveArrayReport, by: By) -> str | None:
    """Return notes on missing or shared information."""
    notes = []
    if report.origins == "not told by this jax":
        notes.append(NO_ALLOCATION_SITES)
    if report.holders == "incomplete":
        notes.append(SEARCH_INCOMPLETE.format("referrers"))
    if by != "device" and report.is_shared:
        notes.append("Shared buffers are counted once per array, and once in the total.")
    return "\n".join(notes) or None


class _Column(NamedTuple):
    """A column of the table: its head, and the lines of its cell in each row."""

    name: str
    lines: Callable[[LiveArrayRow], Sequence[str]]
    alignment: JustifyMethod = "left"
    is_of_words: bool = True
    """Whether rows of small and further arrays have no such cell."""
    keys: Callable[[str], Sequence[str]] | None = None
    """Function that returns the keys of the paths in the cells."""
    below: tuple[_Column, ...] = ()
    """Columns of a wider table whose lines follow, indented."""

    def cell(self, row: LiveArrayRow) -> Cell:
        """Return the cell of a row."""
        own = [Line(line, keys=self.keys) for line in self.lines(row)]
        below = [line for column in self.below for line in column.cell(row) if line.text]
        return [*own, *(replace(line, text=INDENT + line.text) for line in below)]


def _content(
    report: LiveArrayReport, by: By, rows: LiveArrayRows, columns: Sequence[_Column], encoding: str
) -> Content:
    """Return the cells of the table: of arrays, of scalars, and of the total."""
    numbers = [column for column in columns if not column.is_of_words]

    def full(row: LiveArrayRow) -> list[Cell]:
        return [column.cell(row) for column in columns]

    def short(*words: str) -> list[Cell]:
        return [[Line(line)] for line in (*words, *[""] * (len(columns) - len(words)))]

    def named(row: LiveArrayRow, words: str) -> list[Cell]:
        return [*(column.cell(row) for column in numbers), *short(words)][: len(columns)]

    largest = list(map(full, rows.rows))
    if rows.rest:
        largest.append(named(rows.rest, _rest_words(rows.rest, rows.rest_count, by)))
    if rows.small:
        largest.append(named(rows.small, "small arrays"))
    blanks = [""] * (len(numbers) - 1)
    is_sum = rows.sum_nbytes == report.fullest_nbytes + report.fullest_host_nbytes
    last = [short(format_bytes(report.fullest_nbytes), *([] if is_sum else [*blanks, _FULLEST]))]
    if report.fullest_host_nbytes:
        last.insert(0, short(format_bytes(report.fullest_host_nbytes), *blanks, "in host memory"))
    return Content.of(
        [column.name for column in columns],
        [column.alignment for column in columns],
        [largest, list(map(full, rows.scalars)), last],
        encoding,
    )


def _rest_words(rest: LiveArrayRow, count: int, by: By) -> str:
    return f"{count} more" if by != "shape" else f"{rest.count} more array{'s' if rest.count > 1 else ''}"


def _columns(
    report: LiveArrayReport, by: By, marks: style.Marks, most_paths: int, with_shares: bool
) -> Iterator[_Column]:
    """Yield the columns that have any content."""
    is_sum = by != "shape"
    is_of_one = by == "device" or report.device is not None
    size = "size" if by == "shape" else "per device" if is_of_one else "max per device"
    yield _number(size, lambda row: row.size, "right" if is_sum else "left")
    if with_shares:
        yield _number(_SHARE, lambda row: "" if row.share is None else f"{row.share:.1%}")
    if is_sum and (report.host_nbytes if by == "device" else not is_of_one):
        # The report has no bytes on the devices of other processes.
        devices = "all devices" if len(report.device_nbytes) >= report.visible_devices else "local devices"
        name = "with host memory" if by == "device" else devices
        yield _number(name, lambda row: format_bytes(row.total_nbytes))
    if is_sum:
        yield _number("arrays", lambda row: str(row.count))
        yield _Column("made at" if by == "origin" else by, lambda row: [row.of])
    else:
        yield from _shape_columns(report, marks)
    if report.holders != "not asked":
        yield _Column("held by", lambda row: _referrer_lines(row, report, most_paths), keys=reference_keys)


def _stacked(columns: Sequence[_Column]) -> list[_Column]:
    """Return the columns of a narrow table: one of shape, dtype and sharding, one of site and referrers."""
    numbers = [column for column in columns if not column.is_of_words]
    sources = [column for column in columns if column.name in ("made at", "held by")]
    array = [column for column in columns if column.is_of_words and column not in sources]
    return [*numbers, *(_one_column(group) for group in (array, sources) if group)]


def _one_column(columns: Sequence[_Column]) -> _Column:
    """Return a column with the lines of several, below each other."""
    first, *below = columns
    return first._replace(name=", ".join(column.name for column in columns), below=tuple(below))


def _number(name: str, text: Callable[[LiveArrayRow], str], alignment: JustifyMethod = "right") -> _Column:
    return _Column(name, lambda row: [text(row)], alignment, is_of_words=False)


def _shape_columns(report: LiveArrayReport, marks: style.Marks) -> Iterator[_Column]:
    """Yield the columns of the properties that the arrays of a row share."""
    yield _Column("shape", lambda row: _shape_lines(row, report, marks))
    yield _Column("dtype", lambda row: [row.groups[0].dtype])
    if report.visible_devices > 1:
        yield _Column("sharded", lambda row: _sharded_lines(row, report, marks), "center")
    if any(group.label is not None for group in report.groups if group.shape):
        yield _Column("label", lambda row: [row.groups[0].label or "" if row.groups[0].shape else ""])
    if report.origins == "known":
        yield _Column("made at", lambda row: [site_words(row.groups[0].origin)])


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


def _sharded_lines(row: LiveArrayRow, report: LiveArrayReport, marks: style.Marks) -> list[str]:
    """Return the bytes and the replicas of a sharded array, and spec and devices if the row shows them."""
    group = row.groups[0]
    is_here = any(group.device_counts for group in row.groups)
    if not group.shape:
        return []
    if group.device_count == 1:
        return _device_lines(row, report) if is_here else ["not on this process"]
    over = group.replicated_over
    copies = copies_words(group.unreduced, group.partial_sums, group.replicas, over)
    here = "" if is_here else ", not on this process"
    is_whole = bool(over) and group.replicas == group.device_count
    mark = "replicated" if is_whole else marks.check
    line = f"{mark} ({format_bytes(group.nbytes)} total{copies and f', {copies}'}{here})"
    return [line, *([row.spec] if row.spec else []), *_device_lines(row, report)]


def _device_lines(row: LiveArrayRow, report: LiveArrayReport) -> list[str]:
    """Return the devices of the arrays of a row, unless each is where arrays are expected.

    That is the first device for an array on one device, and all devices for any other. Views are where their
    array is.
    """
    each, counts = row.groups[0].device_count, held_counts(row.groups)
    expected = {device for device, _ in report.device_nbytes[: 1 if each == 1 else None]}
    together = all(count == row.count for count in counts.values())
    if not counts or row.groups[0].views_of is not None or (together and expected <= set(counts)):
        return []
    where = "on" if together else f"each on {each} of"
    return [f"{where} {device_words(report, *counts)}"]


def _referrer_lines(row: LiveArrayRow, report: LiveArrayReport, most: int) -> list[str]:
    """Return the reference paths of the arrays of a row, one line each; a single one with their number."""
    paths = folded_paths(row.holders)
    lines = paths[:most]
    if len(paths) > most:
        more = f"and {len(paths) - most} more"
        lines = [f"{lines[0]} {more}"] if most == 1 else [*lines, more]
    if row.garbage_count:
        number = "" if row.garbage_count == row.count else f"{row.garbage_count} of {row.count}: "
        them, cycles = ("it", "a reference cycle") if row.garbage_count == 1 else ("them", "reference cycles")
        lines.append(f"{number}garbage in {cycles}: gc.collect() frees {them}")
    if row.unheld_count:
        number = "" if row.unheld_count == row.count else f"{row.unheld_count} of {row.count}: "
        because = "search incomplete" if report.holders == "incomplete" else "held by JAX or C++"
        lines.append(f"{number}no Python referrer found ({because})")
    return lines
