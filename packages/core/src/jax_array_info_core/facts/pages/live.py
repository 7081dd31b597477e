"""The page of live arrays: a table by shape, or totals by another property, and the rows of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from ...base.grouping import by_key
from ...base.quantities import counted, format_bytes
from ...base.text import clipped, that_apply
from ..reports.live import (
    By,
    LiveArrayGroup,
    LiveArrayReport,
    TotalsBy,
    device_words,
    fullest_share,
    groups_by_total,
    held_counts,
    held_nbytes,
    is_in_host_memory,
)
from .blocks import CHECK, Block, Column, Limited, Row, Table, counted_path, more
from .words import (
    NO_ALLOCATION_SITES,
    SEARCH_INCOMPLETE,
    copies_words,
    garbage_words,
    no_referrer,
    site_words,
)

SMALL_ARRAY_NBYTES = 3 * 1024

_RowKey = tuple[object, ...]
"""The values by which rows are grouped, the sharding last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveArrayRow:
    """One row of a table of live arrays."""

    groups: tuple[LiveArrayGroup, ...]
    """Groups of arrays in the row; empty for the sum of several rows."""

    count: int
    """Number of arrays."""

    nbytes: int
    """Bytes per device of one array, in a row of arrays that agree in all columns. In other rows, bytes of
    all arrays on the device of this process that holds the most of them."""

    total_nbytes: int
    """Bytes of all arrays of the row, in total over all devices of this process."""

    share: str
    """Share of the bytes on the fullest device; empty for arrays in host memory and for rows by device."""

    words: str = ""
    """Value that the arrays of a total share, such as ``bfloat16``, or words for the sum of several rows;
    empty in other rows."""

    spec: str = ""
    """Partition spec, where the row shows one; else empty."""

    is_each: bool = False
    """Whether ``nbytes`` is that of one of several arrays."""

    @property
    def sum_nbytes(self) -> int:
        """Bytes of all arrays of the row."""
        return self.nbytes * (self.count if self.is_each else 1)


def live_array_rows(
    report: LiveArrayReport,
    *,
    by: By = "shape",
    hide_small_arrays: bool = False,
    specs: bool = False,
) -> tuple[Sequence[LiveArrayRow], Sequence[LiveArrayRow], Sequence[LiveArrayRow]]:
    """Return the rows of a table of live arrays, the most bytes first.

    Args:
        report: Report on the live arrays.
        by: ``shape`` for one row per group of similar arrays; else the property to total by.
        hide_small_arrays: Whether to sum unlabeled arrays below 3 KiB per device in one row.
        specs: Whether to give every sharded row its partition spec. By default, only rows that would
            otherwise look the same have one.

    Returns:
        The rows of arrays, or of totals; the sum of the small arrays, where they are hidden; and the scalars
        by dtype, allocation site and viewed array.
    """
    if by != "shape":
        return _total_rows(report, by), (), ()

    def is_small(group: LiveArrayGroup) -> bool:
        return hide_small_arrays and group.label is None and group.local_nbytes < SMALL_ARRAY_NBYTES

    arrays = [group for group in report.groups if group.shape]
    small = [group for group in arrays if is_small(group)]
    folded = by_key((_row_key(group), group) for group in arrays if not is_small(group))
    spec_of = _specs(folded, always=specs)
    scalars = by_key(
        ((group.dtype, site_words(group.origin), group.views_of), group)
        for group in report.groups
        if not group.shape
    )
    return (
        [
            _made_row(report, groups, nbytes=groups[0].local_nbytes, spec=spec_of[key])
            for key, groups in folded.items()
        ],
        [_sum(report, small, "small arrays")] if small else [],
        sorted((_made_row(report, groups) for groups in scalars.values()), key=lambda row: -row.nbytes),
    )


def rest_row(report: LiveArrayReport, by: By, rows: Sequence[LiveArrayRow]) -> LiveArrayRow:
    """Return the row for several rows: with the sum of their bytes, or for devices the most of one."""
    count = sum(row.count for row in rows)
    if by != "device":
        words = more(count, "array", "arrays") if by == "shape" else more(len(rows))
        return _sum(report, [group for row in rows for group in row.groups], words)
    return LiveArrayRow(
        groups=(),
        count=count,
        nbytes=max(row.nbytes for row in rows),
        total_nbytes=max(row.total_nbytes for row in rows),
        share="",
        words=more(len(rows)),
    )


