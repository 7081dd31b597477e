"""LiveArrayReport → table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Table

from jax_array_info_core import LiveArrayGroup, LiveArrayReport, format_bytes
from jax_array_info_core.reports.live_totals import (
    UNKNOWN,
    By,
    LiveArrayTotal,
    TotalsBy,
    fullest_share,
    groups_of,
    held_nbytes,
    is_in_host_memory,
)

from .. import style
from ..pictures.fitting import clipped
from .folding import Look, folded, look_of, spec_lines
from .holders import PathLines, PathTable, folded_paths
from .rows import check_max_rows, split_rows

SMALL_ARRAY_NBYTES = 3 * 1024
NARROW = 80
"""Lines of so many characters have no room for shares."""
MOST_HOLDERS = 5
"""How many holders a row tells."""


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

    On lines of more than 80 characters it says how much of the bytes on the fullest device each row takes,
    where that fits.

    Args:
        report: What is alive. Who made the arrays and who holds them is shown where it tells.
        by: What the arrays of a row have in common: ``shape`` (and all else that the columns show),
            ``origin``, ``device``, ``dtype`` or ``sharding``.
        hide_small_arrays: Fold unlabelled arrays under 3 KiB a device into one row.
        max_rows: How many rows of arrays to show; what is left is one row more. None for all.
        specs: Show the partition spec of every sharded array, not only where rows would look alike.
        width: Number of characters a line may have.
    """
    check_max_rows(max_rows)

    def table(with_shares: bool) -> Table:
        if by == "shape":
            return _arrays_table(report, hide_small_arrays, max_rows, specs, with_shares)
        return _totals_table(report, by, max_rows, with_shares)

    narrow = table(with_shares=False)
    if width <= NARROW:
        return narrow
    wide = table(with_shares=True)

    def fitting(console: Console, options: ConsoleOptions) -> Table:
        needed = Measurement.get(console, options.update(width=sys.maxsize), wide).maximum
        return wide if needed <= width else narrow

    return style.ForConsole(fitting)


def _arrays_table(
    report: LiveArrayReport,
    hide_small_arrays: bool,
    max_rows: int | None,
    specs: bool,
    with_shares: bool,
) -> Table:
    """Return the table whose rows are arrays that are alike."""
    arrays = [group for group in report.groups if group.shape]
    small = [group for group in arrays if hide_small_arrays and _is_small(group)]
    large = folded([group for group in arrays if not (hide_small_arrays and _is_small(group))])
    columns = _columns(report, arrays, spec_lines(large, always=specs))

    table = _table("allocated jax arrays", report, "shape")
    table.add_column("size", overflow="fold")
    if with_shares:
        table.add_column("share", justify="right", overflow="fold")
    for column in columns:
        table.add_column(
            column.name, justify="center" if column.name == "sharded" else "left", overflow="fold"
        )

    def add_row(size: int, groups: Sequence[LiveArrayGroup], *cells: RenderableType) -> None:
        table.add_row(format_bytes(size), *([_share(report, groups)] if with_shares else []), *cells)

    shown, rest = split_rows(large, max_rows)
    for group in shown:
        row = (column.cell(group) for column in columns)
        add_row(group.local_nbytes, [group], *row)
    if rest:
        many = sum(group.count for group in rest)
        add_row(_held(rest), rest, f"{many} more array{'s' if many > 1 else ''}")
    if small:
        add_row(_held(small), small, "small arrays")
    if scalars := [group for group in report.groups if not group.shape]:
        table.add_section()
        for alike in _scalar_rows(scalars):
            cells = (column.of_scalars(alike) for column in columns)
            add_row(_held(alike), alike, *cells)
    _add_fullest(table, report, *([""] if with_shares else []))
    return table


def _cell(*lines: str) -> RenderableType:
    return style.written(*map(clipped, lines))


class _Column(NamedTuple):
    """A column of the table: its heading, and what it says of a group."""

    name: str
    cell: Callable[[LiveArrayGroup], RenderableType]
    of_scalars: Callable[[Sequence[LiveArrayGroup]], RenderableType] = lambda groups: ""
    """What it says of scalars that are one row."""


