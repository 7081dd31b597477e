"""GrowthReport → what rose at every step, a table of what is new and freed, and what that takes."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from jax_array_info_core import (
    CollectedArrays,
    GrowthReport,
    OriginGrowth,
    format_bytes,
    format_devices,
)
from jax_array_info_core.totals import UNKNOWN
from jax_array_info_core.units import printable

from . import style


def growth_table(
    report: GrowthReport, *, max_rows: int | None = 100, encoding: str = "utf-8"
) -> RenderableType:
    """Return what has come and gone, what rose at every step first.

    Args:
        report: What has come and gone.
        max_rows: How many lines of code the table has; what is left is one row more. None for all.
        encoding: Encoding of the console.
    """
    if max_rows is not None and max_rows < 0:
        raise ValueError(f"max_rows is a number of rows, or None for all; got {max_rows}")
    rising = [growth for growth in report.origins if growth.rose_every_step]
    parts: list[RenderableType] = [
        _line(_rise(growth), encoding, style.WARNING) for growth in rising[:max_rows]
    ]
    changed = [growth for growth in report.origins if growth.count or growth.freed_count]
    if changed:
        parts.append(_table(report, changed, max_rows, encoding))
    parts += (_line(text, encoding) for text in _sums(report))
    parts += (_line(text, encoding) for text in _collection(report))
    return Group(*parts)


def _line(text: str, encoding: str, look: str = "") -> Text:
    return Text(printable(text, encoding), look, overflow="fold")


def _table(report: GrowthReport, changed: list[OriginGrowth], max_rows: int | None, encoding: str) -> Table:
    """Return the table of lines whose arrays are new or freed."""
    after = f" after {_many(report.steps, 'step')}" if report.steps else ""
    table = Table(title=f"new and freed jax arrays{after}")
    for name in ("new", "size", "freed", "size"):
        table.add_column(name, justify="right")
    table.add_column("largest", overflow="fold")
    is_known = report.origins_known == "known"
    if is_known:
        table.add_column("made at", overflow="fold")
    else:
        table.caption = "this jax does not tell who made an array"
    shown, rest = changed[:max_rows], changed[len(changed[:max_rows]) :]
    for growth in shown:
        words = [growth.content or "", *([str(growth.origin or UNKNOWN)] if is_known else [])]
        table.add_row(
            *_numbers(growth.count, growth.nbytes),
            *_numbers(growth.freed_count, growth.freed_nbytes),
            *(Text(printable(text, encoding)) for text in words),
        )
    if rest:
        new, freed = sum(growth.count for growth in rest), sum(growth.freed_count for growth in rest)
        table.add_row(str(new or ""), "", str(freed or ""), "", f"{len(rest)} more")
    return table


def _numbers(count: int, nbytes: int) -> tuple[str, str]:
    return (str(count), format_bytes(nbytes)) if count else ("", "")


def _rise(growth: OriginGrowth) -> str:
    """Return by how much steps have raised it, as ``+1 array, +1.5 GiB per step, made at ada.py:88 f``."""
    count = round(growth.count_per_step or 0, 1)
    nbytes = round(growth.nbytes_per_step or 0)
    amounts = []
    if count:
        number = f"{count:+.1f}".removesuffix(".0")
        amounts.append(f"{number} array{'' if abs(count) == 1 else 's'}")
    if nbytes:
        amounts.append(f"{'+' if nbytes > 0 else ''}{format_bytes(nbytes)}")
    made = f"made at {growth.origin}" if growth.origin else f"{growth.content or 'arrays'} of unknown origin"
    return f"{', '.join(amounts)} per step, {made}"


def _sums(report: GrowthReport) -> Iterator[str]:
    """Yield how many arrays are alive, and what devices hold: those together that hold the same."""
    new, freed = _many(report.new_count, "array"), _many(report.freed_count, "array")
    yield f"{new} new, {freed} freed, {report.count} alive, {report.count_before} at the start"
    alike: dict[tuple[int, int], list[int]] = {}
    before = dict(report.nbytes_before)
    for device, nbytes in report.nbytes:
        alike.setdefault((nbytes, nbytes - before.get(device, 0)), []).append(device)
    for (nbytes, more), devices in sorted(alike.items(), key=lambda entry: entry[1]):
        yield f"{format_devices(report.platform, devices)}: {format_bytes(nbytes)}, {_difference(more)}"


def _difference(nbytes: int) -> str:
    if not nbytes:
        return "as at the start"
    return f"{format_bytes(abs(nbytes))} {'more' if nbytes > 0 else 'less'} than at the start"


def _collection(report: GrowthReport) -> Iterator[str]:
    """Yield what the garbage collector has freed, where it was run."""
    if not report.collected:
        return
    freed = report.freed_by_collection
    if not freed:
        yield "gc.collect() was run; it freed no array"
        return
    yield f"gc.collect() was run; only that freed {_many(sum(arrays.count for arrays in freed), 'array')}:"
    for arrays in freed:
        yield f"  {_collected(arrays)}"


def _collected(arrays: CollectedArrays) -> str:
    size = f"{_many(arrays.count, 'array')}, {format_bytes(arrays.nbytes)}, {arrays.content}"
    made = "" if arrays.origin is None else f", made at {arrays.origin}"
    cycle = "" if arrays.cycle is None else f", in the reference cycle {arrays.cycle}"
    return f"{size}{made}{cycle}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
