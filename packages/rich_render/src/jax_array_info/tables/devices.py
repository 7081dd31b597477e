"""Tables of devices, memory statistics and memory profiles."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table

from jax_array_info_core import format_bytes
from jax_array_info_core.grouping import by_key
from jax_array_info_core.pages.folds import split_rows
from jax_array_info_core.quantities import format_device_ids
from jax_array_info_core.reports import DeviceReport, DevicesReport, MemoryProfileReport, MemoryReport
from jax_array_info_core.reports.devices import ProfileLine, lines_together

from .. import style
from .words import folding_table, reason_words, site_words

BAR_WIDTH = 10
_BAR = ""
"""Head of the column of bars."""
MIN_WIDTH_WITH_BARS = 80
"""Narrower tables have no bars, so that the numbers fit."""


def memory_table(report: MemoryReport) -> RenderableType:
    """Return the table of a device's memory statistics, or a line with the reason why there are none."""
    if report.stats is None:
        reason = f": {reason_words(report.missing_reason)}" if report.missing_reason else ""
        return style.written(f"no memory statistics for {report.device}{reason}", look=style.WARNING)
    lines = [f"Memory Stats of {report.device}"]
    if report.allocation_count is not None:
        lines.append(f"{report.allocation_count} allocs")
    table = folding_table(style.written(*lines), ("name", ">size", ">size (raw)"))
    for name, value in report.stats:
        # Counts are not sizes.
        is_size = isinstance(value, int) and not name.startswith("num_")
        size = format_bytes(int(value)) if is_size else ""
        table.add_row(*map(style.written, (name, size, str(value))))
    return table


def memory_stats_table(report: DevicesReport, *, width: int = 80) -> RenderableType:
    """Return the memory of the fullest device in a line, then that of each device.

    Args:
        report: The devices.
        width: Maximum line length in characters. Below 80, there are no bars.
    """
    columns: dict[str, Callable[[DeviceReport], RenderableType]] = {
        "device": lambda device: style.written(device.name),
        ">in use": lambda device: style.written(_in_use(device)),
        ">peak": lambda device: _size(device.peak_bytes_in_use),
        ">limit": lambda device: _size(device.bytes_limit),
        _BAR: _bar,
        ">in arrays": lambda device: _size(device.array_nbytes),
        ">not in arrays": lambda device: _size(device.unexplained_nbytes),
    }
    if width < MIN_WIDTH_WITH_BARS:
        del columns[_BAR]
    if not report.has_statistics:
        columns = {name: columns[name] for name in ("device", ">in use", ">in arrays")}
    table = folding_table("device memory", columns)
    for device in report.devices:
        table.add_row(*(cell(device) for cell in columns.values()))
    return Group(style.written(_memory_words(report), look="bold"), table)


def _memory_words(report: DevicesReport) -> str:
    """Return the bytes in use on the device with the most; those in arrays if they are not known."""
    known = [device for device in report.devices if device.bytes_in_use is not None]
    if known:
        most = max(known, key=lambda device: device.bytes_in_use or 0)
        share = ""
        if most.bytes_limit:
            share = f" of {_size(most.bytes_limit)} ({(most.bytes_in_use or 0) / most.bytes_limit:.0%})"
        return f"{_size(most.bytes_in_use)}{share} in use on {most.name}, the fullest device"
    nbytes = max((device.array_nbytes or 0 for device in report.devices), default=0)
    return f"{format_bytes(nbytes)} in arrays on the fullest device; the memory in use is not known"


def devices_table(report: DevicesReport) -> Table:
    """Return the table of devices, with equal devices in one row."""
    several_processes = len({device.process for device in report.devices}) > 1
    process_column = ["process"] if several_processes else []
    columns = ("device", "device kind", *process_column, "memory kinds", "memory in use")
    table = folding_table("devices", columns)
    rows = by_key(
        (_row(device, several_processes=several_processes), device.name) for device in report.devices
    )
    for (_, *cells), names in rows.items():
        table.add_row(*map(style.written, (fold_names(names), *cells)))
    return table


def _row(device: DeviceReport, *, several_processes: bool) -> tuple[str, ...]:
    process = [f"{device.process}{' (this)' if device.is_local else ''}"] if several_processes else []
    return (device.platform, device.kind, *process, _memory_kinds(device), _memory(device))


def fold_names(names: Iterable[str]) -> str:
    """Return the names of devices, with those that differ only in their numbers folded.

    >>> fold_names(["cpu:0", "cpu:1", "cpu:2", "cuda:0"])
    'cpu:0-2,cuda:0'
    """
    ids: dict[str, list[int]] = {}
    for name in names:
        platform, number = _NAME.fullmatch(name).groups()  # type: ignore[union-attr]
        ids.setdefault(platform, [])
        if number:
            ids[platform].append(int(number))
    return ",".join(f"{platform}{format_device_ids(numbers)}" for platform, numbers in ids.items())


_NAME = re.compile(r"(.*?)(\d{0,9})", re.DOTALL)


def _memory_kinds(device: DeviceReport) -> str:
    """Return the memory kinds of a device, the default first."""
    return ", ".join(sorted(device.memory_kinds, key=lambda kind: kind != device.default_memory_kind))


def _memory(device: DeviceReport) -> str:
    has_limit = device.bytes_in_use is not None and device.bytes_limit is not None
    return f"{_in_use(device)} of {_size(device.bytes_limit)}" if has_limit else _in_use(device)


def _in_use(device: DeviceReport) -> str:
    return _size(device.bytes_in_use) or reason_words(device.missing_reason or "unknown")


def _bar(device: DeviceReport) -> RenderableType:
    """Return a bar of memory in use and peak memory up to the limit; empty without a limit."""
    if device.bytes_in_use is None or not device.bytes_limit:
        return ""
    full, at_peak = (
        min(max(round(BAR_WIDTH * nbytes / device.bytes_limit), 0), BAR_WIDTH)
        for nbytes in (device.bytes_in_use, device.peak_bytes_in_use or 0)
    )
    reached = max(full, at_peak)
    lengths = (full, reached - full, BAR_WIDTH - reached)
    return style.marked(
        lambda marks: ["".join(mark * length for mark, length in zip(marks.bar, lengths, strict=True))]
    )


def _size(nbytes: int | None) -> str:
    return "" if nbytes is None else format_bytes(nbytes)


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
    most = max((nbytes for nbytes, _ in report.devices_alike), default=0)
    answer = f"buffers take at most {format_bytes(most)} per device" if buffers else "no buffers"
    return Group(
        style.written(answer, look="bold"),
        *([_buffer_table(buffers, report, max_rows)] if buffers else []),
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
        add_row(line, site_words(line.origin))
    if rest:
        add_row(lines_together(rest), f"{len(rest)} more line{'s' if len(rest) > 1 else ''}")
    return table