def _columns(
    report: LiveArrayReport,
    arrays: Sequence[LiveArrayGroup],
    specs: Mapping[Look, Sequence[str]],
) -> list[_Column]:
    """Return the columns beside the sizes that have something to say."""
    columns = [
        _Column(
            "shape",
            lambda group: style.marked(lambda marks: _shape_lines(group, report, marks)),
            lambda groups: style.marked(lambda marks: _scalar_lines(groups, marks)),
        ),
        _Column("dtype", lambda group: _cell(group.dtype), lambda groups: _cell(groups[0].dtype)),
    ]
    if report.visible_devices > 1:
        columns.append(
            _Column(
                "sharded",
                lambda group: style.marked(
                    lambda marks: [_sharded_text(group, marks), *specs.get(look_of(group), ())]
                ),
            )
        )
    if any(group.label is not None for group in arrays):
        columns.append(_Column("label", lambda group: _cell(group.label or "")))
    if report.origins == "known":
        columns.append(_Column("made at", _made_at, lambda groups: _made_at(groups[0])))
    if report.holders != "not asked":
        columns.append(
            _Column(
                "held by",
                lambda group: PathLines(_holder_lines([group], report)),
                lambda groups: PathLines(_holder_lines(groups, report)),
            )
        )
    return columns


def _table(title: str, report: LiveArrayReport, by: By) -> Table:
    """Return a table without rows, and below it what could not be learnt."""
    notes = []
    if report.origins == "not told by this jax":
        notes.append("this jax does not tell who made an array")
    if report.holders == "incomplete":
        notes.append("there may be more holders: not all was searched (max_seconds=None does)")
    if by != "device" and _is_shared(report):
        notes.append("what arrays share counts for each of them, but once in the last row")
    kind = Table if report.holders == "not asked" else PathTable
    return kind(title=title, caption="\n".join(notes) or None)


def _is_shared(report: LiveArrayReport) -> bool:
    """Return whether arrays take less together than one by one."""
    host, held = dict(report.host_nbytes), held_nbytes(report.groups)
    is_known = report.nbytes_source == "profile"
    return is_known and any(
        held[device] > nbytes + host.get(device, 0) for device, nbytes in report.device_nbytes
    )


def _totals_table(report: LiveArrayReport, by: TotalsBy, max_rows: int | None, with_shares: bool) -> Table:
    """Return the table of what arrays take that have one thing in common."""
    table = _table(f"allocated jax arrays by {by}", report, by)
    with_shares = with_shares and by != "device"
    columns = _total_columns(report, by)
    headings = [columns[0], *(["share"] if with_shares else []), *columns[1:]]
    for name in headings:
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("made at" if by == "origin" else by, overflow="fold")
    with_groups = with_shares or report.holders != "not asked"
    if report.holders != "not asked":
        table.add_column("held by", overflow="fold")

    def add_row(numbers: Sequence[str], groups: Sequence[LiveArrayGroup], *cells: RenderableType) -> None:
        table.add_row(numbers[0], *([_share(report, groups)] if with_shares else []), *numbers[1:], *cells)

    shown, rest = split_rows([total for total in report.totals if total.by == by], max_rows)
    for one in shown:
        groups = groups_of(report, [one]) if with_groups else []
        cells: list[RenderableType] = [_cell(one.of)]
        if report.holders != "not asked":
            cells.append(PathLines(_holder_lines(groups, report)))
        add_row(_numbers(one, columns), groups, *cells)
    if rest:
        groups = groups_of(report, rest)
        add_row(_numbers(_rest(rest, groups), columns), groups, f"{len(rest)} more")
    _add_fullest(table, report, *[""] * (len(headings) - 1))
    return table


def _total_columns(report: LiveArrayReport, by: By) -> list[str]:
    """Return the headings of the numbers of a table of totals."""
    if by != "device":
        return ["size", "all devices", "arrays"]
    return ["size", "with host memory", "arrays"] if report.host_nbytes else ["size", "arrays"]


def _numbers(total: LiveArrayTotal, columns: Sequence[str]) -> list[str]:
    """Return the numbers of a total for such columns."""
    numbers = [format_bytes(total.nbytes), format_bytes(total.total_nbytes), str(total.count)]
    return numbers if len(columns) == len(numbers) else [numbers[0], numbers[-1]]


