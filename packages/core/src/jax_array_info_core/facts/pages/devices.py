"""Pages of devices, of their memory statistics and of memory profiles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ...base.grouping import by_key
from ...base.quantities import format_bytes, format_device_ids, percent_words
from ..reports import DeviceReport, DevicesReport, MemoryProfileReport, MemoryReport
from ..reports.devices import ProfileLine, lines_together
from .blocks import FREE, REACHED, USED, Block, Column, Row, Sentence, Table, limited, more
from .words import reason_words, site_words, size_words

BAR_WIDTH = 10
_NUMBER = re.compile(r"(\d{0,9})\Z")
_KINDS = (
    Column("device", is_kept=True),
    Column("device kind", meaning="model of the device"),
    Column("process", before="process ", meaning="index of the process that owns the device"),
    Column("memory kinds", meaning="memories that the device can address, the default one first"),
    Column("memory in use", meaning="allocated bytes on one device, of those that JAX may allocate"),
)
_MEMORY = (
    Column("device", is_kept=True),
    Column("in use", "number", meaning="allocated bytes on the device"),
    Column("peak", "number", before="peak ", meaning="most bytes in use at one time since the start"),
    Column("limit", "number", before="limit ", meaning="most bytes that JAX may allocate on the device"),
    Column("bar", head=" ", is_optional=True, meaning="bytes in use and the peak, as parts of the limit"),
    Column(
        "in arrays",
        "number",
        before="in arrays ",
        is_kept=True,
        meaning="bytes of live arrays in the default memory of the device, shared buffers counted once",
    ),
    Column(
        "not in arrays",
        "number",
        before="not in arrays ",
        meaning="other bytes in use: executables, temporary values and fragmentation",
    ),
)
_ALWAYS_KNOWN = ("device", "in use", "in arrays")
"""Columns of memory without statistics: ``in use`` is then the reason why they are missing."""
_STATISTICS = (
    Column("name", is_kept=True, meaning="name that the allocator of the backend gives the figure"),
    Column("size", "number", meaning="the figure with a unit, if it is a number of bytes"),
    Column("size (raw)", "number", meaning="the figure as the allocator reports it"),
)
_BYTES_OF_BUFFERS = Column(
    "size", "number", head="per device", meaning="bytes of the buffers on each device of the row"
)
_BYTES_OF_EXECUTABLES = Column("size", "number", meaning="bytes of the executables of the line")
_PROFILE = (
    Column("count", "number", meaning="buffers or executables on each device of the row"),
    Column("device", before="on ", meaning="devices that the row is about"),
    Column("line", "text", meaning="allocation site of buffers; of executables, the line that compiled them"),
)
TABLES = {
    "devices": _KINDS,
    "device memory": _MEMORY,
    "memory stats": _STATISTICS,
    "buffers and executables by source line": (_BYTES_OF_BUFFERS, _BYTES_OF_EXECUTABLES, *_PROFILE),
}
"""Columns of each table, by its title."""


def memory_page(report: MemoryReport) -> Iterator[Block]:
    """Yield the table of a device's memory statistics, or a line with the reason why there are none."""
    if report.stats is None:
        reason = f": {reason_words(report.missing_reason)}" if report.missing_reason else ""
        yield Sentence(f"no memory statistics for {report.device}{reason}", "warning", hang=0)
        return

    def row(name: str, value: int | float | str) -> Row:
        # Counts are not sizes.
        is_size = isinstance(value, int) and not name.startswith("num_")
        return {"name": name, "size": format_bytes(int(value)) if is_size else "", "size (raw)": str(value)}

    allocations = "" if report.allocation_count is None else f"{report.allocation_count} allocs"
    rows = [row(name, value) for name, value in report.stats]
    yield Table(f"Memory Stats of {report.device}", _STATISTICS, [rows], subtitle=allocations)


def devices_page(report: DevicesReport, *, kinds: bool = False) -> Iterator[Block]:
    """Yield the memory of the fullest device in a line, then that of each device.

    Args:
        report: The devices.
        kinds: Whether to begin with a table of the kinds of devices, with equal devices in one row. The
            memory of each device then follows only if any device reports it.
    """
    if kinds:
        yield _kinds_table(report)
    if report.has_statistics or not kinds:
        yield Sentence(_memory_words(report), "answer", hang=0)
        columns = [column for column in _MEMORY if report.has_statistics or column.name in _ALWAYS_KNOWN]
        names = [column.name for column in _MEMORY]
        groupings = (
            [[name] for name in names],
            [[name] for name in names if name != "bar"],
            [["device"], ["in use", "peak", "limit"], ["in arrays", "not in arrays"]],
            [["device"], names[1:]],
        )
        yield Table("device memory", columns, [[*map(_memory_row, report.devices)]], groupings)


