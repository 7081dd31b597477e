"""Collectives of a program: the bytes sent per device, in total and for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import RenderableType

from jax_array_info_core import Collective, ProgramReport, SentBytes, SentTotals, format_bytes
from jax_array_info_core.layouts.dtypes import type_text
from jax_array_info_core.reports.folded_paths import folded_paths
from jax_array_info_core.reports.rows import split_rows
from jax_array_info_core.reports.unknown_bytes import unknown_bytes

from .. import style
from .pages import Page
from .program_words import (
    collective_axes_words,
    counted_path,
    each_words,
    over_words,
    phase_words,
    scope_words,
    sent_words,
    total_words,
)
from .stacking import Grouping, StackedColumn, stacked_table
from .words import origin_words

_MOST_SUMS = 8
"""Maximum number of sums by kind and axes."""
_WIDE: Grouping = (
    ("total",), ("each",), ("collective",), ("over",), ("array",), ("argument",), ("line",), ("scope",),
    ("phase",),
)  # fmt: skip
_GROUPINGS: Sequence[Grouping] = (
    _WIDE,
    (("total", "each"), ("collective", "over"), ("array", "argument"), ("line", "scope", "phase")),
    (("total", "each"), ("collective", "over", "phase"), ("array", "argument", "line", "scope")),
    (("total", "each"), ("collective", "over", "array", "argument", "line", "scope", "phase")),
)


def write_sent(page: Page, report: ProgramReport) -> None:
    """Add the bytes that a device sends, with the sums by kind and axes."""
    sent = report.sent
    words = _total(sent)
    if not report.collectives and not sent.nbytes and not sent.unknown_count:
        words = "none" if not report.unread_sending else "none in the lines that could be read"
    elif sent.unknown_count:
        bounds = [collective.bound_nbytes for collective in report.collectives]
        known = [bound for bound in bounds if bound is not None]
        if len(known) == len(bounds):
            words += f", at most {format_bytes(sum(known))}"
    page.write(f"sent per device and call: {words}{_phases(sent)}", look="bold")
    shown, rest = split_rows(sent.by_kind_and_axes, _MOST_SUMS)
    sizes = [_total(part) for part in shown]
    widest = max(map(len, sizes), default=0)
    for size, part in zip(sizes, shown, strict=True):
        page.write_entry(size.rjust(widest), "", f"{part.kind or 'unknown'} {over_words(part.axes)}")
    if rest:
        more = sent_words(sum(part.nbytes for part in rest), sum(part.unknown_count for part in rest))
        page.write_entry("", "", f"and {len(rest)} more, {more}")
    for reason in unknown_bytes(report):
        page.write(f"?: {reason}", indent=2, look=style.WARNING)


def _total(part: SentBytes | SentTotals) -> str:
    return sent_words(part.nbytes, part.unknown_count)


def _phases(sent: SentTotals) -> str:
    """Return the sums by pass, if any collective has one."""
    if not any(part.phase for part in sent.by_phase):
        return ""
    parts = [f"{part.phase or 'unknown pass'} {_total(part)}" for part in sent.by_phase]
    return f" ({', '.join(parts)})"


def collectives_table(
    report: ProgramReport, *, max_rows: int | None, width: int, encoding: str
) -> RenderableType | None:
    """Return the table of the collectives, the most bytes first; None if there are none."""
    shown, rest = split_rows(_folded(report.collectives, style.marks(encoding)), max_rows)
    if not shown:
        return None
    columns = _columns(shown, style.marks(encoding))
    times = style.marks(encoding).times
    has_factors = any(each_words(one, style.marks(encoding)) for one in shown)
    factors = f": bytes each {times} number {times} executions" if has_factors else ""
    return stacked_table(
        f"collectives{factors}",
        columns,
        _GROUPINGS,
        width=width,
        encoding=encoding,
        rest=_rest(rest) if rest else None,
    )


def _folded(collectives: Sequence[Collective], marks: style.Marks) -> list[Collective]:
    """Return the collectives, those of arguments that differ only in the indices of their paths as one."""
    paths = [one.path or "" for one in collectives]
    folded = []
    for path, members in folded_paths(paths, [replace(one, path=None, count=1) for one in collectives]):
        count = sum(collectives[member].count for member in members)
        name = counted_path(path, len(members), marks) if path else None
        folded.append(replace(collectives[members[0]], path=name, count=count))
    if len(folded) < len(collectives):
        folded.sort(key=lambda one: (one.times is not None, -(one.bound_nbytes or 0)))
    return folded


def _columns(collectives: Sequence[Collective], marks: style.Marks) -> list[StackedColumn]:
    return [
        StackedColumn("total", [*map(total_words, collectives)], is_number=True),
        StackedColumn("each", [each_words(one, marks) for one in collectives], is_number=True),
        StackedColumn("collective", [one.kind for one in collectives]),
        StackedColumn("over", [*map(collective_axes_words, collectives)], "over "),
        StackedColumn("array", [type_text(one.dtype, one.shape) for one in collectives]),
        StackedColumn("argument", [one.path or "" for one in collectives], is_path=True),
        StackedColumn("line", [origin_words(one.origin) for one in collectives]),
        StackedColumn("scope", [scope_words(one.scopes) for one in collectives], "in ", is_path=True),
        StackedColumn("phase", [*map(phase_words, collectives)]),
    ]


def _rest(rest: Sequence[Collective]) -> dict[str, str]:
    """Return the cells of the row that sums further collectives."""
    known = sum(one.total_nbytes or 0 for one in rest)
    unknown = sum(one.count for one in rest if one.total_nbytes is None)
    count = sum(one.count for one in rest)
    return {
        "total": sent_words(known, unknown),
        "collective": f"{count} more" if count != 1 else "1 more",
    }
