"""Text for ``CheckReport``: what was checked, and the findings with their leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from jax_array_info.tables.folds import folded_paths, split_rows
from jax_array_info_core import format_bytes
from jax_array_info_core.layouts.spec import effective_spec
from jax_array_info_core.quantities import counted
from jax_array_info_core.reports import CheckReport, Finding, FindingLeaf

from .. import style
from .pages import Page
from .tree_words import unmatched_lines

_MAX_ROWS = 10
_GAP = "  "


def check_table(report: CheckReport, *, width: int = 80) -> RenderableType:
    """Return what was checked, then each finding with its first leaves, at most 10 rows.

    Leaves that differ only in the indices of their paths share a row. Paths are never truncated.

    Args:
        report: The check.
        width: Maximum line length in characters.
    """

    def make(_: Console, options: ConsoleOptions) -> Text:
        page = Page(min(width, options.max_width), options.encoding)
        page.write(report.heading, look="bold", hang=0)
        for words in _summary(report):
            page.write(words, hang=0)
        sizes = _sizes(report)
        for finding in report.findings:
            page.write_rule(finding.kind)
            page.write(finding.problem, hang=0)
            page.write(finding.remedy, hang=0)
            _write_leaves(page, finding, sizes)
        return page.text()

    return style.ForConsole(make)


def _summary(report: CheckReport) -> Iterator[str]:
    """Yield the bytes per device, and the leaves to which some of the checks do not apply."""
    avoidable = ""
    if report.avoidable_nbytes:
        share = report.avoidable_nbytes / report.fullest_device_nbytes
        avoidable = f", {format_bytes(report.avoidable_nbytes)} ({share:.2%}) of it avoidable replicas"
    if report.leaf_count or report.ignored_count:
        yield f"leaves: {format_bytes(report.fullest_device_nbytes)} per device{avoidable}"
    if report.optimizer_words:
        yield f"optimizer: {format_bytes(report.optimizer_nbytes)} per device ({report.optimizer_words})"
    if report.hbm_nbytes is not None:
        required, available = format_bytes(report.required_nbytes), format_bytes(report.hbm_nbytes)
        yield f"memory: {required} of {available} per device, activations not counted"
    if report.unsharded_count:
        leaves = counted(report.unsharded_count, "leaf without a sharding", "leaves without a sharding")
        yield f"counted in full on each device: {leaves}"
    if report.uncounted_count:
        yield f"not counted: {counted(report.uncounted_count, 'leaf', 'leaves')} of unknown size per device"
    if report.numpy_count:
        yield f"not on devices: {counted(report.numpy_count, 'NumPy array', 'NumPy arrays')}"
    if report.other_count and report.leaf_count:
        yield f"not arrays: {counted(report.other_count, 'leaf', 'leaves')}"
    if report.unknown_count:
        leaves = counted(report.unknown_count, "leaf with unknown sharding", "leaves with unknown shardings")
        yield f"not checked: {leaves}"
    if report.ignored_count:
        yield f"ignored: {counted(report.ignored_count, 'leaf', 'leaves')}"
    if report.unmatched_axes is not None:
        yield from unmatched_lines(report.unmatched_axes)


def _sizes(report: CheckReport) -> dict[str, int]:
    """Return the sizes of the mesh axes by name, except those that differ between meshes."""
    pairs = {pair for mesh in report.meshes for pair in mesh.shape.items()}
    counts = Counter(name for name, _ in pairs)
    return {name: size for name, size in pairs if counts[name] == 1}


def _write_leaves(page: Page, finding: Finding, sizes: Mapping[str, int]) -> None:
    """Add the leaves of a finding: in columns if these fit, else with the facts below each path."""
    folded = folded_paths(
        [leaf.path for leaf in finding.leaves],
        [replace(leaf, path="") for leaf in finding.leaves],
    )
    rows = [(path, [finding.leaves[index] for index in members]) for path, members in folded]
    shown, rest = split_rows(sorted(rows, key=lambda row: -_nbytes(row[1])), _MAX_ROWS)
    entries = [list(map(page.safe, _entry(path, leaves, sizes, page.marks))) for path, leaves in shown]
    widths = [max(map(cell_len, column)) for column in zip(*entries, strict=True)]
    if sum(len(_GAP) + width for width in widths if width) <= page.width:
        for size, *facts in entries:
            cells = [size.rjust(widths[0]), *facts]
            pairs = zip(cells, widths, strict=True)
            padded = [cell + " " * (width - cell_len(cell)) for cell, width in pairs if width]
            page.write(_GAP.join(padded).rstrip(), indent=len(_GAP))
    else:
        for size, path, *facts in entries:
            page.write_entry(size.rjust(widths[0]), path, *facts)
    if rest:
        left = [leaf for _, leaves in rest for leaf in leaves]
        nbytes = f", {format_bytes(_nbytes(left))}" if _nbytes(left) else ""
        page.write(f"and {len(left)} more{nbytes}", indent=len(_GAP))


def _entry(
    path: str, leaves: Sequence[FindingLeaf], sizes: Mapping[str, int], marks: style.Marks
) -> Iterator[str]:
    """Yield the texts of leaves that differ only in the indices of their paths; some are empty.

    They are the summed bytes, the path, the array, its spec, the expected spec, and the fix.
    """
    leaf = leaves[0]
    yield "" if leaf.nbytes is None else format_bytes(_nbytes(leaves))
    yield (path or "(root)") + (f" {marks.times}{len(leaves)}" if len(leaves) > 1 else "")
    yield leaf.array
    yield "" if leaf.spec is None else str(effective_spec(leaf.spec, sizes))
    yield "" if leaf.expected is None else f"expected {effective_spec(leaf.expected, sizes)}"
    nbytes_after = sum(one.nbytes_after or 0 for one in leaves)
    yield leaf.remedy + ("" if leaf.nbytes_after is None else f": {format_bytes(nbytes_after)}")


def _nbytes(leaves: Iterable[FindingLeaf]) -> int:
    return sum(leaf.nbytes or 0 for leaf in leaves)