def _made_row(
    report: LiveArrayReport, groups: Sequence[LiveArrayGroup], *, nbytes: int | None = None, spec: str = ""
) -> LiveArrayRow:
    """Return the row of some arrays: with the bytes of one if they are given, else with their sum."""
    held, count = held_nbytes(groups), sum(group.count for group in groups)
    return LiveArrayRow(
        groups=tuple(groups),
        count=count,
        nbytes=max(held.values(), default=0) if nbytes is None else nbytes,
        total_nbytes=held.total(),
        share=fullest_share(report, groups),
        spec=spec,
        is_each=nbytes is not None and count > 1,
    )


def _sum(report: LiveArrayReport, groups: Sequence[LiveArrayGroup], words: str) -> LiveArrayRow:
    return replace(_made_row(report, groups), groups=(), words=words)


def _row_key(group: LiveArrayGroup) -> _RowKey:
    """Return the values by which a group is assigned to a row."""
    return (
        group.local_nbytes,
        group.shape,
        group.dtype,
        group.label,
        group.device_count > 1,
        group.nbytes,
        group.replicas,
        group.unreduced,
        group.memory_kind,
        site_words(group.origin),
        group.views_of,
        # A single-device array is not sharded.
        group.sharding if group.device_count > 1 else "",
    )


def _specs(keys: Collection[_RowKey], *, always: bool) -> dict[_RowKey, str]:
    """Return the partition spec of each row; empty for rows that show none.

    The mesh is added to rows that agree in the spec and differ only in the mesh.

    Args:
        keys: Keys of the rows.
        always: Whether every sharded row shows its spec, or only rows that differ in nothing else.
    """
    without_mesh = {key: (*key[:-1], str(key[-1]).partition(" over ")[0]) for key in keys}
    without_sharding = Counter(key[:-1] for key in keys)
    with_spec = Counter(without_mesh.values())

    def spec(key: _RowKey) -> str:
        if not always and without_sharding[key[:-1]] == 1:
            return ""
        return str(key[-1] if with_spec[without_mesh[key]] > 1 else without_mesh[key][-1])

    return {key: spec(key) for key in keys}


def _total_rows(report: LiveArrayReport, by: TotalsBy) -> list[LiveArrayRow]:
    """Return the rows of totals."""
    groups = groups_by_total(report, by)
    return [
        LiveArrayRow(
            groups=tuple(groups.get(total.of, ())),
            count=total.count,
            nbytes=total.nbytes,
            total_nbytes=total.total_nbytes,
            share="" if by == "device" else fullest_share(report, groups[total.of]),
            words=total.of,
        )
        for total in report.totals
        if total.by == by
    ]


NARROW = 80
"""Pages up to this width have no column ``of total``."""
_HELD_BY = Column("held by", "names", meaning="reference path that keeps an array of the row alive")
_OF_TOTAL = Column(
    "of total",
    "number",
    is_optional=True,
    meaning="bytes of all arrays of the row on the fullest device, as a share of the last row",
)
_SHAPES = (
    Column("size", is_kept=True, meaning="bytes of one array on one device: of its largest shard"),
    _OF_TOTAL,
    Column("of", head="shape", is_kept=True, meaning="global shape, and the number of equal arrays"),
    Column("dtype"),
    Column(
        "sharded",
        "centered",
        meaning="whether arrays are on several devices, their global size, and replicas of each shard",
    ),
    Column("label", meaning="name that you gave the array with label_array or sharding_info"),
    Column("made at", meaning="allocation site: the line of your code, and the line that called it"),
    _HELD_BY,
)
_GROUPS = (
    Column(
        "size",
        "number",
        head="max per device",
        is_kept=True,
        meaning="bytes of the group on the device where it takes the most",
    ),
    Column("size", "number", head="per device", is_kept=True, meaning="bytes of the group on the device"),
    _OF_TOTAL,
    Column(
        "all", "number", head="all devices", meaning="bytes of the group on all devices, replicas included"
    ),
    Column(
        "all",
        "number",
        head="local devices",
        meaning="bytes of the group on the devices of this process, replicas included",
    ),
    Column(
        "all",
        "number",
        head="with host memory",
        meaning="bytes of arrays on the device and of its arrays in host memory",
    ),
    Column("arrays", "number", meaning="number of arrays, views included"),
    *(
        Column("of", head=head, is_kept=True, meaning=f"{words} that the arrays of the group share")
        for head, words in (
            ("made at", "allocation site"),
            ("device", "device"),
            ("dtype", "dtype"),
            ("sharding", "sharding"),
        )
    ),
    _HELD_BY,
)
TABLES = {
    "allocated jax arrays": _SHAPES,
    "allocated jax arrays by origin, device, dtype or sharding": _GROUPS,
}
"""Columns of each table, by its title."""
_NUMBERS = ("size", "of total", "all", "arrays")
_WORDS = ("of", "dtype", "sharded", "label")
_SOURCES = ("made at", "held by")
_GROUPINGS = (
    [[name] for name in (*_NUMBERS, *_WORDS, *_SOURCES)],
    [[name] for name in (*_NUMBERS, *_WORDS, *_SOURCES) if name != "of total"],
    [["size", "all", "arrays"], _WORDS, _SOURCES],
)


