"""Findings: the code and the cost, the problem, the fix, and the leaves with the most bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from ...base.quantities import format_bytes
from ...base.text import plain_text, that_apply
from ...geometry.layouts.spec import effective_spec
from ..reports import Finding, FindingLeaf
from ..reports.findings import Syntax
from .blocks import (
    TIMES,
    Block,
    Entries,
    Further,
    Limited,
    Listing,
    Rule,
    Sentence,
    counted_path,
    said,
)
from .folds import folded, folded_text, without_indices
from .words import origin_words

MIN_SHARE = 0.01
"""Part of the total below which the leaves of a finding are summed in one line."""
_EACH = "full replication"
"""The kind of finding whose rows have the bytes of one value: alike ones are not there at the same time."""
_Rows = Sequence[tuple[str, Sequence[FindingLeaf]]]


def check_share(min_share: object) -> None:
    """Raise ValueError for a value that is not a fraction from 0 to 1."""
    if isinstance(min_share, bool) or not isinstance(min_share, int | float) or not 0 <= min_share <= 1:
        raise ValueError(f"min_share must be a fraction from 0 to 1, got {plain_text(min_share, repr)}")


def finding_blocks(
    findings: Iterable[Finding],
    *,
    total: int = 0,
    syntax: Syntax = "python",
    sizes: Mapping[str, int] | None = None,
    min_share: float = MIN_SHARE,
    in_full: int | None = None,
) -> Iterator[Listing]:
    """Yield findings, each with its leaves.

    Leaves that differ only in the indices of their paths share a row. Paths are never truncated.

    Args:
        findings: The findings.
        total: Bytes per device of all leaves.
        syntax: Language in which the fixes name arguments.
        sizes: Sizes of the mesh axes by name; specs are shown without those of size 1.
        min_share: Part of the total; the smallest leaves that take less together share a line.
        in_full: Number of findings that have room for a leaf on each page; None for all.
    """
    for place, finding in enumerate(findings):
        yield from heading(finding, syntax)
        if finding.leaves:
            leaves = _leaves(finding.leaves, sizes or {}, min_share, total, is_each=finding.kind == _EACH)
            is_full = in_full is None or place < in_full
            yield from leaves if is_full else [Further([*leaves], is_if_room=True)]


def heading(finding: Finding, syntax: Syntax = "python", prefix: str = "") -> Iterator[Block]:
    """Yield the code and the cost of a finding, its problem and its fix.

    Args:
        finding: The finding.
        syntax: Language in which the fix names arguments.
        prefix: Words before the cost on what it is about.
    """
    cost = f": {prefix}{format_bytes(finding.nbytes)} per device" if finding.nbytes else ""
    yield Rule(f"{finding.code} {finding.name}{cost}", f"jai-cli explain {finding.code}")
    yield Sentence(finding.problem, hang=0)
    if remedy := finding.remedy_in(syntax):
        yield Sentence(remedy, hang=0)


def _leaves(
    leaves: Sequence[FindingLeaf],
    sizes: Mapping[str, int],
    min_share: float,
    total: int,
    *,
    is_each: bool,
) -> Iterator[Listing]:
    """Yield the leaves of a finding, the most bytes first, and the sums of the others."""
    folds = folded(leaves, lambda leaf: replace(leaf, path="", remedy=without_indices(leaf.remedy)))
    rows = sorted(folds, key=lambda row: -_nbytes(row[1]))
    known = [row for row in rows[1:] if row[1][0].nbytes is not None]
    sums = accumulate(_nbytes(row[1]) for row in reversed(known))
    count = sum(nbytes < min_share * total for nbytes in sums)
    small = known[len(known) - count :] if count > 1 else []

    def show(shown: _Rows) -> list[Block]:
        entries = [_entry(path, alike, sizes, is_each=is_each) for path, alike in shown]
        known = [alike for _, alike in shown if alike[0].nbytes is not None]
        is_alike = not is_each and any(leaf.count > 1 for alike in known for leaf in alike)
        notes = that_apply(
            (any(len(alike) > 1 for alike in known), f"{TIMES}n: n leaves; the bytes are their sum"),
            (is_alike, f"{TIMES}n: n alike; the bytes are their sum"),
        )
        return [*([Entries(entries, in_columns=True)] if entries else []), *said(notes, indent=2)]

    yield Limited(
        [row for row in rows if row not in small], show, lambda others: _rest(others, "more"), is_whole=True
    )
    yield from _rest(small, f"more below {100 * min_share:g}%")


def _rest(rows: _Rows, words: str) -> Iterator[Sentence]:
    others = [leaf for _, leaves in rows for leaf in leaves]
    if others:
        nbytes = f", {format_bytes(_nbytes(others))}" if _nbytes(others) else ""
        yield Sentence(f"and {sum(leaf.count for leaf in others)} {words}{nbytes}", indent=2)


def _entry(
    path: str, leaves: Sequence[FindingLeaf], sizes: Mapping[str, int], *, is_each: bool
) -> tuple[str, ...]:
    """Return the texts of leaves that differ only in the indices of their paths; some are empty.

    They are the summed bytes, or those of one if ``is_each``, the path or the line, the array, its spec, the
    expected spec, the change of its sharding, the line of a value with a path, and the fix or the reason.
    """
    leaf, count = leaves[0], sum(member.count for member in leaves)
    size = "" if leaf.nbytes is None else format_bytes(_nbytes(leaves))
    if is_each and count > 1 and leaf.nbytes is not None:
        size = f"{format_bytes(leaf.nbytes)} each"
    after = format_bytes(sum(member.nbytes_after or 0 for member in leaves))
    return (
        size,
        counted_path(path or (origin_words(leaf.origin) if leaf.origin else leaf.place), count),
        leaf.array,
        "" if leaf.spec is None else str(effective_spec(leaf.spec, sizes)),
        "" if leaf.expected is None else f"expected {effective_spec(leaf.expected, sizes)}",
        leaf.change,
        origin_words(leaf.origin) if path and leaf.origin else "",
        folded_text([member.remedy for member in leaves])
        + ("" if leaf.nbytes_after is None else f": {after}"),
    )


def _nbytes(leaves: Iterable[FindingLeaf]) -> int:
    return sum((leaf.nbytes or 0) * leaf.count for leaf in leaves)
