"""Lines and table for ``GrowthReport``: growing arrays, new and freed arrays, and bytes per device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table

from jax_array_info_core import format_bytes, format_devices
from jax_array_info_core.pages.folds import split_rows
from jax_array_info_core.reports import CollectedArrays, GrowthReport, OriginGrowth
from jax_array_info_core.reports.growth import collected_together, origins_together

from .. import style
from .words import NO_ALLOCATION_SITES, SEARCH_INCOMPLETE, folding_table, site_words

_SIZES = "Sizes are the maximum per device."


def growth_table(report: GrowthReport, *, max_rows: int | None = 100) -> RenderableType:
    """Return the arrays that rose from step to step, then the table of new and freed arrays.

    Args:
        report: The growth since a tracker was entered.
        max_rows: Maximum number of allocation sites in each part: rising arrays, new and freed arrays,
            collected arrays. One more line has the rest. None shows all.
    """
    risen = [growth for growth in report.origins if growth.rose]
    still = [growth for growth in risen if growth.stopped_at is None]
    parts: list[RenderableType] = [
        style.written(text, look=style.WARNING) for text in _rises(report, still, max_rows)
    ]
    if not parts:
        parts.append(style.written(_no_rise(report), look="bold"))
    stopped = [growth for growth in risen if growth.stopped_at is not None]
    parts += map(style.written, _stopped(report, stopped, max_rows))
    changed = [growth for growth in report.origins if growth.count or growth.freed_count]
    if changed:
        parts.append(_table(report, changed, max_rows))
    parts += map(style.written, _sums(report))
    parts += map(style.written, _collection(report, max_rows))
    if report.freed_by_collection and not changed and len(report.nbytes) > 1:
        parts.append(style.written(_SIZES))
    return Group(*parts)


def _table(report: GrowthReport, changed: list[OriginGrowth], max_rows: int | None) -> Table:
    """Return the table of new and freed arrays by allocation site."""
    after = f" after {_many(report.steps, 'step')}" if report.steps else ""
    is_known = report.origins_known == "known"
    origin_column = ["made at"] if is_known else []
    columns = (">new", ">new size", ">freed", ">freed size", "largest", *origin_column)
    table = folding_table(f"new and freed jax arrays{after}", columns)
    notes = []
    if len(report.nbytes) > 1:
        notes.append(_SIZES)
    if not is_known:
        notes.append(NO_ALLOCATION_SITES)
    table.caption = "\n".join(notes) or None
    shown, rest = split_rows(changed, max_rows)
    for growth in shown:
        words = [growth.content or "", *([_site(growth)] if is_known else [])]
        table.add_row(
            *_numbers(growth.count, growth.nbytes),
            *_numbers(growth.freed_count, growth.freed_nbytes),
            *map(style.written, words),
        )
    if rest:
        left = origins_together(rest)
        table.add_row(
            *_numbers(left.count, left.nbytes),
            *_numbers(left.freed_count, left.freed_nbytes),
            f"{len(rest)} more",
        )
    return table


def _numbers(count: int, nbytes: int) -> tuple[str, str]:
    return (str(count), format_bytes(nbytes)) if count else ("", "")


def _rises(report: GrowthReport, risen: Sequence[OriginGrowth], max_rows: int | None) -> Iterator[str]:
    """Yield the rise of arrays: those that rose at every step, then those that rose at several."""
    devices = len(report.nbytes)
    shown, rest = split_rows(risen, max_rows)
    for growth in shown:
        if growth.rose_every_step:
            yield f"{_per_step(growth, devices)}, {_risen(growth)}"
        else:
            times = f"in {growth.rose_steps} of {_many(report.steps, 'step')}"
            yield f"{_amount(growth.rose_count, growth.rose_nbytes, devices)} {times}, {_risen(growth)}"
    if always := [growth for growth in rest if growth.rose_every_step]:
        yield f"{_per_step(origins_together(always), devices)}, {_lines(always)}"
    if at_times := [growth for growth in rest if not growth.rose_every_step]:
        left = origins_together(at_times)
        times = f"in some of {_many(report.steps, 'step')}"
        yield f"{_amount(left.rose_count, left.rose_nbytes, devices)} {times}, {_lines(at_times)}"


def _stopped(report: GrowthReport, stopped: Sequence[OriginGrowth], max_rows: int | None) -> Iterator[str]:
    """Yield the rise of arrays that rose no more after some step."""
    shown, rest = split_rows(stopped, max_rows)
    for growth in shown:
        amount = _amount(growth.rose_count, growth.rose_nbytes, len(report.nbytes))
        yield f"no growth since step {growth.stopped_at}, {amount} until then, {_risen(growth)}"
    if rest:
        left = origins_together(rest)
        amount = _amount(left.rose_count, left.rose_nbytes, len(report.nbytes))
        yield f"no growth any more: {amount} before, {_lines(rest)}"


def _no_rise(report: GrowthReport) -> str:
    """Return that nothing rose, or what is missing to know it: a trend needs two steps."""
    if report.steps > 1:
        return f"no steady growth in {report.steps} steps"
    after = " after 1 step" if report.steps else ""
    return f"growth per step: unknown{after}; call .step() on the tracker at the end of each step"


def _risen(growth: OriginGrowth) -> str:
    """Return the allocation site, dtype and shape of rising arrays."""
    if growth.origin is None:
        return f"{growth.rose_content or growth.content or 'arrays'}, allocation site unknown"
    content = f": {growth.rose_content}" if growth.rose_content else ""
    return f"made at {_site(growth)}{content}"


def _site(arrays: OriginGrowth | CollectedArrays) -> str:
    """Return the allocation site, the line that called it for most arrays, and the number of other ones."""
    more = f" and {_many(arrays.caller_count - 1, 'more caller')}" if arrays.caller_count > 1 else ""
    return site_words(arrays.origin) + more


def _lines(risen: Sequence[OriginGrowth]) -> str:
    return f"made at {_many(len({str(growth.origin) for growth in risen}), 'more line')}"


def _per_step(growth: OriginGrowth, devices: int) -> str:
    """Return the rise per step as ``+1 array, +1.5 GiB per step``."""
    return f"{_amount(growth.count_per_step or 0, growth.nbytes_per_step or 0, devices)} per step"


def _amount(count: float, nbytes: float, devices: int) -> str:
    """Return a rise as ``+1 array, +1.5 GiB (sum over 8 devices)``."""
    count, nbytes = round(count, 1), round(nbytes)
    amounts = []
    if count:
        number = f"{count:+.1f}".removesuffix(".0")
        amounts.append(f"{number} array{'' if abs(count) == 1 else 's'}")
    if nbytes:
        total = f" (sum over {devices} devices)" if devices > 1 else ""
        amounts.append(f"{'+' if nbytes > 0 else ''}{format_bytes(nbytes)}{total}")
    return ", ".join(amounts)


def _sums(report: GrowthReport) -> Iterator[str]:
    """Yield the number of live arrays, and the bytes per device, with equal devices in one line."""
    new = f"{report.new_count} new array{'' if report.new_count == 1 else 's'}"
    yield f"{new}, {report.freed_count} freed, {report.count} alive, {report.count_before} at the start"
    if report.view_count:
        shares = "it shares" if report.view_count == 1 else "they share"
        yield f"{_many(report.view_count, 'view')} not counted: {shares} the memory of other arrays"
    for place, growth in (("", report.device_growth), (" in host memory", report.host_growth)):
        for devices, nbytes, more in growth:
            each = " each" if len(devices) > 1 else ""
            amount = f"{format_bytes(nbytes)}{each}{place}"
            yield f"{format_devices(report.platform, devices)}: {amount}, {_difference(more)}"
    if report.is_shared:
        yield "Shared buffers are counted once per array above, and once per device here."


def _difference(nbytes: int) -> str:
    if not nbytes:
        return "same as at the start"
    return f"{format_bytes(abs(nbytes))} {'more' if nbytes > 0 else 'less'} than at the start"


def _collection(report: GrowthReport, max_rows: int | None) -> Iterator[str]:
    """Yield the arrays that the garbage collector freed, if it was run."""
    if not report.collected:
        return
    freed = report.freed_by_collection
    if freed:
        number = _many(collected_together(freed).count, "array")
        yield f"gc.collect() freed {number} that reference counting had not:"
    else:
        yield "gc.collect() freed no arrays"
    shown, rest = split_rows(freed, max_rows)
    for arrays in shown:
        yield f"  {_collected(arrays)}"
    if rest:
        left = collected_together(rest)
        yield f"  {len(rest)} more: {_many(left.count, 'array')}, {format_bytes(left.nbytes)}"
    if freed and report.cycles == "incomplete":
        yield SEARCH_INCOMPLETE.format("reference cycles")


def _collected(arrays: CollectedArrays) -> str:
    size = f"{_many(arrays.count, 'array')}, {format_bytes(arrays.nbytes)}, {arrays.content}"
    made = "" if arrays.origin is None else f", made at {_site(arrays)}"
    cycle = "" if arrays.cycle is None else f", in the reference cycle {arrays.cycle}"
    return f"{size}{made}{cycle}"


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
