"""Totals of live arrays by allocation site, device, dtype or sharding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from .live import LiveArrayGroup, LiveArrayReport

TotalsBy = Literal["origin", "device", "dtype", "sharding"]
"""Property by which arrays are grouped into totals; ``origin`` is the allocation site."""

By = Literal["shape", "origin", "device", "dtype", "sharding"]
"""Grouping of the rows of a table: ``shape`` for one row per group of similar arrays, else totals."""

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveArrayTotal:
    """Bytes of the live arrays that share the value of one property."""

    by: TotalsBy
    """Property that the arrays of the total share; ``origin`` is the allocation site."""

    of: str
    """Value of the property, such as ``train.py:141 init_params`` or ``bfloat16``."""

    count: int
    """Number of arrays; by device, the number of arrays with a shard there."""

    nbytes: int
    """Bytes on the device of this process that holds the most bytes of these arrays. Shared buffers are
    counted once per array; by device, once."""

    total_nbytes: int
    """Bytes in total over all devices of this process; by device, bytes including host memory."""


def held_nbytes(groups: Sequence[LiveArrayGroup]) -> Counter[int]:
    """Return the bytes of some arrays on each device of this process; shared buffers count once per array."""
    nbytes: Counter[int] = Counter()
    for group in groups:
        for device, count in group.device_counts:
            nbytes[device] += group.shard_nbytes * count
    return nbytes


def fullest_share(report: LiveArrayReport, groups: Sequence[LiveArrayGroup]) -> float | None:
    """Return the fraction of the bytes on the fullest device that some arrays take: 0.25 for a quarter.

    Shared buffers are counted once per array. None if the arrays are in host memory, or no device holds
    any bytes.
    """
    device, nbytes = max(report.device_nbytes, key=lambda pair: pair[1], default=(0, 0))
    on_device = [group for group in groups if not is_in_host_memory(report, group)]
    if not nbytes or (groups and not on_device):
        return None
    return held_nbytes(on_device)[device] / nbytes


def is_in_host_memory(report: LiveArrayReport, group: LiveArrayGroup) -> bool:
    """Return whether arrays are in host memory, and that is not the default memory of their devices."""
    return bool(report.host_nbytes) and "host" in (group.memory_kind or "")


def check_totals_by(by: str) -> None:
    """Raise ValueError for an unknown property to total by."""
    if by not in get_args(By):
        raise ValueError(f"by must be one of {', '.join(map(repr, get_args(By)))}, got {by!r}")


def all_totals(report: LiveArrayReport) -> tuple[LiveArrayTotal, ...]:
    """Return the totals of a report by every property, each with the most bytes first.

    Totals by allocation site are included if the report has allocation sites.
    """
    has_origins = report.origins != "not asked" or any(group.origin for group in report.groups)
    totals: list[LiveArrayTotal] = []
    for by in get_args(TotalsBy):
        if by == "origin" and not has_origins:
            continue
        found = (
            _by_device(report)
            if by == "device"
            else [_total(by, of, groups) for of, groups in groups_by_total(report, by).items()]
        )
        totals += sorted(found, key=lambda total: (-total.nbytes, -total.total_nbytes, total.of))
    return tuple(totals)


def groups_by_total(report: LiveArrayReport, by: TotalsBy) -> dict[str, list[LiveArrayGroup]]:
    """Return the groups of a report by the value of a property; by device, a group is in several totals."""
    together: dict[str, list[LiveArrayGroup]] = {}
    for group in report.groups:
        for of in _common(report, group, by):
            together.setdefault(of, []).append(group)
    return together


def _common(report: LiveArrayReport, group: LiveArrayGroup, by: TotalsBy) -> list[str]:
    """Return the totals that a group belongs to: one, or by device one for each of its devices."""
    if by == "dtype":
        return [group.dtype]
    if by == "sharding":
        return [group.sharding]
    if by == "origin":
        return [UNKNOWN if group.origin is None else str(group.origin)]
    return [_device(report, device) for device, _ in group.device_counts]


def _device(report: LiveArrayReport, device: int) -> str:
    return f"{report.platform}:{device}"


def _total(by: TotalsBy, of: str, groups: Sequence[LiveArrayGroup]) -> LiveArrayTotal:
    held = held_nbytes(groups)
    return LiveArrayTotal(
        by=by,
        of=of,
        count=sum(group.count for group in groups),
        nbytes=max(held.values(), default=0),
        total_nbytes=held.total(),
    )


def _by_device(report: LiveArrayReport) -> list[LiveArrayTotal]:
    host = dict(report.host_nbytes)
    counts: Counter[int] = Counter()
    for group in report.groups:
        for device, count in group.device_counts:
            counts[device] += count
    return [
        LiveArrayTotal(
            by="device",
            of=_device(report, device),
            count=counts[device],
            nbytes=nbytes,
            total_nbytes=nbytes + host.get(device, 0),
        )
        for device, nbytes in report.device_nbytes
    ]
