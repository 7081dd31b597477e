"""Tables for ``MemoryProfileReport``."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table

from jax_array_info_core import MemoryProfileReport, format_bytes
from jax_array_info_core.reports.profile import ProfileLine, lines_together
from jax_array_info_core.reports.rows import split_rows

from .. import style
from .columns import folding_table
from .devices import fold_names
from .words import origin_words


def memory_profile_tables(report: MemoryProfileReport, *, max_rows: int | None = 100) -> RenderableType:
    """Return the tables of buffers and of executables by source line.

    Devices with the same bytes for a line share a row.

    Args:
        report: The memory profile.
        max_rows: Maximum number of source lines. One more row has the rest, with its bytes on the fullest
            devices. None shows all.
    """
    lines_of = report.lines
    buffers = lines_of.pop("buffer", ())
    return Group(
        _buffer_table(buffers, report, max_rows) if buffers else "no buffers",
        *(_lines_table(allocation, lines, max_rows) for allocation, lines in lines_of.items()),
    )


def _buffer_table(lines: Sequence[ProfileLine], report: MemoryProfileReport, max_rows: int | None) -> Table:
    """Return the table of buffers, with the total of each device in its last rows."""
    table = _lines_table("buffer", lines, max_rows)
    table.add_section()
    for nbytes, names in report.devices_alike:
        table.add_row(format_bytes(nbytes), "", style.written(fold_names(names)), "all lines")
    return table


def _lines_table(allocation: str, lines: Sequence[ProfileLine], max_rows: int | None) -> Table:
    has_devices = allocation == "buffer" or any({*line.devices} != {"unknown"} for line in lines)
    device_column = ["device"] if has_devices else []
    title = style.written(f"{allocation}s by source line")
    size = ">per device" if allocation == "buffer" else ">size"
    table = folding_table(title, (size, ">count", *device_column, "line"))

    def add_row(line: ProfileLine, words: str) -> None:
        # An executable of size 0 is one whose size the backend does not report.
        size = "?" if allocation == "executable" and not line.nbytes else format_bytes(line.nbytes)
        devices = [fold_names(line.devices)] if has_devices else []
        table.add_row(*map(style.written, (size, str(line.count), *devices, words)))

    shown, rest = split_rows(lines, max_rows)
    for line in shown:
        add_row(line, origin_words(line.origin, "unknown"))
    if rest:
        add_row(lines_together(rest), f"{len(rest)} more line{'s' if len(rest) > 1 else ''}")
    return table
