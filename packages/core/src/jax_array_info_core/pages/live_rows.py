"""Rows of the table of live arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ..grouping import by_key
from ..reports.live import (
    By,
    LiveArrayGroup,
    LiveArrayReport,
    TotalsBy,
    fullest_share,
    groups_by_total,
    held_nbytes,
)
from .blocks import more
from .words import site_words

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

    share: float | None
    """Fraction of the bytes on the fullest device; None for arrays in host memory and for rows by device."""

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
            _row(report, groups, nbytes=groups[0].local_nbytes, spec=spec_of[key])
            for key, groups in folded.items()
        ],
        [_sum(report, small, "small arrays")] if small else [],
        sorted((_row(report, groups) for groups in scalars.values()), key=lambda row: -row.nbytes),
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
        share=None,
        words=more(len(rows)),
    )


def _row(
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
    return replace(_row(report, groups), groups=(), words=words)


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
            share=None if by == "device" else fullest_share(report, groups[total.of]),
            words=total.of,
        )
        for total in report.totals
        if total.by == by
    ]
