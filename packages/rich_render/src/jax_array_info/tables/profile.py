"""MemoryProfileReport → tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from rich.console import Group, RenderableType
from rich.table import Table

from jax_array_info_core import MemoryProfileReport, ProfileRow, format_bytes

from .. import style
from .devices import fold_names
from .rows import split_rows


def memory_profile_tables(report: MemoryProfileReport, *, max_rows: int | None = 100) -> RenderableType:
    """Return the table of what each line of source holds on each device, and that of executables.

    Devices on which a line holds the same are one row.

    Args:
        report: What is held.
        max_rows: How many lines of source to show; what is left is one row more, with what the fullest
            devices hold of it together. None for all.
    """
    by_kind: dict[str, list[ProfileRow]] = {}
    for row in report.rows:
        by_kind.setdefault(row.kind, []).append(row)
    buffers = by_kind.pop("buffer", [])
    return Group(
        _buffer_table(buffers, report, max_rows) if buffers else "no buffers",
        *(_rows_table(kind, rows, max_rows) for kind, rows in by_kind.items()),
    )


def _buffer_table(rows: Sequence[ProfileRow], report: MemoryProfileReport, max_rows: int | None) -> Table:
    """Return the table of buffers, and below it what each device holds of them together."""
    table = _rows_table("buffer", rows, max_rows)
    table.add_section()
    for nbytes, names in _together((nbytes, name) for name, nbytes in report.device_nbytes):
        table.add_row(format_bytes(nbytes), "", style.written(fold_names(names)), "together")
    return table


def _rows_table(kind: str, rows: Sequence[ProfileRow], max_rows: int | None) -> Table:
    has_devices = kind == "buffer" or any(row.device is not None for row in rows)
    table = Table(title=style.heading(f"{kind}s by source line"))
    for name in ("size", "count"):
        table.add_column(name, justify="right", overflow="fold")
    if has_devices:
        table.add_column("device", overflow="fold")
    table.add_column("line", overflow="fold")
    alike = _together((replace(row, device=None), row.device) for row in rows)
    shown, rest = split_rows(alike, max_rows)
    for row, names in shown:
        cells = [_size(kind, row.nbytes), str(row.count)]
        if has_devices:
            cells.append(fold_names(names))
        cells.append("unknown" if row.origin is None else str(row.origin))
        table.add_row(*map(style.written, cells))
    if rest:
        size, count, names = _fullest(rest)
        cells = [size, count, fold_names(names)] if has_devices else [size, count]
        more = f"{len(rest)} more line{'s' if len(rest) > 1 else ''}"
        table.add_row(*map(style.written, (*cells, more)))
    return table


def _fullest(rows: Sequence[tuple[ProfileRow, list[str]]]) -> tuple[str, str, list[str]]:
    """Return size and count of what the devices that hold the most of some lines hold of them, and those."""
    nbytes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for row, names in rows:
        for name in names:
            nbytes[name] += row.nbytes
            counts[name] += row.count
    alike = _together(((nbytes[name], counts[name]), name) for name in counts)
    (most, count), names = max(alike, key=lambda held: held[0])
    return _size(rows[0][0].kind, most), str(count), names


_T = TypeVar("_T", bound=Hashable)


def _together(pairs: Iterable[tuple[_T, str | None]]) -> list[tuple[_T, list[str]]]:
    """Return what is alike once, with the names of its devices."""
    found: dict[_T, list[str]] = {}
    for thing, name in pairs:
        found.setdefault(thing, []).append(name or "unknown")
    return list(found.items())


def _size(kind: str, nbytes: int) -> str:
    # No executable takes nothing: the backend does not tell.
    return "?" if kind == "executable" and not nbytes else format_bytes(nbytes)
