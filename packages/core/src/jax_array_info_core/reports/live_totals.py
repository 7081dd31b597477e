"""Bytes of live arrays by origin, device, dtype or sharding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from .live import LiveArrayGroup, LiveArrayReport

TotalsBy = Literal["origin", "device", "dtype", "sharding"]
"""What the arrays of a total have in common."""

By = Literal["shape", "origin", "device", "dtype", "sharding"]
"""What live arrays are put together by; ``shape`` stands for all that a table shows of them."""

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveArrayTotal:
    """Live arrays that have one thing in common."""

    by: TotalsBy
    """The kind of thing that they have in common."""

    of: str
    """What they have in common, such as ``train.py:141 init_params`` or ``bfloat16``."""

    count: int
    """How many arrays they are; by device: how many have a part there."""

    nbytes: int
    """What the device of this process that holds the most of them holds of them, in bytes. A buffer that
    arrays share counts for each of them; by device it counts once."""

    total_nbytes: int
    """What all devices of this process hold of them, in bytes; by device: with what is in host memory."""


def held_nbytes(groups: Sequence[LiveArrayGroup]) -> Counter[int]:
    """Return the bytes that each device of this process holds of some arrays, each array by itself."""
    nbytes: Counter[int] = Counter()
    for group in groups:
        for device, count in group.device_counts:
            nbytes[device] += group.shard_nbytes * count
    return nbytes


def fullest_share(report: LiveArrayReport, groups: Sequence[LiveArrayGroup]) -> float | None:
    """Return which part of the bytes on the fullest device some arrays take: 0.25 for a quarter.

    Buffers that arrays share count for each of them. None where the arrays are in host memory, or nothing
    is on any device.
    """
    device, nbytes = max(report.device_nbytes, key=lambda pair: pair[1], default=(0, 0))
    on_device = [group for group in groups if not is_in_host_memory(report, group)]
    if not nbytes or (groups and not on_device):
        return None
    return held_nbytes(on_device)[device] / nbytes


def is_in_host_memory(report: LiveArrayReport, group: LiveArrayGroup) -> bool:
    """Return whether arrays are in host memory, where that is not their devices' default."""
    return bool(report.host_nbytes) and "host" in (group.memory_kind or "")


def check_totals_by(by: str) -> None:
    """Raise ValueError where live arrays cannot be put together by something."""
    if by not in get_args(By):
        raise ValueError(f"by must be one of {', '.join(map(repr, get_args(By)))}, got {by!r}")


def all_totals(report: LiveArrayReport) -> tuple[LiveArrayTotal, ...]:
    """Return what live arrays take together that have one thing in common, the most bytes first.

    Totals by origin are among them where origins were asked for.
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
    """Return the groups of a report by what they have in common; by device in each of theirs."""
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
