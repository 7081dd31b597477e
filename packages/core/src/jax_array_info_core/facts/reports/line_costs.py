"""The costs of a program by line of the user's source, and of its findings, as parts of what it costs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ...base.grouping import by_key
from ...base.quantities import format_bytes, percent_words
from .collectives import Collective, sent_by, sent_words
from .findings import Finding
from .origin import Origin
from .program_memory import ProgramMemory, Temporary
from .work import WorkLine, WorkShare

_LEAST = 0.001
"""Smallest part of a cost of the program that the entry of a line has."""


class LineCost(NamedTuple):
    """What a line of the user's source sends, keeps and repeats."""

    origin: Origin | None
    """The line; None for operations without a known one."""

    collectives: tuple[Collective, ...] = ()
    """Its collectives, the most bytes first."""

    temporaries: tuple[Temporary, ...] = ()
    """Those of the largest temporary values at the highest point that it computes."""

    work: tuple[WorkLine, ...] = ()
    """Its heavy work, where a device does more than its share."""

    @property
    def sending_nbytes(self) -> int:
        """Most bytes that it sends in one call; in a loop of unknown length, in one iteration."""
        return sum(collective.nbytes_within or 0 for collective in self.collectives)

    @property
    def live_nbytes(self) -> int:
        """Bytes of the temporary values."""
        return sum(temporary.nbytes * temporary.count for temporary in self.temporaries)

    @property
    def repeated_flops(self) -> int:
        """Operations that a device repeats."""
        return sum(work.repeated_flops for work in self.work)


@dataclass(frozen=True)
class Costs:
    """What a program costs, to compare its findings and lines with."""

    collectives: tuple[Collective, ...] = ()
    """The collectives."""

    memory: ProgramMemory | None = None
    """The memory per device."""

    work: WorkShare | None = None
    """The heavy work of a device."""

    is_sent_known: bool = True
    """Whether all bytes sent are known."""

    @cached_property
    def lines(self) -> list[LineCost]:
        """What each line sends, keeps and repeats; the largest sum of parts of the costs first."""
        temporaries = (self.memory and self.memory.temporaries) or ()
        repeating = [line for line in (self.work.lines if self.work else ()) if line.repeated_flops]
        parts = [_by_line(rows) for rows in (self.collectives, temporaries, repeating)]
        lines = []
        for key in dict.fromkeys(key for placed in parts for key in placed):
            rows = [tuple(row for _, row in placed.get(key, ())) for placed in parts]
            origins = [origin for placed in parts for origin, _ in placed.get(key, ())]
            # A line that is known itself is not near another one.
            origin = min(origins, key=lambda one: one is not None and one.is_near)
            lines.append(LineCost(origin, *rows))
        return sorted(lines, key=lambda line: (line.origin is None, -sum(self.of_line(line))))

    def of_finding(self, finding: Finding) -> float:
        """Return the largest of the parts of the costs that a finding is about."""
        return max(self._parts(finding.sent_nbytes or 0, finding.nbytes or 0, finding.flops or 0))

    def of_line(self, line: LineCost) -> tuple[float, float, float]:
        """Return the parts of the costs that a line has."""
        return self._parts(line.sending_nbytes, line.live_nbytes, line.repeated_flops)

    def without_small(self, line: LineCost) -> LineCost:
        """Return a line without what is less than a thousandth of the program's."""
        sent, memory, _ = self.of_line(line)
        kept = line if sent >= _LEAST else line._replace(collectives=())
        return kept if memory >= _LEAST else kept._replace(temporaries=())

    def words(self, line: LineCost) -> str:
        """Return the largest part of a line: ``552.6 MiB sent at m1.py:39 (82%)``; empty if it is unknown."""
        sent, memory, work = self.of_line(line)
        place = f"at {'lines that are not known' if line.origin is None else line.origin.place}"
        if work > max(sent, memory):
            return f"{percent_words(work, decimals=0)} of the work repeated {place}"
        if memory > sent:
            return f"{format_bytes(line.live_nbytes)} of memory {place} ({percent_words(memory, decimals=0)})"
        totals = sent_by(line.collectives)
        share = f" ({percent_words(sent, decimals=0)})" if self.is_sent_known else ""
        # What depends on data, or runs an unknown number of times, can be less.
        is_known = all(
            collective.times is not None or collective.is_in_loop for collective in line.collectives
        )
        return f"{sent_words(totals, has_loops=False)} sent {place}{share}" if is_known else ""

    @cached_property
    def _wholes(self) -> tuple[int, int, int]:
        """The bytes sent, as ``LineCost.sending_nbytes``, those needed, and the operations; at least 1."""
        sent = LineCost(None, self.collectives).sending_nbytes
        needed = (self.memory.needed_nbytes if self.memory else None) or 0
        return max(sent, 1), max(needed, 1), max(self.work.flops if self.work else 0, 1)

    def _parts(self, sent: int, nbytes: int, flops: int) -> tuple[float, float, float]:
        all_sent, needed, all_flops = self._wholes
        return sent / all_sent, nbytes / needed, flops / all_flops


def _by_line(rows: Iterable[Any]) -> dict[Hashable, list[tuple[Origin | None, Any]]]:
    """Return rows with their origins by file and line."""
    placed = ((row.origin, row) for row in rows)
    return by_key(
        (None if origin is None else (origin.file, origin.line, origin.cell), (origin, row))
        for origin, row in placed
    )