def _memory_words(report: DevicesReport) -> str:
    """Return the bytes in use on the device with the most; those in arrays if they are not known."""
    if not report.has_statistics:
        nbytes = max((device.array_nbytes or 0 for device in report.devices), default=0)
        return f"{format_bytes(nbytes)} in arrays on the fullest device; the memory in use is not known"
    most = max(report.devices, key=lambda device: -1 if device.bytes_in_use is None else device.bytes_in_use)
    used, limit = most.bytes_in_use or 0, most.bytes_limit
    share = f" of {format_bytes(limit)} ({percent_words(used, limit, decimals=0)})" if limit else ""
    return f"{format_bytes(used)}{share} in use on {most.name}, the fullest device"


def _memory_row(device: DeviceReport) -> Row:
    return {
        "device": device.name,
        "in use": _in_use(device),
        "peak": size_words(device.peak_bytes_in_use),
        "limit": size_words(device.bytes_limit),
        "bar": _bar(device),
        "in arrays": size_words(device.array_nbytes),
        "not in arrays": size_words(device.unexplained_nbytes),
    }


def _bar(device: DeviceReport) -> str:
    """Return a bar of memory in use and peak memory up to the limit; empty without a limit."""
    if device.bytes_in_use is None or not device.bytes_limit:
        return ""
    full, at_peak = (
        min(max(round(BAR_WIDTH * nbytes / device.bytes_limit), 0), BAR_WIDTH)
        for nbytes in (device.bytes_in_use, device.peak_bytes_in_use or 0)
    )
    reached = max(full, at_peak)
    return USED * full + REACHED * (reached - full) + FREE * (BAR_WIDTH - reached)


def _in_use(device: DeviceReport) -> str:
    return size_words(device.bytes_in_use, reason_words(device.missing_reason or "unknown"))


def _kinds_table(report: DevicesReport) -> Table:
    has_processes = len({device.process for device in report.devices}) > 1

    def cells(device: DeviceReport) -> tuple[str, ...]:
        process = f"{device.process}{' (this)' if device.is_local else ''}" if has_processes else ""
        # The default memory kind is the first.
        kinds = sorted(device.memory_kinds, key=lambda kind: kind != device.default_memory_kind)
        has_limit = device.bytes_in_use is not None and device.bytes_limit is not None
        limit = f" of {size_words(device.bytes_limit)}" if has_limit else ""
        return (device.kind, process, ", ".join(kinds), _in_use(device) + limit)

    alike = by_key(((device.platform, *cells(device)), device.name) for device in report.devices)
    names = [column.name for column in _KINDS]
    rows = [
        dict(zip(names, (folded_names(devices), *facts), strict=True))
        for (_, *facts), devices in alike.items()
    ]
    return Table("devices", _KINDS, [rows], ([[name] for name in names], [["device"], names[1:]]))


def folded_names(names: Iterable[str]) -> str:
    """Return the names of devices, with those that differ only in their numbers folded.

    >>> folded_names(["cpu:0", "cpu:1", "cpu:2", "cuda:0"])
    'cpu:0-2,cuda:0'
    """
    ids = by_key((name, number) for name, number, *_ in map(_NUMBER.split, names))
    return ",".join(
        name + format_device_ids([*map(int, filter(None, numbers))]) for name, numbers in ids.items()
    )


def memory_profile_page(report: MemoryProfileReport) -> Iterator[Block]:
    """Yield the tables of buffers and of executables by source line.

    Devices with the same bytes for a line share a row. The last rows of buffers are the total of each device.

    Args:
        report: The memory profile.
    """
    most = format_bytes(max((nbytes for nbytes, _ in report.devices_alike), default=0))
    answer = f"buffers take at most {most} per device" if "buffer" in report.lines else "no buffers"
    yield Sentence(answer, "answer", hang=0)
    totals: list[Row] = [
        {"size": format_bytes(nbytes), "device": folded_names(names), "line": "all lines"}
        for nbytes, names in report.devices_alike
    ]
    for kind, lines in sorted(report.lines.items(), key=lambda item: item[0] != "buffer"):
        yield _profile_table(kind, lines, totals if kind == "buffer" else [])


def _profile_table(kind: str, lines: Sequence[ProfileLine], totals: Sequence[Row]) -> Table:
    """Return the table of buffers, of executables or of what else the profile has, by source line."""
    has_devices = kind == "buffer" or any({*line.devices} != {"unknown"} for line in lines)

    def row(line: ProfileLine, words: str = "") -> Row:
        return {
            # An executable of size 0 is one whose size the backend does not report.
            "size": "?" if kind == "executable" and not line.nbytes else format_bytes(line.nbytes),
            "count": str(line.count),
            "device": folded_names(line.devices) if has_devices else "",
            "line": words or site_words(line.origin),
        }

    return Table(
        f"{kind}s by source line",
        (_BYTES_OF_BUFFERS if kind == "buffer" else _BYTES_OF_EXECUTABLES, *_PROFILE),
        [
            limited(
                lines, row, lambda others: row(lines_together(others), more(len(others), "line", "lines"))
            ),
            totals,
        ],
        ([["size"], ["count"], ["device"], ["line"]], [["size"], ["count"], ["line", "device"]]),
        breaks="words",
    )
