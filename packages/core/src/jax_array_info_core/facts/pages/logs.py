"""The page of the logs of a job."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from ...base.grouping import by_key
from ...base.quantities import counted, format_device_ids, format_number, grouped
from ...base.text import that_apply
from ..reports import LogFinding, LogReport, RankLog
from .blocks import Column, Entries, Limited, Listing, Row, Rule, Sentence, Table, said
from .findings import finding_blocks
from .words import mesh_words

_COLUMNS = (
    Column(
        "rank",
        meaning="ranks with the same end, from names of files or prefixes of lines; first what failed first",
    ),
    Column("last step", "number", meaning="last step, epoch or iteration that it printed"),
    Column("last time", meaning="last time of day in its log"),
    Column("end", meaning="its end, as far as its log tells"),
)
TABLES = {"ranks": _COLUMNS}
"""Columns of the table, by its title."""


def log_page(report: LogReport) -> Iterator[Listing]:
    """Yield what ended a job and in which rank, then what followed from it, the ranks and the warnings.

    Args:
        report: The report on the logs.
    """
    name = "standard input" if report.name == "-" else report.name
    mesh = "" if report.mesh is None else f"mesh: {mesh_words(report.mesh)}"
    ranks = counted(len(report.ranks), "rank", "ranks") if report.ranks else ""
    lines = f"{grouped(report.line_count)} {'line' if report.line_count == 1 else 'lines'}"
    warnings = counted(report.unlisted_count, "warning or error", "warnings or errors")
    yield Sentence(report.answer, "answer", is_searched=True)
    yield Sentence(", ".join(filter(None, (name, lines, ranks, mesh))))
    followed = [finding for finding in report.findings if finding.role == "consequence"]
    has_root = any(finding.role == "root" for finding in report.findings)
    consequences = followed if has_root else followed[1:]  # the first one says what to do
    yield from finding_blocks(finding for finding in report.findings if finding not in consequences)
    if consequences:
        yield from _consequences(consequences)
    if report.ranks:
        yield from _timeline(report.ranks, report.root_ranks)
    notes = that_apply(
        (report.ignored_codes, f"ignored codes: {', '.join(report.ignored_codes)}"),
        (report.unlisted_count, f"not listed: {warnings}, because of their number"),
    )
    yield from said(notes)


def _consequences(findings: Sequence[LogFinding]) -> Iterator[Listing]:
    """Yield lines that follow from the root, one for each kind."""
    yield Rule(f"{findings[0].code} {findings[0].name}", f"jai-cli explain {findings[0].code}")
    yield Entries([("", finding.kind, finding.problem) for finding in findings], in_columns=True)


def _timeline(ranks: Sequence[RankLog], roots: Collection[str]) -> Iterator[Listing]:
    """Yield the ranks with their last steps and times, by their ends: those that failed first come first."""
    groups = by_key(
        ((rank.rank not in roots, f"{rank.end}: {rank.text}" if rank.text else rank.end), rank)
        for rank in ranks
    )

    def show(shown: Sequence[tuple[tuple[bool, str], list[RankLog]]]) -> list[Row]:
        return [
            {
                "rank": _ranks_words([rank.rank for rank in group]),
                "last step": _span(
                    map(format_number, sorted(rank.step for rank in group if rank.step is not None))
                ),
                "last time": _span(sorted(rank.time for rank in group if rank.time)),
                "end": end,
            }
            for (_, end), group in shown
        ]

    def rest(others: Sequence[tuple[tuple[bool, str], list[RankLog]]]) -> list[Row]:
        return [{"rank": f"{format_number(sum(len(group) for _, group in others))} more"}]

    yield Table("ranks", _COLUMNS, [Limited(sorted(groups.items(), key=lambda item: item[0][0]), show, rest)])


def _ranks_words(ranks: Sequence[str]) -> str:
    """Return ranks, numbers as ranges such as ``0-36, 38``."""
    if all(map(str.isdecimal, ranks)):
        return format_device_ids([*map(int, ranks)]).replace(",", ", ")
    return ", ".join(ranks)


def _span(values: Iterable[str]) -> str:
    """Return the first and the last one of values, one if they are equal."""
    ends = [*values]
    return " to ".join(dict.fromkeys([*ends[:1], *ends[-1:]]))
