"""LiveArrayReport → table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from jax_array_info_core import LiveArrayGroup, LiveArrayReport, format_bytes
from jax_array_info_core.memory.totals import UNKNOWN, By, LiveArrayTotal, held_nbytes, live_array_totals
from jax_array_info_core.units import printable

from .. import style
from .rows import check_max_rows, split_rows

SMALL_ARRAY_NBYTES = 3 * 1024
MOST_HOLDERS = 5
"""How many holders a row tells."""


def live_array_table(
    report: LiveArrayReport,
    *,
    by: By = "shape",
    hide_small_arrays: bool = False,
    max_rows: int | None = 100,
    encoding: str = "utf-8",
) -> Table:
    """Return the table of all live arrays, the largest first.

    Args:
        report: What is alive. Who made the arrays and who holds them is shown where it tells.
        by: What the arrays of a row have in common: ``shape`` (and all else that the columns show),
            ``origin``, ``device``, ``dtype`` or ``sharding``.
        hide_small_arrays: Fold unlabelled arrays under 3 KiB a device into one row.
        max_rows: How many rows of arrays to show; what is left is one row more. None for all.
        encoding: Encoding of the console, which decides on the marks.
    """
    check_max_rows(max_rows)
    if by != "shape":
        return _totals_table(report, by, max_rows, encoding)
    arrays = [group for group in report.groups if group.shape]
    scalars = [group for group in report.groups if not group.shape]
    columns = _columns(report, arrays, encoding)

    table = _table("allocated jax arrays", report, by)
    for column in columns:
        table.add_column(
            column.name, justify="center" if column.name == "sharded" else "left", overflow="fold"
        )

    small = [group for group in arrays if hide_small_arrays and _is_small(group)]
    large = _folded([group for group in arrays if not (hide_small_arrays and _is_small(group))])
    shown, rest = split_rows(large, max_rows)
    for group in shown:
        table.add_row(*(_cell(column.lines(group), encoding) for column in columns))
    if rest:
        many = sum(group.count for group in rest)
        table.add_row(format_bytes(_held(rest)), f"{many} more array{'s' if many > 1 else ''}")
    if small:
        table.add_row(format_bytes(_held(small)), "small arrays")
    if scalars:
        table.add_section()
        for alike in _scalar_rows(scalars):
            number = f"{sum(group.count for group in alike)}{style.marks(encoding).times}s"
            cells = (column.of_scalars(alike) for column in columns[2:])
            table.add_row(format_bytes(_held(alike)), number, *(_cell(lines, encoding) for lines in cells))
    _add_fullest(table, report)
    return table


class _Column(NamedTuple):
    """A column of the table: its heading, and what it says of a group, line by line."""

    name: str
    lines: Callable[[LiveArrayGroup], Sequence[str]]
    of_scalars: Callable[[Sequence[LiveArrayGroup]], Sequence[str]] = lambda groups: ()
    """What it says of scalars that are one row."""


def _columns(report: LiveArrayReport, arrays: Sequence[LiveArrayGroup], encoding: str) -> list[_Column]:
    """Return the columns that have something to say."""
    columns = [
        _Column("size", lambda group: [format_bytes(group.local_nbytes)]),
        _Column("shape", lambda group: _shape_lines(group, report, encoding)),
        _Column("dtype", lambda group: [group.dtype], lambda groups: [groups[0].dtype]),
    ]
    if report.visible_devices > 1:
        columns.append(_Column("sharded", lambda group: [_sharded_text(group, encoding)]))
    if any(group.label is not None for group in arrays):
        columns.append(_Column("label", lambda group: [group.label or ""]))
    if report.origins == "known":
        columns.append(_Column("made at", _maker_lines, lambda groups: _maker_lines(groups[0])))
    if report.holders != "not asked":
        columns.append(
            _Column(
                "held by",
                lambda group: _holder_lines([group], report),
                lambda groups: _holder_lines(groups, report),
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
    return Table(title=title, caption="\n".join(notes) or None)


def _is_shared(report: LiveArrayReport) -> bool:
    """Return whether arrays take less together than one by one."""
    host, held = dict(report.host_nbytes), held_nbytes(report.groups)
    is_known = report.nbytes_source == "profile"
    return is_known and any(
        held[device] > nbytes + host.get(device, 0) for device, nbytes in report.device_nbytes
    )


def _cell(lines: Sequence[str], encoding: str) -> Text:
    """Return the text of a cell as it is written."""
    return Text("\n").join(Text(printable(line, encoding)) for line in lines)


def _totals_table(report: LiveArrayReport, by: By, max_rows: int | None, encoding: str) -> Table:
    """Return the table of what arrays take that have one thing in common."""
    table = _table(f"allocated jax arrays by {by}", report, by)
    columns = _total_columns(report, by)
    for name in columns:
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("made at" if by == "origin" else by, overflow="fold")
    if report.holders != "not asked":
        table.add_column("held by", overflow="fold")
    shown, rest = split_rows(live_array_totals(report, by), max_rows)
    for one in shown:
        cells = [[one.of]] if report.holders == "not asked" else [[one.of], _holder_lines(one.groups, report)]
        table.add_row(*_numbers(one, columns), *(_cell(cell, encoding) for cell in cells))
    if rest:
        table.add_row(*_numbers(_rest(rest, by), columns), f"{len(rest)} more")
    _add_fullest(table, report, *[""] * (len(columns) - 1))
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


def _rest(totals: Sequence[LiveArrayTotal], by: By) -> LiveArrayTotal:
    """Return several totals as one: its size is what one device, the fullest, holds of all of them."""
    groups = tuple(group for one in totals for group in one.groups)
    count = sum(one.count for one in totals)
    if by == "device":  # each of them is what one device holds
        nbytes, total_nbytes = max(one.nbytes for one in totals), max(one.total_nbytes for one in totals)
    else:
        nbytes, total_nbytes = _held(groups), sum(one.total_nbytes for one in totals)
    return LiveArrayTotal("", count, nbytes, total_nbytes, groups)


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
    paths = list(dict.fromkeys(path for group in groups for path in group.holders))
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


def _folded(groups: Sequence[LiveArrayGroup]) -> list[LiveArrayGroup]:
    """Return groups that look alike as one: empty arrays on 2 and on 8 devices do."""
    alike: dict[tuple[object, ...], LiveArrayGroup] = {}
    for group in groups:
        look = (
            group.local_nbytes,
            group.shape,
            group.dtype,
            group.label,
            group.device_count > 1,
            group.nbytes,
            group.replicas,
            group.memory_kind,
            group.origin,
        )
        alike[look] = _together(alike[look], group) if look in alike else group
    return list(alike.values())


def _together(first: LiveArrayGroup, other: LiveArrayGroup) -> LiveArrayGroup:
    places = Counter(dict(first.device_counts)) + Counter(dict(other.device_counts))
    return replace(
        first,
        count=first.count + other.count,
        device_counts=tuple(sorted(places.items())),
        holders=tuple(dict.fromkeys(first.holders + other.holders)),
        unheld_count=first.unheld_count + other.unheld_count,
    )


def _is_small(group: LiveArrayGroup) -> bool:
    return group.label is None and group.local_nbytes < SMALL_ARRAY_NBYTES


def _held(groups: Sequence[LiveArrayGroup]) -> int:
    """Return what the device that holds the most of some arrays holds of them."""
    return max(held_nbytes(groups).values(), default=0)


def _shape_lines(group: LiveArrayGroup, report: LiveArrayReport, encoding: str) -> list[str]:
    """Return the shape, and on a line of its own a memory that is not the default."""
    times = style.marks(encoding).times
    lines = [str(group.shape) if group.count == 1 else f"{group.shape} {times}{group.count}"]
    if report.host_nbytes and "host" in (group.memory_kind or ""):
        lines.append(f"in {group.memory_kind}")
    return lines


def _sharded_text(group: LiveArrayGroup, encoding: str) -> str:
    if group.device_count == 1:
        return "" if group.device_counts else "none here"
    copies = f", {group.replicas} copies" if group.replicas > 1 else ""
    here = "" if group.device_counts else ", none here"
    return f"{style.marks(encoding).check} ({format_bytes(group.nbytes)} total{copies}{here})"


def _maker_lines(group: LiveArrayGroup) -> list[str]:
    return [str(group.origin or UNKNOWN)]


def _scalar_rows(scalars: Sequence[LiveArrayGroup]) -> list[list[LiveArrayGroup]]:
    """Return the scalars of each dtype and origin, those that take the most bytes first."""
    found: dict[tuple[object, ...], list[LiveArrayGroup]] = {}
    for group in scalars:
        found.setdefault((group.dtype, group.origin), []).append(group)
    return sorted(found.values(), key=lambda alike: -_held(alike))
