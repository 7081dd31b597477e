"""The memory of a running job on one screen: devices, the largest allocation sites and their trend, marks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from textwrap import wrap
from typing import Literal

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions
from rich.text import Text

from jax_array_info_core.base.quantities import counted, format_bytes, grouped, time_words
from jax_array_info_core.base.text import clipped, printable
from jax_array_info_core.facts.pages.blocks import that_apply
from jax_array_info_core.facts.pages.words import site_words, size_words
from jax_array_info_core.facts.reports.timeline import TimelineSeries
from jax_array_info_core.facts.reports.timeline_process import TimelineDevice, TimelineProcess
from jax_array_info_core.reports import TimelineReport

from .. import style

Sort = Literal["bytes", "trend", "name"]
"""Order of the allocation sites."""
SORTS: tuple[Sort, ...] = ("bytes", "trend", "name")

MOST_DEVICES = 32
"""Maximum number of devices on a page of any height."""
_GAP = "  "
_LEAST_BAR, _MOST_BAR = 8, 40
_LEAST_LINE = 16
_MOST_STANDING = 4
"""Maximum number of lines on where processes stand."""
_SPARK = 12
"""Number of columns of a sparkline."""
_LEVELS, _ASCII_LEVELS = "▁▂▃▄▅▆▇█", "_.-~=+*#"
_HIGH, _FULL = 0.75, 0.9
"""Part of the limit from which a device is drawn as rather full, and as full."""


def top_table(
    report: TimelineReport,
    *,
    width: int = 80,
    height: int | None = None,
    use_color: bool = False,
    sort: Sort = "bytes",
    keys: str = "",
) -> style.ForConsole:
    """Return the devices, the largest allocation sites with their trend, the marks and what went wrong.

    Args:
        report: The last minute of a record.
        width: Maximum line length in characters.
        height: Maximum number of lines. None has a line for each allocation site, and for at most 32 devices.
        use_color: Whether to fill the bars.
        sort: Order of the allocation sites: the most bytes, the largest change per minute, or the name.
        keys: Last line.
    """

    def make(_: Console, options: ConsoleOptions) -> Text:
        page = _Page(width, options.encoding, use_color)
        lines = page.lines(report, height, sort, keys)
        return Text("\n", no_wrap=True, overflow="crop").join(lines)

    return style.ForConsole(make)


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a table. The first that may be left out at a small width has the highest rank."""

    head: str
    cells: Sequence[Text]
    is_number: bool = False
    rank: int = 0
    """0 for a column that is never left out."""

    @property
    def width(self) -> int:
        return max(map(cell_len, (self.head, *(cell.plain for cell in self.cells))))


