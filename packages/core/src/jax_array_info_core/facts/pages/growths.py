"""The page of the growth of live arrays: those that rose, new and freed ones, and bytes per device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...base.grouping import by_key
from ...base.quantities import counted, decimal_words, format_bytes, format_devices
from ...base.text import clipped, that_apply
from ..reports import CollectedArrays, GrowthReport, Origin, OriginGrowth
from ..reports.devices import DeviceNbytes
from ..reports.growth import collected_together, origins_together
from .blocks import (
    Block,
    Column,
    Limited,
    Listing,
    Look,
    Row,
    Sentence,
    Table,
    limited,
    more,
    said,
)
from .words import (
    NO_ALLOCATION_SITES,
    SEARCH_INCOMPLETE,
    garbage_words,
    more_or_less,
    no_referrer,
    site_words,
)

_SIZES = "Sizes are sums over the devices of this process."
_COLUMNS = (
    Column("new", "number", is_kept=True, meaning="arrays that are alive now and were not at the start"),
    Column("new size", "number", is_kept=True, meaning="bytes of the new arrays, summed over local devices"),
    Column("freed", "number", is_kept=True, meaning="arrays that were alive at the start and are not now"),
    Column(
        "freed size", "number", is_kept=True, meaning="bytes of the freed arrays, summed over local devices"
    ),
    Column("largest", is_kept=True, meaning="dtype and shape of the arrays with the most bytes in the row"),
    Column("made at", meaning="allocation site, and the line that called it for most of the arrays"),
)
TABLES = {"new and freed jax arrays": _COLUMNS}
"""Columns of the table, by its title."""
_GROUPINGS = (
    [[column.name] for column in _COLUMNS],
    [["new", "new size"], ["freed", "freed size"], ["largest", "made at"]],
)


def growth_page(report: GrowthReport) -> Iterator[Listing]:
    """Yield the arrays that rose from step to step, then the table of new and freed arrays.

    Args:
        report: The growth since a tracker was entered.
    """
    risen = [growth for growth in report.origins if growth.rose]
    rising = [growth for growth in risen if growth.stopped_at is None]
    if not rising:
        yield Sentence(_no_rise(report), "answer", hang=0)
    yield _rises(report, rising, "warning")
    yield _rises(report, [growth for growth in risen if growth.stopped_at is not None])
    if risen and report.holders == "incomplete":
        yield Sentence(SEARCH_INCOMPLETE, hang=0)
    changed = [growth for growth in report.origins if growth.count or growth.freed_count]
    yield _table(report, changed)
    yield from said(_sums(report), hang=0)
    if report.collected:
        yield from _collection(report)
    if report.freed_by_collection and not changed and len(report.nbytes) > 1:
        yield Sentence(_SIZES, hang=0)


def _table(report: GrowthReport, changed: Sequence[OriginGrowth]) -> Table:
    """Return the table of new and freed arrays by allocation site."""
    is_known = report.origins_known == "known"
    notes = that_apply((len(report.nbytes) > 1, _SIZES), (not is_known, NO_ALLOCATION_SITES))

    def row(growth: OriginGrowth) -> Row:
        return {
            **_amounts(growth),
            "largest": growth.content or "",
            "made at": _site(growth) if is_known else "",
        }

    def others(hidden: Sequence[OriginGrowth]) -> Row:
        return {**_amounts(origins_together(hidden)), "largest": more(len(hidden))}

    return Table(
        f"new and freed jax arrays{f' after {_steps(report)}' if report.steps else ''}",
        _COLUMNS,
        [limited(changed, row, others)],
        _GROUPINGS,
        caption="\n".join(notes),
        breaks="words",
    )


def _amounts(growth: OriginGrowth) -> Row:
    """Return the cells of the numbers and the sizes of new and freed arrays."""
    both = (
        ("new", growth.count, growth.device_nbytes),
        ("freed", growth.freed_count, growth.freed_device_nbytes),
    )
    counts = {name: str(count) for name, count, _ in both if count}
    return {**counts, **{f"{name} size": _bytes(sizes) for name, count, sizes in both if count}}


def _bytes(device_nbytes: DeviceNbytes) -> str:
    """Return the sum of bytes on several devices."""
    return format_bytes(sum(nbytes for _, nbytes in device_nbytes))


def _rises(
    report: GrowthReport, risen: Sequence[OriginGrowth], look: Look = ""
) -> Limited[OriginGrowth, Block]:
    """Return the rise of arrays: of those that rose at every step, at several, or no more after some step."""

    def line(growth: OriginGrowth) -> str:
        since = f"since step {growth.stopped_at}, ", "until then"
        made = _risen(growth) + _held(growth, report)
        return _rise(report, [growth], f"in {growth.rose_steps} of", since, made)

    def others(hidden: Sequence[OriginGrowth]) -> Iterator[str]:
        kinds = ((growth.stopped_at is None and growth.rose_every_step, growth) for growth in hidden)
        for alike in by_key(kinds).values():
            lines = len({str(growth.origin) for growth in alike})
            made = f"made at {more(lines, 'line', 'lines')}"
            yield _rise(report, alike, "in some of", ("any more: ", "before"), made)

    return Limited(
        risen,
        lambda shown: said(map(line, shown), look, hang=0),
        lambda hidden: said(others(hidden), look, hang=0),
    )


def _rise(
    report: GrowthReport, risen: Sequence[OriginGrowth], times: str, since: tuple[str, str], made: str
) -> str:
    """Return the rise of arrays that rose alike.

    Args:
        report: The growth.
        risen: One or more entries.
        times: Words for the steps of arrays that rose at several.
        since: Words before and after the amount of arrays that rose no more.
        made: Words for their allocation sites.
    """
    total = origins_together(risen)
    amount = _amount(report, total.rose_count, total.rose_nbytes)
    if risen[0].stopped_at is not None:
        return f"no growth {since[0]}{amount} {since[1]}, {made}"
    if not risen[0].rose_every_step:
        return f"{amount} {times} {_steps(report)}, {made}"
    return f"{_amount(report, total.count_per_step or 0, total.nbytes_per_step or 0)} per step, {made}"


def _amount(report: GrowthReport, count: float, nbytes: float) -> str:
    """Return a rise as ``+1 array, +1.5 GiB (sum over 8 devices)``."""
    nbytes, devices = round(nbytes), len(report.nbytes)
    number = decimal_words(count).removesuffix(".0")
    arrays = f"{'+' if count > 0 else ''}{number} array{'' if number in ('1', '-1') else 's'}"
    total = f" (sum over {devices} devices)" if devices > 1 else ""
    size = f"{'+' if nbytes > 0 else ''}{format_bytes(nbytes)}{total}"
    return ", ".join([*([arrays] if number != "0" else []), *([size] if nbytes else [])])


def _no_rise(report: GrowthReport) -> str:
    """Return that nothing rose, or what is missing to know it: a trend needs two steps."""
    if report.steps > 1:
        return f"no steady growth in {_steps(report)}"
    after = " after 1 step" if report.steps else ""
    return f"growth per step: unknown{after}; call .step() on the tracker at the end of each step"


def _steps(report: GrowthReport) -> str:
    return counted(report.steps, "step", "steps")


def _risen(growth: OriginGrowth) -> str:
    """Return the allocation site, dtype and shape of rising arrays."""
    if growth.origin is None:
        return f"{growth.rose_content or growth.content or 'arrays'}, allocation site unknown"
    return f"made at {_site(growth)}{f': {growth.rose_content}' if growth.rose_content else ''}"


def _held(growth: OriginGrowth, report: GrowthReport) -> str:
    """Return what holds the arrays, or that reference cycles did if none is alive; empty if not known."""
    freed = () if growth.count or growth.origin is None else report.freed_by_collection
    if any(_place(arrays) == _place(growth) for arrays in freed):
        return ", held by reference cycles"
    if not growth.count or report.holders == "not asked":
        return ""
    path, garbage = growth.holder, growth.garbage_count
    paths = [f"held by {clipped(path)}"] if path else []
    cycles = [f"{f'{garbage} ' if path else ''}{garbage_words(garbage)}"] if garbage else []
    return "".join(f", {words}" for words in paths + cycles or [no_referrer(report.holders)])


def _place(arrays: OriginGrowth | CollectedArrays) -> Origin | None:
    """Return the allocation site without its callers."""
    return arrays.origin and replace(arrays.origin, callers=())


def _site(arrays: OriginGrowth | CollectedArrays) -> str:
    """Return the allocation site, the line that called it for most arrays, and the number of other ones."""
    others = arrays.caller_count - 1
    return site_words(arrays.origin) + (f" and {more(others, 'caller', 'callers')}" if others else "")


def _sums(report: GrowthReport) -> Iterator[str]:
    """Yield the number of live arrays, and the bytes per device, with equal devices in one line."""
    new = counted(report.new_count, "new array", "new arrays")
    views = counted(report.view_count, "view not counted: it shares", "views not counted: they share")
    yield f"{new}, {report.freed_count} freed, {report.count} alive, {report.count_before} at the start"
    yield from that_apply((report.view_count, f"{views} the memory of other arrays"))
    for place, alike in (("", report.device_growth), (" in host memory", report.host_growth)):
        for devices, nbytes, gained in alike:
            suffix = " each" if len(devices) > 1 else ""
            gain = f"{more_or_less(gained)} than" if gained else "same as"
            names = format_devices(report.platform, devices)
            yield f"{names}: {format_bytes(nbytes)}{suffix}{place}, {gain} at the start"
    shared = "Shared buffers are counted once per array above, and once per device here."
    yield from that_apply((report.is_shared, shared))


def _collection(report: GrowthReport) -> Iterator[Listing]:
    """Yield the arrays that the garbage collector freed."""
    freed = report.freed_by_collection
    number = _arrays(collected_together(freed)) if freed else "no arrays"
    yield Sentence(
        f"gc.collect() freed {number}{' that reference counting had not:' if freed else ''}", hang=0
    )

    def others(hidden: Sequence[CollectedArrays]) -> str:
        total = collected_together(hidden)
        return f"{more(len(hidden))}: {_arrays(total)}, {_bytes(total.device_nbytes)}"

    yield Limited(
        freed,
        lambda shown: said(map(_collected, shown), indent=2),
        lambda hidden: said([others(hidden)], indent=2),
    )


def _collected(arrays: CollectedArrays) -> str:
    made = "" if arrays.origin is None else f", made at {_site(arrays)}"
    return f"{_arrays(arrays)}, {_bytes(arrays.device_nbytes)}, {arrays.content}{made}"


def _arrays(arrays: CollectedArrays) -> str:
    return counted(arrays.count, "array", "arrays")
