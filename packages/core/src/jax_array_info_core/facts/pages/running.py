"""The page of the memory of a running job: devices, the largest allocation sites with their trend, marks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import Literal, TypeAlias

from ...base.quantities import counted, format_bytes, percent_words, time_words
from ...base.text import that_apply
from ..reports import TimelineReport
from ..reports.timeline import TimelineSeries
from ..reports.timeline_process import TimelineDevice, TimelineProcess
from .blocks import Block, Entries, Limited, Listing, Look, Sentence, more
from .words import site_words, size_words

Sort = Literal["bytes", "trend", "name"]
"""Order of the allocation sites: the most bytes, the largest change per minute, or the name."""
SORTS: tuple[Sort, ...] = ("bytes", "trend", "name")

_Pair: TypeAlias = "tuple[TimelineProcess, TimelineDevice]"
_LONGEST_FOLDER = 40
"""Longest path in characters that is named whole; of others, the last folder is."""


def running_page(report: TimelineReport, *, sort: Sort = "bytes") -> Iterator[Listing]:
    """Yield the states of the processes, the devices, the marks, what went wrong, and the allocation sites.

    Args:
        report: The last minute of a record.
        sort: Order of the allocation sites.
    """
    name = report.folder
    if len(name) > _LONGEST_FOLDER:
        name = PurePath(name).name or name
    yield Sentence(f"{name}: {_states_words(report)}, at {time_words(report.read_at)}", "answer", hang=0)
    if report.standing:
        yield Sentence(report.standing, "alarm", hang=0)
    yield from _devices(report)
    if report.marks:
        yield Sentence(_marks_words(report))
    yield Limited(
        [*_notices(report)],
        lambda notices: (Sentence(words, look) for words, look in notices),
        lambda notices: [Sentence(f"{len(notices)} more of such lines", "aside")],
    )
    ranked = [series for series in _sorted_series(report.series, sort) if series.nbytes[-1]]
    if subject := _subject_words(report):
        yield Sentence(subject if ranked else f"{subject}: none", "answer")
    yield _sites(ranked)


def _devices(report: TimelineReport) -> Iterator[Listing]:
    """Yield a line for each device; of too many, the fullest and the range of the others."""
    pairs = [(process, device) for process in report.processes for device in process.devices]
    largest = max((device.peak_nbytes for _, device in pairs), default=0) or 1
    has_hosts = len({process.host_name for process in report.processes}) > 1
    only_arrays = all(process.in_use_source == "arrays" for process in report.processes)

    def share(device: TimelineDevice) -> float:
        return device.bytes_in_use / (device.bytes_limit or largest)

    def entry(pair: _Pair) -> Sequence[str]:
        process, device = pair
        used, most = device.bytes_in_use, device.bytes_limit
        limit = f"{percent_words(used, most, decimals=0)} of {format_bytes(most)}" if most else ""
        host = process.host_name if has_hosts else ""
        return (
            size_words(device.bytes_in_use),
            _device_name(report, *pair),
            limit,
            f"{process.peak_name} {size_words(device.peak_nbytes)}",
            host,
        )

    def rest(others: Sequence[_Pair]) -> list[Block]:
        least, most = (form(device.bytes_in_use for _, device in others) for form in (min, max))
        start = "" if least == most else f"{format_bytes(least)} to "
        words = f"{more(len(others), 'device', 'devices')}, {start}{format_bytes(most)}"
        return [Sentence(words, "aside", indent=2)]

    yield Sentence(f"bytes in {'arrays' if only_arrays else 'use'} on each device:", "aside")
    yield Limited(
        pairs,
        lambda shown: [Entries([*map(entry, shown)], in_columns=True)] if shown else [],
        rest,
        largest=lambda: sorted(pairs, key=lambda pair: share(pair[1]), reverse=True),
    )


def _device_name(report: TimelineReport, process: TimelineProcess, device: TimelineDevice) -> str:
    """Return the name of a device, with its process where there are several."""
    run = f" run {process.run}" if process.run_count > 1 else ""
    return device.name if len(report.processes) == 1 else f"{process.process}{run} {device.name}"


def _sites(ranked: Sequence[TimelineSeries]) -> Listing:
    """Return a line for each allocation site on the device of the timeline."""

    def entry(series: TimelineSeries) -> Sequence[str]:
        count = "" if series.count is None else counted(series.count, "array", "arrays")
        change = _change_words(series.nbytes_per_minute)
        return size_words(series.nbytes[-1]), _series_words(series), change and f"{change} per minute", count

    def rest(others: Sequence[TimelineSeries]) -> list[Block]:
        nbytes = format_bytes(sum(series.nbytes[-1] for series in others))
        return [Sentence(f"{more(len(others), 'row', 'rows')}, {nbytes}", "aside", indent=2)]

    return Limited(
        ranked, lambda shown: [Entries([*map(entry, shown)], in_columns=True)] if shown else [], rest
    )


def _sorted_series(series: Sequence[TimelineSeries], sort: Sort) -> list[TimelineSeries]:
    """Return the allocation sites in some order, then the other arrays and the rest."""
    orders: dict[Sort, Callable[[TimelineSeries], float | str]] = {
        "bytes": lambda line: -line.nbytes[-1],
        "trend": lambda line: -(line.nbytes_per_minute or 0.0),
        "name": _series_words,
    }
    by_bytes = sorted((line for line in series if line.kind == "origin"), key=orders["bytes"])
    return [*sorted(by_bytes, key=orders[sort]), *(line for line in series if line.kind != "origin")]


def _series_words(series: TimelineSeries) -> str:
    """Return the allocation site, and the dtype and shape if it has one."""
    if series.kind != "origin":
        return series.kind if series.kind == "other arrays" else "not in arrays"
    words = "" if series.origin is None and series.content else site_words(series.origin)
    return "  ".join(filter(None, (words, series.content)))


def _change_words(change: float | None) -> str:
    """Return a change with its sign: ``+1.0 MiB``; nothing for none."""
    if change is None or not round(change):
        return ""
    return f"{'+' if change > 0 else '-'}{format_bytes(round(abs(change)))}"


_STATES: dict[str, str] = {"gone": "died", "raised": "failed"}


def _states_words(report: TimelineReport) -> str:
    """Return the number of processes in each state: ``8 processes on 2 hosts, 7 running, 1 died``."""
    states = Counter(_STATES.get(process.state, process.state) for process in report.processes)
    recorded = len({process.process for process in report.processes})
    if unrecorded := report.process_count - recorded:
        states["without a record"] = max(unrecorded, 0)
    hosts = len({process.host_name for process in report.processes})
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
    owner = f" of {process.name}" if len(report.processes) > 1 else ""
    parts = that_apply(
        (True, f"arrays on {device.name}{owner}"),
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
    return f"marks: {'; '.join(words)}"


def _notices(report: TimelineReport) -> Iterator[tuple[str, Look]]:
    """Yield each allocation that failed, process that ended and file that could not be read, with a look."""
    names = {(process.process, process.run): process.name for process in report.processes}
    for error in report.out_of_memory:
        name = names.get((error.process, error.run), f"process {error.process}")
        size = f", {format_bytes(error.requested_nbytes)} requested" if error.requested_nbytes else ""
        yield f"{name} ran out of memory at {time_words(error.time)}{size}", "warning"
    for process in report.processes:
        if process.state != "running":
            place = "" if process.run_count > 1 else f" (process id {process.pid} on {process.host_name})"
            message = f": {process.message}" if process.message else ""
            is_wrong = process.state not in ("stopped", "exited")
            words = f"{process.name} {_ended_words(process)} {time_words(process.end)}{place}{message}"
            yield words, "warning" if is_wrong else ""
    for unread in report.unread:
        yield f"{unread.name}: {unread.reason}", "warning"


def _ended_words(process: TimelineProcess) -> str:
    """Return how a process ended, up to the time."""
    return {
        "not heard from": "was last heard from at",
        "gone": "was killed or crashed after",
        "stopped": "stopped recording at",
        "exited": "exited at",
        "raised": "ended with an exception at",
    }[process.state]
