"""Rows of a table of live arrays: arrays alike folded, the small and the remaining ones as one row each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .live import LiveArrayGroup, LiveArrayReport
from .live_totals import By, TotalsBy, fullest_share, groups_by_total, held_nbytes
from .rows import split_rows

SMALL_ARRAY_NBYTES = 3 * 1024

Look = tuple[object, ...]
"""What two rows differ in, their sharding last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveArrayRow:
    """Live arrays in one row of a table."""

    groups: tuple[LiveArrayGroup, ...]
    """The arrays, alike but in a total; empty for several devices together."""

    count: int
    """Number of arrays."""

    nbytes: int
    """Bytes of one array on one device, for arrays that are alike; of all on the device of this process that
    holds the most of them, for others."""

    total_nbytes: int
    """Bytes of all of them on all devices of this process."""

    share: float | None
    """Their part of the bytes on the fullest device; None for arrays in host memory, and by device."""

    of: str = ""
    """What the arrays of a total have in common."""

    spec: str = ""
    """The partition spec, where the row needs one."""

    @property
    def holders(self) -> tuple[str, ...]:
        """Paths to the holders of the arrays."""
        return tuple(path for group in self.groups for path in group.holders)

    @property
    def unheld_count(self) -> int:
        """Number of arrays without a known holder."""
        return sum(group.unheld_count for group in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveArrayRows:
    """All rows of a table of live arrays."""

    rows: tuple[LiveArrayRow, ...]
    """The largest arrays, or totals."""

    rest: LiveArrayRow | None
    """The arrays beyond the number of rows asked for."""

    rest_count: int
    """Number of rows that ``rest`` stands for."""

    small: LiveArrayRow | None = None
    """The small arrays, where they are hidden."""

    scalars: tuple[LiveArrayRow, ...] = ()
    """The scalars of each dtype, origin and base, the most bytes first."""


def live_array_rows(
    report: LiveArrayReport,
    *,
    by: By = "shape",
    hide_small_arrays: bool = False,
    max_rows: int | None = 100,
    specs: bool = False,
) -> LiveArrayRows:
    """Return live arrays as the rows of a table.

    Args:
        report: The live arrays.
        by: What the arrays of a row have in common.
        hide_small_arrays: Fold unlabelled arrays under 3 KiB a device into one row.
        max_rows: Number of rows of arrays; the remaining arrays are one row more. None for all.
        specs: Give every sharded array its partition spec, not only where rows would look alike.
    """
    if by != "shape":
        return _total_rows(report, by, max_rows)
    arrays = [group for group in report.groups if group.shape]
    hidden = [group for group in arrays if hide_small_arrays and _is_small(group)]
    alike = _folded(group for group in arrays if not (hide_small_arrays and _is_small(group)))
    spec_of = _specs(list(alike), always=specs)
    shown, rest = split_rows(list(alike.items()), max_rows)
    scalars: dict[Look, list[LiveArrayGroup]] = {}
    for group in report.groups:
        if not group.shape:
            scalars.setdefault((group.dtype, group.origin, group.views_of), []).append(group)
    return LiveArrayRows(
        rows=tuple(
            _row(report, groups, nbytes=groups[0].local_nbytes, spec=spec_of.get(look, ""))
            for look, groups in shown
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
    held = held_nbytes(groups)
    return LiveArrayRow(
        groups=tuple(groups),
        count=sum(group.count for group in groups),
        nbytes=max(held.values(), default=0) if nbytes is None else nbytes,
        total_nbytes=held.total(),
        share=fullest_share(report, groups),
        spec=spec,
    )


def _is_small(group: LiveArrayGroup) -> bool:
    return group.label is None and group.local_nbytes < SMALL_ARRAY_NBYTES


def _look(group: LiveArrayGroup) -> Look:
    """Return what tells a group's row from others."""
    return (
        group.local_nbytes,
        group.shape,
        group.dtype,
        group.label,
        group.device_count > 1,
        group.nbytes,
        group.replicas,
        group.memory_kind,
        group.origin,
        group.views_of,
        # On one device there is nothing to shard.
        group.sharding if group.device_count > 1 else "",
    )


def _folded(groups: Iterable[LiveArrayGroup]) -> dict[Look, list[LiveArrayGroup]]:
    """Return the groups of each look."""
    alike: dict[Look, list[LiveArrayGroup]] = {}
    for group in groups:
        alike.setdefault(_look(group), []).append(group)
    return alike


def _specs(looks: Sequence[Look], *, always: bool) -> dict[Look, str]:
    """Return the partition specs that rows need, by their looks.

    The mesh is added where rows of one spec and different meshes would still look alike.

    Args:
        looks: What the rows look like.
        always: Whether every sharded row needs its spec, and not only those that differ in nothing else.
    """
    plain = {look: (*look[:-1], str(look[-1]).partition(" over ")[0]) for look in looks}
    without_sharding = Counter(look[:-1] for look in looks)
    with_spec = Counter(plain.values())
    return {
        look: str(plain[look][-1] if with_spec[plain[look]] == 1 else look[-1])
        for look in looks
        if look[-1] and (always or without_sharding[look[:-1]] > 1)
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
    """Return several totals as one: its size is that on one device, the fullest."""
    if by != "device":
        return _row(report, [group for row in rows for group in row.groups])
    return LiveArrayRow(
        groups=(),
        count=sum(row.count for row in rows),
        nbytes=max(row.nbytes for row in rows),
        total_nbytes=max(row.total_nbytes for row in rows),
        share=None,
    )
