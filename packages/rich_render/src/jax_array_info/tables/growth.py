"""GrowthReport → what rose from step to step, a table of what is new and freed, and what that takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table

from jax_array_info_core import CollectedArrays, GrowthReport, OriginGrowth, format_bytes, format_devices
from jax_array_info_core.reports.growth import fullest_nbytes
from jax_array_info_core.reports.live_totals import UNKNOWN

from .. import style
from .rows import split_rows


def growth_table(report: GrowthReport, *, max_rows: int | None = 100) -> RenderableType:
    """Return what has come and gone, what rose from step to step first.

    Args:
        report: What has come and gone.
        max_rows: How many lines of code to tell of what rose, of what is new or freed, and of what the
            collector has freed; what is left of each is one line more. None for all.
    """
    parts: list[RenderableType] = [
        style.written(text, look=style.WARNING) for text in _rises(report, max_rows)
    ]
    changed = [growth for growth in report.origins if growth.count or growth.freed_count]
    if changed:
        parts.append(_table(report, changed, max_rows))
    parts += map(style.written, _sums(report))
    parts += map(style.written, _collection(report, max_rows))
    return Group(*parts)


def _table(report: GrowthReport, changed: list[OriginGrowth], max_rows: int | None) -> Table:
    """Return the table of lines whose arrays are new or freed."""
    after = f" after {_many(report.steps, 'step')}" if report.steps else ""
    table = Table(title=f"new and freed jax arrays{after}")
    for name in ("new", "size", "freed", "size"):
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("largest", overflow="fold")
    is_known = report.origins_known == "known"
    if is_known:
        table.add_column("made at", overflow="fold")
    else:
        table.caption = "this jax does not tell who made an array"
    shown, rest = split_rows(changed, max_rows)
    for growth in shown:
        words = [growth.content or "", *([str(growth.origin or UNKNOWN)] if is_known else [])]
        table.add_row(
            *_numbers(growth.count, growth.nbytes),
            *_numbers(growth.freed_count, growth.freed_nbytes),
            *map(style.written, words),
        )
    if rest:
        new = fullest_nbytes(*(growth.device_nbytes for growth in rest))
        freed = fullest_nbytes(*(growth.freed_device_nbytes for growth in rest))
        table.add_row(
            *_numbers(sum(growth.count for growth in rest), new),
            *_numbers(sum(growth.freed_count for growth in rest), freed),
            f"{len(rest)} more",
        )
    return table


def _numbers(count: int, nbytes: int) -> tuple[str, str]:
    return (str(count), format_bytes(nbytes)) if count else ("", "")


def _rises(report: GrowthReport, max_rows: int | None) -> Iterator[str]:
    """Yield by how much arrays have risen: those that rose at every step, then those that rose at several."""
    shown, rest = split_rows([growth for growth in report.origins if growth.rose], max_rows)
    for growth in shown:
        if growth.rose_every_step:
            yield f"{_per_step([growth])}, {_risen(growth)}"
        else:
            times = f"in {growth.rose_steps} of {_many(report.steps, 'step')}"
            yield f"{_amount(growth.rose_count, growth.rose_nbytes)} {times}, {_risen(growth)}"
    always = [growth for growth in rest if growth.rose_every_step]
    if always:
        yield f"{_per_step(always)}, {_lines(always)}"
    at_times = [growth for growth in rest if not growth.rose_every_step]
    if at_times:
        count = sum(growth.rose_count for growth in at_times)
        nbytes = sum(growth.rose_nbytes for growth in at_times)
        yield f"{_amount(count, nbytes)} in some of {_many(report.steps, 'step')}, {_lines(at_times)}"


def _risen(growth: OriginGrowth) -> str:
    """Return what has risen, and where it was made."""
    if growth.origin is None:
        return f"{growth.rose_content or growth.content or 'arrays'} of unknown origin"
    content = f": {growth.rose_content}" if growth.rose_content else ""
    return f"made at {growth.origin}{content}"


def _lines(risen: Sequence[OriginGrowth]) -> str:
    return f"made at {_many(len({growth.origin for growth in risen}), 'more line')}"


def _per_step(risen: Sequence[OriginGrowth]) -> str:
    """Return by how much a step has raised them together, as ``+1 array, +1.5 GiB per step``."""
    count = sum(growth.count_per_step or 0 for growth in risen)
    nbytes = sum(growth.nbytes_per_step or 0 for growth in risen)
    return f"{_amount(count, nbytes)} per step"


def _amount(count: float, nbytes: float) -> str:
    """Return a rise as ``+1 array, +1.5 GiB``."""
    count, nbytes = round(count, 1), round(nbytes)
    amounts = []
    if count:
        number = f"{count:+.1f}".removesuffix(".0")
        amounts.append(f"{number} array{'' if abs(count) == 1 else 's'}")
    if nbytes:
        amounts.append(f"{'+' if nbytes > 0 else ''}{format_bytes(nbytes)}")
    return ", ".join(amounts)


def _sums(report: GrowthReport) -> Iterator[str]:
    """Yield how many arrays are alive, and what devices hold: those together that hold the same."""
    new, freed = _many(report.new_count, "array"), _many(report.freed_count, "array")
    yield f"{new} new, {freed} freed, {report.count} alive, {report.count_before} at the start"
    if report.view_count:
        shares = "it shares" if report.view_count == 1 else "they share"
        yield f"{_many(report.view_count, 'view')} left out: {shares} the memory of other arrays"
    alike: dict[tuple[int, int], list[int]] = {}
    before = dict(report.nbytes_before)
    for device, nbytes in report.nbytes:
        alike.setdefault((nbytes, nbytes - before.get(device, 0)), []).append(device)
    for (nbytes, more), devices in sorted(alike.items(), key=lambda entry: entry[1]):
        yield f"{format_devices(report.platform, devices)}: {format_bytes(nbytes)}, {_difference(more)}"
    if _is_shared(report):
        yield "what arrays share counts for each of them above, but once for the devices"


def _is_shared(report: GrowthReport) -> bool:
    """Return whether new and freed arrays have changed less together than one by one."""
    gained: Counter[int] = Counter()
    for growth in report.origins:
        gained.update(dict(growth.device_nbytes))
        gained.subtract(dict(growth.freed_device_nbytes))
    before = dict(report.nbytes_before)
    shares = any(gained[device] > nbytes - before.get(device, 0) for device, nbytes in report.nbytes)
    return report.nbytes_source == "profile" and shares


def _difference(nbytes: int) -> str:
    if not nbytes:
        return "as at the start"
    return f"{format_bytes(abs(nbytes))} {'more' if nbytes > 0 else 'less'} than at the start"


def _collection(report: GrowthReport, max_rows: int | None) -> Iterator[str]:
    """Yield what the garbage collector has freed, where it was run."""
    if not report.collected:
        return
    freed = report.freed_by_collection
    if freed:
        number = _many(sum(arrays.count for arrays in freed), "array")
        yield f"gc.collect() was run; only that freed {number}:"
    else:
        yield "gc.collect() was run; it freed no array"
    shown, rest = split_rows(freed, max_rows)
    for arrays in shown:
        yield f"  {_collected(arrays)}"
    if rest:
        nbytes = format_bytes(fullest_nbytes(*(arrays.device_nbytes for arrays in rest)))
        yield f"  {len(rest)} more: {_many(sum(arrays.count for arrays in rest), 'array')}, {nbytes}"
    if freed and report.cycles == "incomplete":
        yield "there may be more reference cycles: the search was ended (max_seconds=None searches on)"


def _collected(arrays: CollectedArrays) -> str:
    size = f"{_many(arrays.count, 'array')}, {format_bytes(arrays.nbytes)}, {arrays.content}"
    made = "" if arrays.origin is None else f", made at {arrays.origin}"
    cycle = "" if arrays.cycle is None else f", in the reference cycle {arrays.cycle}"
    return f"{size}{made}{cycle}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
