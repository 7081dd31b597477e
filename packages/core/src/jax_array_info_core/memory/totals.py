"""LiveArrayReport → what its arrays take together, by origin, device, dtype, sharding or shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from .model import LiveArrayGroup, LiveArrayReport

By = Literal["shape", "origin", "device", "dtype", "sharding"]
"""What live arrays are put together by."""

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class LiveArrayTotal:
    """Live arrays that have one thing in common."""

    of: str
    """What they have in common, such as ``train.py:141 init_params`` or ``bfloat16``."""

    count: int
    """How many arrays they are; by device: how many have a part there."""

    nbytes: int
    """What the device of this process that holds the most of them holds of them, in bytes."""

    total_nbytes: int
    """What all devices of this process hold of them, in bytes."""

    groups: tuple[LiveArrayGroup, ...]
    """The arrays."""


def held_nbytes(groups: Sequence[LiveArrayGroup]) -> Counter[int]:
    """Return the bytes that each device of this process holds of some arrays, each array by itself."""
    nbytes: Counter[int] = Counter()
    for group in groups:
        for device, count in group.device_counts:
            nbytes[device] += group.shard_nbytes * count
    return nbytes


def live_array_totals(report: LiveArrayReport, by: By) -> tuple[LiveArrayTotal, ...]:
    """Return what live arrays take together that have one thing in common, the most bytes first.

    Bytes are sums over the arrays: what arrays share counts for each of them. By device they are those
    of the report, ``device_nbytes`` and ``host_nbytes``, in which it counts once.

    Args:
        report: What is alive; for ``origin`` one that tells the origins.
        by: What the arrays of one total have in common.

    Raises:
        ValueError: arrays cannot be put together by that.
    """
    check_totals_by(by)
    if by == "device":
        totals = _by_device(report)
    else:
        together: dict[str, list[LiveArrayGroup]] = {}
        for group in report.groups:
            together.setdefault(_common(group, by), []).append(group)
        totals = [_total(of, groups) for of, groups in together.items()]
    return tuple(sorted(totals, key=lambda total: (-total.nbytes, -total.total_nbytes, total.of)))


def check_totals_by(by: str) -> None:
    """Raise ValueError where live arrays cannot be put together by something."""
    if by not in get_args(By):
        raise ValueError(f"by is one of {', '.join(map(repr, get_args(By)))}; got {by!r}")


def _common(group: LiveArrayGroup, by: By) -> str:
    if by == "shape":
        return str(group.shape)
    if by == "dtype":
        return group.dtype
    if by == "sharding":
        return group.sharding
    return UNKNOWN if group.origin is None else str(group.origin)


def _total(of: str, groups: Sequence[LiveArrayGroup]) -> LiveArrayTotal:
    held = held_nbytes(groups)
    return LiveArrayTotal(
        of,
        sum(group.count for group in groups),
        max(held.values(), default=0),
        held.total(),
        tuple(groups),
    )


def _by_device(report: LiveArrayReport) -> list[LiveArrayTotal]:
    host = dict(report.host_nbytes)
    counts: Counter[int] = Counter()
    groups: dict[int, list[LiveArrayGroup]] = {}
    for group in report.groups:
        for device, count in group.device_counts:
            counts[device] += count
            groups.setdefault(device, []).append(group)
    return [
        LiveArrayTotal(
            f"{report.platform}:{device}",
            counts[device],
            nbytes,
            nbytes + host.get(device, 0),
            tuple(groups.get(device, ())),
        )
        for device, nbytes in report.device_nbytes
    ]
