"""Findings as text: the code and the cost, the problem, the fix, and the leaves with the most bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rich.cells import cell_len

from jax_array_info_core import format_bytes
from jax_array_info_core.layouts.spec import effective_spec
from jax_array_info_core.pages.folds import folded_paths, split_rows
from jax_array_info_core.reports import Finding, FindingLeaf
from jax_array_info_core.text import plain_text

from .. import style
from .pages import Page
from .program_words import folded_text, without_indices
from .words import origin_words

MIN_SHARE = 0.01
"""Part of the total below which the leaves of a finding are summed in one line."""
_GAP = "  "
_EACH = "full replication"
"""The kind of finding whose rows have the bytes of one value: alike ones are not there at the same time."""


def check_share(min_share: object) -> None:
    """Raise ValueError for a value that is not a fraction from 0 to 1."""
    if isinstance(min_share, bool) or not isinstance(min_share, int | float) or not 0 <= min_share <= 1:
        raise ValueError(f"min_share must be a fraction from 0 to 1, got {plain_text(min_share, repr)}")


def write_findings(
    page: Page,
    findings: Iterable[Finding],
    *,
    total: int,
    syntax: str = "python",
    sizes: Mapping[str, int] | None = None,
    min_share: float = MIN_SHARE,
    max_rows: int | None = 10,
) -> None:
    """Add findings, each with its first leaves.

    Leaves that differ only in the indices of their paths share a row. Paths are never truncated.

    Args:
        page: The page.
        findings: The findings.
        total: Bytes per device of all leaves.
        syntax: Language in which the fixes name arguments: ``python`` or ``shell``.
        sizes: Sizes of the mesh axes by name; specs are shown without those of size 1.
        min_share: Part of the total below which leaves are summed in one line.
        max_rows: Maximum number of rows of each finding; None shows all.
    """
    for finding in findings:
        cost = f": {format_bytes(finding.nbytes)} per device" if finding.nbytes else ""
        page.write_rule(f"{finding.code} {finding.name}{cost}")
        page.write(finding.problem, hang=0)
        page.write(finding.remedy_in("shell" if syntax == "shell" else "python"), hang=0)
        if finding.leaves:
            is_each = finding.kind == _EACH
            _write_leaves(page, finding.leaves, sizes or {}, min_share * total, max_rows, min_share, is_each)


def _write_leaves(
    page: Page,
    leaves: Sequence[FindingLeaf],
    sizes: Mapping[str, int],
    least: float,
    max_rows: int | None,
    min_share: float,
    is_each: bool,
) -> None:
    """Add the leaves of a finding: in columns if these fit, else with the facts below each path."""
    facts = [replace(leaf, path="", remedy=without_indices(leaf.remedy)) for leaf in leaves]
    folded = folded_paths([leaf.path for leaf in leaves], facts)
    rows = [(path, [leaves[index] for index in members]) for path, members in folded]
    rows.sort(key=lambda row: -_nbytes(row[1]))
    small = [row for row in rows[1:] if row[1][0].nbytes is not None and _nbytes(row[1]) < least]
    shown, rest = split_rows([row for row in rows if row not in small], max_rows)
    entries = [
        list(map(page.safe, _entry(path, leaves, sizes, page.marks, is_each))) for path, leaves in shown
    ]
    widths = [max(map(cell_len, column)) for column in zip(*entries, strict=True)]
    if sum(len(_GAP) + width for width in widths if width) <= page.width:
        for size, *words in entries:
            cells = [size.rjust(widths[0]), *words]
            pairs = zip(cells, widths, strict=True)
            padded = [cell + " " * (width - cell_len(cell)) for cell, width in pairs if width]
            page.write(_GAP.join(padded).rstrip(), indent=len(_GAP))
    else:
        for size, path, *words, reason in entries:
            page.write_entry(size.rjust(widths[0]), path, *words, reason)
    known = [leaves for _, leaves in shown if leaves[0].nbytes is not None]
    if any(len(leaves) > 1 for leaves in known):
        page.write(f"{page.marks.times}n: n leaves; the bytes are their sum", indent=len(_GAP))
    if not is_each and any(leaf.count > 1 for leaves in known for leaf in leaves):
        page.write(f"{page.marks.times}n: n alike; the bytes are their sum", indent=len(_GAP))
    _write_rest(page, rest, "more")
    _write_rest(page, small, f"more below {100 * min_share:g}%")


def _write_rest(page: Page, rows: Sequence[tuple[str, Sequence[FindingLeaf]]], words: str) -> None:
    left = [leaf for _, leaves in rows for leaf in leaves]
    if left:
        nbytes = f", {format_bytes(_nbytes(left))}" if _nbytes(left) else ""
        page.write(f"and {sum(leaf.count for leaf in left)} {words}{nbytes}", indent=len(_GAP))


def _entry(
    path: str, leaves: Sequence[FindingLeaf], sizes: Mapping[str, int], marks: style.Marks, is_each: bool
) -> Iterator[str]:
    """Yield the texts of leaves that differ only in the indices of their paths; some are empty.

    They are the summed bytes, or those of one if ``is_each``, the path or the line, the array, its spec, the
    expected spec, the change of its sharding, the line of a value with a path, and the fix or the reason.
    """
    leaf = leaves[0]
    count = sum(one.count for one in leaves)
    if is_each and count > 1 and leaf.nbytes is not None:
        yield f"{format_bytes(leaf.nbytes)} each"
    else:
        yield "" if leaf.nbytes is None else format_bytes(_nbytes(leaves))
    place = path or (origin_words(leaf.origin) if leaf.origin else leaf.place)
    yield f"{place} {marks.times}{count}" if count > 1 else place
    yield leaf.array
    yield "" if leaf.spec is None else str(effective_spec(leaf.spec, sizes))
    yield "" if leaf.expected is None else f"expected {effective_spec(leaf.expected, sizes)}"
    yield leaf.change
    yield origin_words(leaf.origin) if path and leaf.origin else ""
    nbytes_after = sum(one.nbytes_after or 0 for one in leaves)
    reason = folded_text([one.remedy for one in leaves])
    yield reason + ("" if leaf.nbytes_after is None else f": {format_bytes(nbytes_after)}")


def _nbytes(leaves: Iterable[FindingLeaf]) -> int:
    return sum((leaf.nbytes or 0) * leaf.count for leaf in leaves)