def _rest(totals: Sequence[LiveArrayTotal], groups: Sequence[LiveArrayGroup]) -> LiveArrayTotal:
    """Return several totals as one: its size is what one device, the fullest, holds of all of them."""
    by = totals[0].by
    count = sum(one.count for one in totals)
    if by == "device":  # each of them is what one device holds
        nbytes, total_nbytes = max(one.nbytes for one in totals), max(one.total_nbytes for one in totals)
    else:
        nbytes, total_nbytes = _held(groups), sum(one.total_nbytes for one in totals)
    return LiveArrayTotal(by=by, of="", count=count, nbytes=nbytes, total_nbytes=total_nbytes)


def _add_fullest(table: Table, report: LiveArrayReport, *between: str) -> None:
    """Add the last row: what the fullest device holds; before it, what is in host memory.

    Args:
        table: The table.
        report: What is alive.
        between: The cells between the bytes and the word for them.
    """
    table.add_section()
    host = max((nbytes for _, nbytes in report.host_nbytes), default=0)
    if host:
        table.add_row(format_bytes(host), *between, "in host memory")
    table.add_row(format_bytes(max((nbytes for _, nbytes in report.device_nbytes), default=0)))


def _holder_lines(groups: Sequence[LiveArrayGroup], report: LiveArrayReport) -> list[str]:
    """Return who holds some arrays, a line each."""
    paths = folded_paths(path for group in groups for path in group.holders)
    lines = paths[:MOST_HOLDERS]
    if len(paths) > MOST_HOLDERS:
        lines.append(f"and {len(paths) - MOST_HOLDERS} more")
    unheld = sum(group.unheld_count for group in groups)
    if unheld:
        many = sum(group.count for group in groups)
        number = "" if unheld == many else f"{unheld} of {many}: "
        because = " in time" if report.holders == "incomplete" else " (held by jax or C++)"
        lines.append(f"{number}no Python holder found{because}")
    return lines


def _is_small(group: LiveArrayGroup) -> bool:
    return group.label is None and group.local_nbytes < SMALL_ARRAY_NBYTES


def _held(groups: Sequence[LiveArrayGroup]) -> int:
    """Return what the device that holds the most of some arrays holds of them."""
    return max(held_nbytes(groups).values(), default=0)


def _shape_lines(group: LiveArrayGroup, report: LiveArrayReport, marks: style.Marks) -> list[str]:
    """Return the shape, and on a line of its own a memory that is not the default."""
    lines = [str(group.shape) if group.count == 1 else f"{group.shape} {marks.times}{group.count}"]
    if is_in_host_memory(report, group):
        lines.append(f"in {group.memory_kind}")
    return [*lines, *_view_lines(group)]


def _view_lines(group: LiveArrayGroup) -> list[str]:
    """Return that arrays take no memory of their own, and whose they share."""
    return [] if group.views_of is None else [clipped(f"views of {group.views_of}")]


def _share(report: LiveArrayReport, groups: Sequence[LiveArrayGroup]) -> str:
    """Return in percent how much of the bytes on the fullest device some arrays take."""
    share = fullest_share(report, groups)
    return "" if share is None else f"{share:.1%}"


def _sharded_text(group: LiveArrayGroup, marks: style.Marks) -> str:
    if group.device_count == 1:
        return "" if group.device_counts else "none here"
    replicas = f", {group.replicas} replicas" if group.replicas > 1 else ""
    here = "" if group.device_counts else ", none here"
    return f"{marks.check} ({format_bytes(group.nbytes)} total{replicas}{here})"


def _made_at(group: LiveArrayGroup) -> RenderableType:
    return _cell(str(group.origin or UNKNOWN))


def _scalar_rows(scalars: Sequence[LiveArrayGroup]) -> list[list[LiveArrayGroup]]:
    """Return the scalars of each dtype, origin and base, those that take the most bytes first."""
    found: dict[tuple[object, ...], list[LiveArrayGroup]] = {}
    for group in scalars:
        found.setdefault((group.dtype, group.origin, group.views_of), []).append(group)
    return sorted(found.values(), key=lambda alike: -_held(alike))


def _scalar_lines(alike: Sequence[LiveArrayGroup], marks: style.Marks) -> list[str]:
    """Return how many scalars a row stands for."""
    count = sum(group.count for group in alike)
    return [f"{count}{marks.times}s", *_view_lines(alike[0])]
