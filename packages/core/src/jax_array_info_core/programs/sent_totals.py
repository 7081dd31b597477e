"""Totals of the bytes that the collectives of a program send."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..base.grouping import by_key
from ..base.quantities import LARGEST
from ..facts.reports.collectives import (
    Collective,
    SentBytes,
    SentOverLink,
    SentTotals,
    most_nbytes,
    sent_by,
)
from ..geometry.layouts.links import LINKS, Link
from ..xla.hlo.collectives import Movement
from ..xla.hlo.loops import Executions, loops_of


def runs_of(moved: Iterable[Movement], executions: Mapping[str, Executions]) -> int | None:
    """Return how many collectives run in one call outside of loops of unknown length.

    A collective of several arrays counts once, and one that sends nothing not at all. None if one is in a
    conditional.

    Args:
        moved: What the collectives move.
        executions: Number of executions of each computation.
    """
    total = 0
    sending = {(move.value.computation, move.instruction.name) for move in moved if move.sent_nbytes}
    for computation, _ in sending:
        runs = executions[computation].runs
        if runs is None or any(within and not loops_of(within) for within in runs):
            return None
        total += runs.get((), 0)
    return total


def totals_of(
    collectives: Iterable[Collective],
    bandwidths: Mapping[Link, int] | None = None,
    executions: int | None = None,
) -> SentTotals:
    """Return the totals of the bytes that collectives send.

    Args:
        collectives: The collectives of a program.
        bandwidths: Bytes per second of some links, per device and direction.
        executions: How many of them run in one call, as of ``runs_of``.
    """
    rows = tuple(collectives)
    total = sent_by(rows)
    return SentTotals(
        nbytes=total.nbytes,
        unknown_count=total.unknown_count,
        executions=executions,
        bound_nbytes=most_nbytes(rows),
        per_iteration=total.per_iteration,
        by_kind_and_axes=_totals(rows, "kind", "axes"),
        by_phase=_totals(rows, "phase"),
        by_link=_by_link(rows, bandwidths or {}),
    )


def _by_link(rows: Iterable[Collective], bandwidths: Mapping[Link, int]) -> tuple[SentOverLink, ...]:
    """Return the totals of the rows over each link, the slowest first."""
    by_link = by_key((row.link, row) for row in rows)
    totals = []
    for link in (*reversed(LINKS), None):
        if link not in by_link:
            continue
        total = sent_by(by_link[link])
        sure = sum(row.total_nbytes or 0 for row in by_link[link] if row.is_over_link_alone)
        bandwidth = None if link is None else bandwidths.get(link)
        totals.append(
            SentOverLink(
                link=link,
                nbytes=total.nbytes,
                unknown_count=total.unknown_count,
                per_iteration=total.per_iteration,
                # A larger number may be none of a float.
                least_seconds=None if bandwidth is None else min(sure, LARGEST) / bandwidth,
            )
        )
    return tuple(totals)


def _totals(rows: Iterable[Collective], *names: str) -> tuple[SentBytes, ...]:
    """Return the totals of the rows that agree in some fields, the most bytes first."""
    alike = by_key((tuple(getattr(row, name) for name in names), row) for row in rows)
    totals = [
        sent_by(collectives, **dict(zip(names, key, strict=True))) for key, collectives in alike.items()
    ]
    return tuple(sorted(totals, key=lambda total: (-total.nbytes, -total.unknown_count, repr(total))))