def live_page(
    report: LiveArrayReport,
    *,
    by: By = "shape",
    hide_small_arrays: bool = False,
    specs: bool = False,
) -> Iterator[Block]:
    """Yield the table of all live arrays, the largest first.

    Lines longer than 80 characters have a column ``of total`` if it fits: each row's share of the fullest
    device.

    Args:
        report: The live arrays. Allocation sites and referrers are shown if the report has them.
        by: Property that the arrays of a row share: ``shape`` (with every other column), ``origin``,
            ``device``, ``dtype`` or ``sharding``.
        hide_small_arrays: Whether to fold unlabeled arrays under 3 KiB per device into one row.
        specs: Whether to show the partition spec of every sharded array. By default, only rows that differ in
            nothing else show it.
    """
    largest, small, scalars = live_array_rows(report, by=by, hide_small_arrays=hide_small_arrays, specs=specs)
    nbytes, host_nbytes = report.fullest_nbytes, report.fullest_host_nbytes
    on_host = {"size": format_bytes(host_nbytes), "of": "in host memory"}
    where = "" if report.device is None else f" on {device_words(report, report.device)}"

    def show(shown: Sequence[LiveArrayRow]) -> list[Row]:
        return [_row(row, report, by) for row in shown]

    def totals(shown: Sequence[LiveArrayRow]) -> list[Row]:
        hidden = largest[len(shown) :]
        rows = [*shown, *([rest_row(report, by, hidden)] if hidden else []), *small, *scalars]
        # Rows that do not add up to the total are on other devices, or share buffers.
        is_sum = sum(row.sum_nbytes for row in rows) == nbytes + host_nbytes
        total = {"size": format_bytes(nbytes), "of": "" if is_sum else "fullest device"}
        return [on_host, total] if host_nbytes else [total]

    yield Table(
        title=f"allocated jax arrays{where}{'' if by == 'shape' else f' by {by}'}",
        columns=[*_columns(report, by)],
        sections=[
            Limited(largest, show, lambda hidden: show([rest_row(report, by, hidden)])),
            show(small),
            show(scalars),
            Limited(largest, totals, lambda _: (), most=len(largest)),  # its rows are counted once
        ],
        groupings=_GROUPINGS,
        caption="\n".join(
            that_apply(
                (report.origins == "not told by this jax", NO_ALLOCATION_SITES),
                (report.holders == "incomplete", SEARCH_INCOMPLETE),
                (report.garbage_count, _all_garbage(report)),
                (
                    by != "device" and report.is_shared,
                    "Shared buffers are counted once per array, and once in the total.",
                ),
            )
        ),
        breaks="words",
        least_width=NARROW + 1,
        joins_heads=True,
    )


