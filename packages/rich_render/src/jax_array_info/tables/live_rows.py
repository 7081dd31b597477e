"""Rows of a table of live arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from jax_array_info.tables.words import site_words
from jax_array_info_core import format_bytes
from jax_array_info_core.grouping import by_key
from jax_array_info_core.pages.folds import split_rows
from jax_array_info_core.reports.live import (
    By,
    LiveArrayGroup,
    LiveArrayReport,
    TotalsBy,
    fullest_share,
    groups_by_total,
    held_nbytes,
)

SMALL_ARRAY_NBYTES = 3 * 1024

_RowKey = tuple[object, ...]
"""The values by which rows are grouped, the sharding last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveArrayRow:
    """One row of a table of live arrays."""

    groups: tuple[LiveArrayGroup, ...]
    """Groups of arrays in the row; empty for the sum of several devices."""

    count: int
    """Number of arrays."""

    nbytes: int
    """Bytes per device of one array, in a row of arrays that agree in all columns. In other rows, bytes of
    all arrays on the device of this process that holds the most of them."""

    total_nbytes: int
    """Bytes of all arrays of the row, in total over all devices of this process."""

    share: float | None
    """Fraction of the bytes on the fullest device; None for arrays in host memory and for rows by device."""

    of: str = ""
    """Value that the arrays of a total share, such as ``bfloat16``; empty in other rows."""

    spec: str = ""
    """Partition spec, where the row shows one; else empty."""

    is_each: bool = False
    """Whether ``nbytes`` is that of one of several arrays."""

    @property
    def size(self) -> str:
        """``nbytes`` as text: ``1.0 MiB each`` for one of several arrays."""
        return format_bytes(self.nbytes) + (" each" if self.is_each else "")

    @property
    def sum_nbytes(self) -> int:
        """Bytes of all arrays of the row."""
        return self.nbytes * (self.count if self.is_each else 1)

    @property
    def holders(self) -> tuple[str, ...]:
        """Reference paths to the arrays."""
        return tuple(path for group in self.groups for path in group.holders)

    @property
    def unheld_count(self) -> int:
        """Number of arrays for which no referrer was found."""
        return sum(group.unheld_count for group in self.groups)

    @property
    def garbage_count(self) -> int:
        """Number of arrays that only reference cycles keep alive."""
        return sum(group.garbage_count for group in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveArrayRows:
    """All rows of a table of live arrays."""

    rows: tuple[LiveArrayRow, ...]
    """Rows of the largest arrays, or the largest totals."""

    rest: LiveArrayRow | None
    """Sum of the rows beyond ``max_rows``; None where there are none."""

    rest_count: int
    """Number of rows summed in ``rest``."""

    small: LiveArrayRow | None = None
    """Sum of the small arrays, where they are hidden."""

    scalars: tuple[LiveArrayRow, ...] = ()
    """Scalars by dtype, allocation site and viewed array, the most bytes first."""

    @property
    def sum_nbytes(self) -> int:
        """Sum of the rows."""
        others = [row for row in (self.rest, self.small) if row is not None]
        return sum(row.sum_nbytes for row in (*self.rows, *others, *self.scalars))


def live_array_rows(
    report: LiveArrayReport,
    *,
    by: By = "shape",
    hide_small_arrays: bool = False,
    max_rows: int | None = 100,
    specs: bool = False,
) -> LiveArrayRows:
    """Return the rows of a table of live arrays.

    Args:
        report: Report on the live arrays.
        by: ``shape`` for one row per group of similar arrays; else the property to total by.
        hide_small_arrays: Whether to sum unlabeled arrays below 3 KiB per device in one row.
        max_rows: Maximum number of rows of arrays; further rows are summed in one row. None for all rows.
        specs: Whether to give every sharded row its partition spec. By default, only rows that would
            otherwise look the same have one.

    Raises:
        ValueError: If ``max_rows`` is negative.
    """
    if by != "shape":
        return _total_rows(report, by, max_rows)
    arrays = [group for group in report.groups if group.shape]
    hidden = [group for group in arrays if hide_small_arrays and _is_small(group)]
    folded = by_key(
        (_row_key(group), group) for group in arrays if not (hide_small_arrays and _is_small(group))
    )
    spec_of = _specs(list(folded), always=specs)
    shown, rest = split_rows(list(folded.items()), max_rows)
    scalars = by_key(
        ((group.dtype, site_words(group.origin), group.views_of), group)
        for group in report.groups
        if not group.shape
    )
    return LiveArrayRows(
        rows=tuple(
            _row(report, groups, nbytes=groups[0].local_nbytes, spec=spec_of.get(key, ""))
            for key, groups in shown
        ),
        rest=_row(report, [group for _, groups in rest for group in groups]) if rest else None,
        rest_count=len(rest),
        small=_row(report, hidden) if hidden else None,
        scalars=tuple(
            sorted((_row(report, groups) for groups in scalars.values()), key=lambda row: -row.nbytes)
        ),
    )


def _row(
    report: LiveArrayReport, groups: Sequence[LiveArrayGroup], *, nbytes: int | None = None, spec: str = ""
) -> LiveArrayRow:
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


def _is_small(group: LiveArrayGroup) -> bool:
    return group.label is None and group.local_nbytes < SMALL_ARRAY_NBYTES


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


def _specs(keys: Sequence[_RowKey], *, always: bool) -> dict[_RowKey, str]:
    """Return the partition spec of each row that shows one.

    The mesh is added to rows that agree in the spec and differ only in the mesh.

    Args:
        keys: Keys of the rows.
        always: Whether every sharded row shows its spec, or only rows that differ in nothing else.
    """
    without_mesh = {key: (*key[:-1], str(key[-1]).partition(" over ")[0]) for key in keys}
    without_sharding = Counter(key[:-1] for key in keys)
    with_spec = Counter(without_mesh.values())
    return {
        key: str(without_mesh[key][-1] if with_spec[without_mesh[key]] == 1 else key[-1])
        for key in keys
        if key[-1] and (always or without_sharding[key[:-1]] > 1)
    }


def _total_rows(report: LiveArrayReport, by: TotalsBy, max_rows: int | None) -> LiveArrayRows:
    totals = [total for total in report.totals if total.by == by]
    groups = groups_by_total(report, by)
    rows = [
        LiveArrayRow(
            groups=tuple(groups.get(total.of, ())),
            count=total.count,
            nbytes=total.nbytes,
            total_nbytes=total.total_nbytes,
            share=None if by == "device" else fullest_share(report, groups[total.of]),
            of=total.of,
        )
        for total in totals
    ]
    shown, rest = split_rows(rows, max_rows)
    return LiveArrayRows(
        rows=tuple(shown), rest=_together(report, by, rest) if rest else None, rest_count=len(rest)
    )


def _together(report: LiveArrayReport, by: TotalsBy, rows: Sequence[LiveArrayRow]) -> LiveArrayRow:
    """Return the sum of several totals; ``nbytes`` is the sum on the fullest device."""
    if by != "device":
        return _row(report, [group for row in rows for group in row.groups])
    return LiveArrayRow(
        groups=(),
        count=sum(row.count for row in rows),
        nbytes=max(row.nbytes for row in rows),
        total_nbytes=max(row.total_nbytes for row in rows),
        share=None,
    )
