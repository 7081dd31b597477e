"""Costs that are accepted: the least bytes and the share that a finding needs, for all codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ...base.quantities import bytes_apart, format_bytes, shares_apart

if TYPE_CHECKING:
    from .codes import FindingKind

MIN_NBYTES = 64 * 2**10
"""Bytes per device below which a finding about bytes is left out, unless another limit is passed."""


class Floor(NamedTuple):
    """What a finding of a category costs at least."""

    cost: str
    """The cost in words, with braces for the bytes."""

    has_share: bool = False
    """Whether it also needs more than ``max_replicated`` of the bytes of the fullest device."""

    nbytes: int | None = None
    """Least bytes per device that no argument changes; None for those of ``min_nbytes``."""


FLOORS: dict[FindingKind, Floor] = {
    "avoidable replication": Floor("avoidable replicas of {}", has_share=True),
    "fewer devices": Floor("{} of leaves on fewer devices"),
    "missing donation": Floor("{} per device not donated", nbytes=2**20),
    "repeated value": Floor("{} per device of repeated values"),
    "replicated value": Floor("{} per device of replicated values"),
}
"""The floors of the findings whose cost is bytes that are held or repeated. Findings about correctness, such
as unexpected shardings and invalid specs, have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a report below which costs are accepted."""

    min_nbytes: int = 0
    """Least bytes per device of a finding that has a floor."""

    max_replicated: float = 0
    """Share of ``total_nbytes`` that is accepted by the findings that need one."""

    total_nbytes: int = 0
    """Bytes of the fullest device."""

    def accept(self, kind: FindingKind, nbytes: int | None) -> bool:
        """Return whether a cost in bytes per device is accepted; not if it is unknown."""
        if kind not in FLOORS or nbytes is None:
            return False
        return self._is_small_share(FLOORS[kind], nbytes) or nbytes < self._least(FLOORS[kind])

    def words(self, kind: FindingKind, nbytes: int) -> str:
        """Return a cost that is accepted, with the limit that it does not exceed if there is one."""
        floor, size, part, reason = FLOORS[kind], format_bytes(nbytes), "", ""
        if floor.has_share:
            share, most = shares_apart(nbytes / max(self.total_nbytes, 1), self.max_replicated)
            part = f" ({share})" if self.total_nbytes else ""
            reason = f", within the limit of {most}" if self._is_small_share(floor, nbytes) else ""
        if not reason and nbytes < (least := self._least(floor)):
            size, limit = bytes_apart(nbytes, least)
            reason = f", below the limit of {limit}"
        return f"accepted: {floor.cost.format(size)}{part}{reason}"

    def _is_small_share(self, floor: Floor, nbytes: int) -> bool:
        return floor.has_share and nbytes <= self.max_replicated * self.total_nbytes

    def _least(self, floor: Floor) -> int:
        return self.min_nbytes if floor.nbytes is None else floor.nbytes