@dataclass(frozen=True, slots=True)
class _Page:
    """Lines of a width, in an encoding."""

    width: int
    encoding: str
    use_color: bool

    def lines(self, report: TimelineReport, height: int | None, sort: Sort, keys: str) -> list[Text]:
        """Return the lines, at most ``height``."""
        notices = list(_notices(report))
        marks = _marks_words(report)
        standing = wrap(self._safe(report.standing), max(self.width, _LEAST_LINE))
        standing = standing[: _MOST_STANDING if height is None else max(height // 8, 1)]
        footer = [self._line(keys, style.ASIDE)] if keys else []
        room = 10**6 if height is None else max(height - 1 - bool(marks) - len(standing) - len(footer), 0)
        most_notices = len(notices) if height is None else min(len(notices), max(room // 6, 1))
        room -= most_notices + 3  # the heads of the two tables, and the line between them
        device_count = sum(len(one.devices) for one in report.processes)
        site_count = len(report.series)
        most_devices = MOST_DEVICES if height is None else max(room - site_count, room // 2, 1)
        devices = self._devices(report, min(most_devices, device_count))
        sites = self._sites(report, sort, max(room - (len(devices) - 1), 0))
        above = [
            self._title(report),
            *(self._line(words, style.WARNING) for words in standing),
            *devices,
            *([self._line(marks)] if marks else []),
            *self._few(notices, most_notices),
        ]
        below = [self._line(_subject_words(report), "bold"), *sites]
        if height is None:
            return [*above, self._line(""), *below, *footer]
        empty = [self._line("")] * (height - len(above) - len(below) - len(footer))
        body = [*above, *empty[:1], *below, *empty[1:]]
        return [*body[: height - len(footer)], *footer][:height]

    def _title(self, report: TimelineReport) -> Text:
        """Return the folder and the states of the processes, and the time at the right."""
        at = time_words(report.read_at)
        room = max(self.width - len(at) - len(_GAP), 0)
        states = _states_words(report)
        words = f"{report.folder}: {states}"
        if cell_len(self._safe(words)) > room:  # the last folder, which tells more than the first
            words = f"{PurePath(report.folder).name or report.folder}: {states}"
        return self._line(set_cell_size(self._cut(self._safe(words), room), room) + _GAP + at, "bold")

    def _few(self, notices: Sequence[tuple[str, str]], most: int) -> Iterator[Text]:
        """Yield the first notices, each in a line."""
        if len(notices) > most:
            rest = len(notices) - most + 1
            notices = [*notices[: most - 1], (f"{rest} more of such lines", style.ASIDE)] if most else []
        for words, look in notices:
            yield self._line(words, look)

    # Devices.

    def _devices(self, report: TimelineReport, most: int) -> list[Text]:
        """Return the head and a line for each device; of too many, the fullest and the range of others."""
        pairs = [(process, device) for process in report.processes for device in process.devices]
        largest = max((device.peak_nbytes for _, device in pairs), default=0)
        shown, rest = pairs, pairs[:0]
        if len(pairs) > most:
            ranked = sorted(pairs, key=lambda pair: -_share(pair[1], largest))
            shown, rest = ranked[: max(most - 1, 1)], ranked[max(most - 1, 1) :]
        only_arrays = all(process.in_use_source == "arrays" for process, _ in shown)
        in_use = "in arrays" if only_arrays else "in use"
        has_limit = any(device.bytes_limit for _, device in shown)
        columns = [
            _Column("device", [self._device_name(report, *pair) for pair in shown]),
            _Column(in_use, [Text(size_words(device.bytes_in_use)) for _, device in shown], True),
            _Column("peak", [Text(size_words(device.peak_nbytes)) for _, device in shown], True, rank=2),
        ]
        if has_limit:
            limits = [Text(size_words(device.bytes_limit)) for _, device in shown]
            shares = [
                Text(f"{_share(device, largest):.0%}" if device.bytes_limit else "") for _, device in shown
            ]
            columns += [
                _Column("limit", limits, True, rank=3),
                _Column("", shares, True, rank=1),
            ]
        if len({process.host_name for process in report.processes}) > 1:
            hosts = [self._text(process.host_name) for process, _ in shown]
            columns.append(_Column("host", hosts, rank=4))

        def bar(place: int, width: int) -> Text:
            return self._bar(shown[place][1], largest, width)

        lines = self._table(columns, 1, "", bar, len(shown), _LEAST_BAR, _MOST_BAR)
        if rest:
            least, high = (form(device.bytes_in_use for _, device in rest) for form in (min, max))
            mark = style.marks(self.encoding).skipped_rows
            of = "" if least == high else f"{format_bytes(least)} to "
            words = (
                f"{mark} {counted(len(rest), 'more device', 'more devices')}, {of}{format_bytes(high)} in use"
            )
            lines.append(self._line(words, style.ASIDE) if len(lines) <= most else lines.pop())
        return lines

    def _device_name(self, report: TimelineReport, process: TimelineProcess, device: TimelineDevice) -> Text:
        """Return the name of a device, with its process; that of the timeline is bold."""
        run = f" run {process.run}" if process.run_count > 1 else ""
        name = device.name if len(report.processes) == 1 else f"{process.process}{run} {device.name}"
        is_chosen = (process.process, process.run, device.id) == (report.process, report.run, report.device)
        return self._text(name, "bold" if is_chosen else "")

    def _bar(self, device: TimelineDevice, largest: int, width: int) -> Text:
        """Return a bar of the bytes in use and the peak, up to the limit, else to the largest peak."""
        limit = device.bytes_limit or largest or 1
        full, at_peak = (
            min(round(width * nbytes / limit), width) for nbytes in (device.bytes_in_use, device.peak_nbytes)
        )
        used, reached, free = style.marks(self.encoding).bar
        share = _share(device, largest) if device.bytes_limit else 0
        look = "red" if share >= _FULL else "yellow" if share >= _HIGH else "green"
        bar = Text(used * full, look if self.use_color else "")
        bar.append(reached * max(at_peak - full, 0))
        return bar.append(free * (width - max(full, at_peak)), style.ASIDE if self.use_color else "")

    # Allocation sites.

    def _sites(self, report: TimelineReport, sort: Sort, most: int) -> Sequence[Text]:
        """Return the head and a line for each allocation site on the device of the timeline."""
        ranked = [one for one in _sorted_series(report.series, sort) if one.nbytes[-1]]
        shown = ranked if len(ranked) <= most else ranked[: max(most - 1, 0)]
        trends = [_per_minute_words(one.nbytes_per_minute) for one in shown]
        columns = [
            _Column("in use", [Text(size_words(one.nbytes[-1])) for one in shown], True),
            _Column(
                "arrays", [Text("" if one.count is None else grouped(one.count)) for one in shown], True, 2
            ),
            _Column("per minute", [Text(trend) for trend in trends], True, 1),
        ]
        columns.append(_Column("last minute", [self._spark(one.nbytes) for one in shown], rank=3))

        def line(place: int, width: int) -> Text:
            look = style.ASIDE if shown[place].kind != "origin" else ""
            return Text(self._cut(self._safe(_series_words(shown[place])), width), look)

        lines = self._table(
            columns, len(columns), "allocation site", line, len(shown), _LEAST_LINE, self.width
        )
        if len(shown) < len(ranked) and most:
            rest = len(ranked) - len(shown)
            mark = style.marks(self.encoding).skipped_rows
            lines.append(self._line(f"{mark} {counted(rest, 'more row', 'more rows')}", style.ASIDE))
        return lines

    def _spark(self, values: Sequence[int]) -> Text:
        """Return a line of blocks, from the least to the largest value: the largest in each column."""
        least, spread = min(values), max(values) - min(values)
        levels = _LEVELS if self.encoding.lower().startswith("utf") else _ASCII_LEVELS
        count = min(_SPARK, len(values))
        bounds = [place * len(values) // count for place in range(count + 1)]
        highest = (max(values[start:stop]) for start, stop in pairwise(bounds))
        top = len(levels) - 1
        return Text("".join(levels[(value - least) * top // spread if spread else 0] for value in highest))

    # Lines.

    def _table(
        self,
        columns: Sequence[_Column],
        place: int,
        head: str,
        draw: Callable[[int, int], Text],
        count: int,
        least: int,
        most: int,
    ) -> list[Text]:
        """Return the head and the rows of a table.

        Args:
            columns: Columns of a fixed width. Those of the highest ranks are left out if there is no room.
            place: Number of columns before the one that takes the rest of the width.
            head: Head of this column.
            draw: Function of the row and the width that returns a cell of this column.
            count: Number of rows.
            least: Least width of this column.
            most: Maximum width of this column.
        """
        shown = [(number, column) for number, column in enumerate(columns)]

        def room() -> int:
            return self.width - sum(column.width + len(_GAP) for _, column in shown)

        while room() < least and any(column.rank for _, column in shown):
            shown.remove(max(shown, key=lambda pair: pair[1].rank))
        width = max(min(room(), most), 0)
        before = sum(number < place for number, _ in shown)
        lines = []
        for row in range(-1, count):
            cells = [
                self._aligned(Text(column.head) if row < 0 else column.cells[row], column)
                for _, column in shown
            ]
            flexible = Text(self._cut(self._safe(head), width)) if row < 0 else draw(row, width)
            flexible.append(" " * (width - cell_len(flexible.plain)))
            cells.insert(before, flexible)
            line = Text(_GAP).join(cell for cell in cells if cell.plain)
            line.truncate(self.width)
            lines.append(Text.assemble(line, style="bold underline") if row < 0 else line)
        return lines

    def _aligned(self, cell: Text, column: _Column) -> Text:
        blank = " " * (column.width - cell_len(cell.plain))
        return Text.assemble(blank, cell) if column.is_number else Text.assemble(cell, blank)

    def _line(self, words: str, look: str = "") -> Text:
        """Return a text of one line, cut at its end."""
        return Text(self._cut(self._safe(words), self.width), look)

    def _cut(self, words: str, width: int) -> str:
        """Return a text that is printable in a width."""
        if cell_len(words) <= width:
            return words
        dots = style.marks(self.encoding).skipped_columns
        return set_cell_size(words, max(width - len(dots), 0)) + dots[:width]

    def _safe(self, words: str) -> str:
        return printable(clipped(words), self.encoding)

    def _text(self, words: str, look: str = "") -> Text:
        return Text(self._safe(words), look)


def _share(device: TimelineDevice, largest: int) -> float:
    """Return the part of the limit that is in use; without a limit, of the largest peak."""
    return device.bytes_in_use / (device.bytes_limit or largest or 1)


def _sorted_series(series: Sequence[TimelineSeries], sort: Sort) -> list[TimelineSeries]:
    """Return the allocation sites in some order, then the other arrays and the rest."""
    orders: dict[Sort, Callable[[TimelineSeries], float | str]] = {
        "bytes": lambda one: -one.nbytes[-1],
        "trend": lambda one: -(one.nbytes_per_minute or 0.0),
        "name": _series_words,
    }
    by_bytes = sorted((one for one in series if one.kind == "origin"), key=orders["bytes"])
    return [*sorted(by_bytes, key=orders[sort]), *(one for one in series if one.kind != "origin")]


def _series_words(series: TimelineSeries) -> str:
    """Return the allocation site, and the dtype and shape if it has one."""
    if series.kind != "origin":
        return series.kind if series.kind == "other arrays" else "not in arrays"
    words = "" if series.origin is None and series.content else site_words(series.origin)
    return _GAP.join(filter(None, (words, series.content)))


def _per_minute_words(change: float | None) -> str:
    """Return a change with its sign: ``+1.0 MiB``; nothing for none."""
    if change is None or not round(change):
        return ""
    return f"{'+' if change > 0 else '-'}{format_bytes(round(abs(change)))}"


_STATES: dict[str, str] = {"gone": "died", "raised": "failed"}


def _states_words(report: TimelineReport) -> str:
    """Return the number of processes in each state: ``8 processes on 2 hosts, 7 running, 1 died``."""
    states = Counter(_STATES.get(one.state, one.state) for one in report.processes)
    recorded = len({one.process for one in report.processes})
    if unrecorded := report.process_count - recorded:
        states["without a record"] = max(unrecorded, 0)
    hosts = len({one.host_name for one in report.processes})
    parts = that_apply(
        (True, counted(report.process_count, "process", "processes")),
        (recorded < len(report.processes), f"in {len(report.processes)} runs"),
        (hosts > 1, f"on {hosts} hosts"),
    )
    words = " ".join(parts)
    if len(report.processes) == report.process_count == 1:
        return f"{words}, {next(iter(states))}"
    if len(states) == 1:
        return f"{words}, all {next(iter(states))}"
    return ", ".join([words, *(f"{count} {state}" for state, count in states.items() if count)])


def _subject_words(report: TimelineReport) -> str:
    """Return the device of the timeline, and the step and the mark of its process."""
    process, device = report.chosen, report.chosen_device
    if process is None or device is None:
        return ""
    of = f" of {process.name}" if len(report.processes) > 1 else ""
    parts = that_apply(
        (True, f"arrays on {device.name}{of}"),
        (process.step is not None, f"step {process.step}"),
        (process.mark is not None, f"in {process.mark}"),
    )
    return ", ".join(parts)


def _marks_words(report: TimelineReport) -> str:
    """Return the marks of the last minute, the latest first: ``marks: eval 2 times, +1.0 GiB``."""
    latest = sorted(report.marks, key=lambda mark: -max(mark.times, default=0.0))
    words = [
        f"{mark.name} {'once' if mark.count == 1 else f'{mark.count} times'}"
        f"{f', +{format_bytes(added)}' if (added := mark.added_nbytes or 0) > 0 else ''}"
        f"{f', at {time_words(mark.times[-1])}' if mark.times else ''}"
        for mark in latest
    ]
    return f"marks: {'; '.join(words)}" if words else ""


def _notices(report: TimelineReport) -> Iterator[tuple[str, str]]:
    """Yield each allocation that failed, process that ended and file that could not be read, with a style."""
    names = {(one.process, one.run): one.name for one in report.processes}
    for error in report.out_of_memory:
        name = names.get((error.process, error.run), f"process {error.process}")
        size = f", {format_bytes(error.requested_nbytes)} requested" if error.requested_nbytes else ""
        yield f"{name} ran out of memory at {time_words(error.time)}{size}", style.WARNING
    for process in report.processes:
        if process.state != "running":
            of = "" if process.run_count > 1 else f" (process id {process.pid} on {process.host_name})"
            message = f": {process.message}" if process.message else ""
            look = "" if process.state in ("stopped", "exited") else style.WARNING
            yield (
                f"{process.name} {_ended_words(process)} {time_words(process.end)}{of}{message}",
                look,
            )
    for unread in report.unread:
        yield f"{unread.name}: {unread.reason}", style.WARNING


def _ended_words(process: TimelineProcess) -> str:
    """Return how a process ended, up to the time."""
    return {
        "not heard from": "was last heard from at",
        "gone": "was killed or crashed after",
        "stopped": "stopped recording at",
        "exited": "exited at",
        "raised": "ended with an exception at",
    }[process.state]
