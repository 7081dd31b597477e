"""The lines of the user's source that send, keep or repeat, the costliest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...base.grouping import by_key
from ...base.quantities import decimal_words, format_bytes
from ...base.text import that_apply
from ..reports import Collective, ProgramReport
from ..reports.collectives import because_words, over_words, sent_by, sent_words
from ..reports.line_costs import LineCost
from ..reports.program import costs_of
from ..reports.work import LEAST_SHARE
from .blocks import Listing, Sentence, listed, more
from .folds import folded_text, without_indices
from .words import origin_words

_FIRST = 5
"""Number of lines that a page has before further rows of other lists."""


def line_blocks(report: ProgramReport) -> Iterator[Listing]:
    """Yield the lines, each with its bytes and the reason of most of them; all rows add up to the totals."""
    costs = costs_of(report)
    lines = costs.lines
    if not lines:
        return

    def entry(line: LineCost) -> Sequence[str]:
        sent, live = _costs([costs.without_small(line)])
        most = max((work.share or 0 for work in line.work), default=0)
        share = f"{decimal_words(most)} times its share" if most >= LEAST_SHARE else ""
        place = origin_words(line.origin, "line unknown")
        return sent, ", ".join(filter(None, (place, live, share))), _reason(line, report)

    def rest(others: Sequence[LineCost]) -> str:
        sent, live = _costs(others)
        words = (more(len(others), "line", "lines"), f"{sent} sent" if sent else "", live)
        return ", ".join(filter(None, words))

    nbytes = report.memory.live_nbytes if report.memory else None
    live = f", and live at once ({format_bytes(nbytes)} in total, estimated)" if nbytes else ""
    yield Sentence(f"lines by cost: bytes sent{live}")
    yield listed(lines, entry, rest, first=_FIRST)


def _costs(lines: Sequence[LineCost]) -> tuple[str, str]:
    """Return what lines send, and what they keep; an empty text for nothing."""
    collectives = [collective for line in lines for collective in line.collectives]
    nbytes = sum(line.live_nbytes for line in lines)
    sent = sent_words(sent_by(collectives), has_loops=False) if collectives else ""
    return sent, f"{format_bytes(nbytes)} live" if nbytes else ""


def _reason(line: LineCost, report: ProgramReport) -> str:
    """Return what sends the most bytes of a line and why, and the number of other collectives."""

    def way(collective: Collective) -> tuple[str, str, str]:
        axes = over_words(collective.axes, report.mesh)
        return collective.kind, axes, without_indices(because_words(collective))

    ways = by_key((way(collective), collective) for collective in line.collectives)
    if not ways:
        return ""
    most = max(
        ways.values(),
        key=lambda alike: (line._replace(collectives=(*alike,)).sending_nbytes, bool(alike[0].because)),
    )
    because = folded_text([*map(because_words, most)])
    others = sum(one.count for one in line.collectives) - sum(one.count for one in most)
    return "".join(
        that_apply(
            (True, f"{most[0].kind} {over_words(most[0].axes, report.mesh)}"),
            (because, f" because {because}"),
            (others, f"; {more(others)}"),
        )
    )