def _columns(report: LiveArrayReport, by: By) -> list[Column]:
    if by == "shape":
        is_sharded = report.visible_devices > 1
        return [
            column._replace(is_kept=is_sharded) if column.name == "sharded" else column for column in _SHAPES
        ]
    size = "per device" if by == "device" or report.device is not None else "max per device"
    # The report has no bytes on the devices of other processes.
    devices = "all" if len(report.device_nbytes) >= report.visible_devices else "local"
    every = "with host memory" if by == "device" else f"{devices} devices"
    heads = (size, "of total", every, "arrays", "made at" if by == "origin" else by, "held by")
    return [column for column in _GROUPS if column.title in heads]


def _row(row: LiveArrayRow, report: LiveArrayReport, by: By) -> Row:
    """Return the cells of a row. The sum of several rows has no more than its bytes, its count and words."""
    held = _references(row, report) if row.groups and report.holders != "not asked" else ""
    cells: Row = {
        "size": format_bytes(row.nbytes) + (" each" if row.is_each else ""),
        "of total": row.share,
        "of": row.words,
        "held by": held,
    }
    if by == "shape":
        return {**cells, **_array(row, report)} if row.groups else cells
    has_all = report.host_nbytes if by == "device" else report.device is None
    return {**cells, "all": format_bytes(row.total_nbytes) if has_all else "", "arrays": str(row.count)}


def _array(row: LiveArrayRow, report: LiveArrayReport) -> Row:
    """Return the cells of the properties that the arrays of a row share."""
    group = row.groups[0]
    return {
        "of": _shape_lines(row, report),
        "dtype": group.dtype,
        "sharded": [*_sharded_lines(row, report)] if group.shape and report.visible_devices > 1 else "",
        "label": (group.label or "") if group.shape else "",
        "made at": site_words(group.origin) if report.origins == "known" else "",
    }


def _shape_lines(row: LiveArrayRow, report: LiveArrayReport) -> list[str]:
    """Return the shape, then one line each for host memory and for the array of a view."""
    group = row.groups[0]
    return that_apply(
        (group.shape, counted_path(str(group.shape), row.count)),
        (not group.shape, counted(row.count, "scalar", "scalars")),
        (group.shape and is_in_host_memory(report, group), f"in {group.memory_kind}"),
        (group.views_of is not None, f"views of {group.views_of}"),
    )


def _sharded_lines(row: LiveArrayRow, report: LiveArrayReport) -> Iterator[str]:
    """Yield the bytes and the replicas of a sharded array, then spec and devices if the row shows them.

    Devices are shown unless each is where arrays are expected: on the first device for an array on one
    device, on all devices for any other. Views are where their array is.
    """
    group, counts = row.groups[0], held_counts(row.groups)
    devices, over, here = group.device_count, group.replicated_over, "" if counts else "not on this process"
    if devices > 1:
        copies = copies_words(group.unreduced, group.partial_sums, group.replicas, over)
        mark = "replicated" if over and group.replicas == devices else CHECK
        yield f"{mark} ({', '.join(filter(None, (f'{format_bytes(group.nbytes)} total', copies, here)))})"
    elif here:
        yield here
    if row.spec:
        yield row.spec
    expected = {device for device, _ in report.device_nbytes[: 1 if devices == 1 else None]}
    is_together = all(count == row.count for count in counts.values())
    if counts and group.views_of is None and not (is_together and expected <= set(counts)):
        yield f"{'on' if is_together else f'each on {devices} of'} {device_words(report, *counts)}"


def _all_garbage(report: LiveArrayReport) -> str:
    """Return the number and the bytes of the arrays that only reference cycles keep alive."""
    arrays, size = counted(report.garbage_count, "array", "arrays"), format_bytes(report.garbage_nbytes)
    are, them = ("is", "it") if report.garbage_count == 1 else ("are", "them")
    return f"{arrays} ({size}) {are} garbage in reference cycles: gc.collect() frees {them}."


def _references(row: LiveArrayRow, report: LiveArrayReport) -> Sequence[str]:
    """Return the reference path of a row, and lines for the arrays of the row that have none."""
    lines = [clipped(group.holder) for group in row.groups if group.holder][:1]
    garbage = sum(group.garbage_count for group in row.groups)
    for count, words in (
        (garbage, garbage_words(garbage)),
        (sum(group.unheld_count for group in row.groups), no_referrer(report.holders)),
    ):
        part = "" if count == row.count else f"{count} of {row.count}: "
        lines += [part + words] if count else []
    return lines
