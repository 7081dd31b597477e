"""Text for ``CheckReport``: what was checked, and the findings with their leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from jax_array_info.tables.folds import folded_paths, split_rows
from jax_array_info_core import format_bytes
from jax_array_info_core.layouts import Spec
from jax_array_info_core.layouts.spec import effective_spec
from jax_array_info_core.quantities import counted
from jax_array_info_core.reports import CheckReport, Finding, FindingLeaf
from jax_array_info_core.text import clipped, printable

from .. import style
from ..pictures.fitting import path_lines, wrapped
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
        page = _Page(min(width, options.max_width), options.encoding, _sizes(report))
        page.write(report.heading, look="bold")
        for words in _summary(report):
            page.write(words)
        for finding in report.findings:
            page.write_rule(finding.kind)
            page.write(finding.problem)
            page.write(finding.remedy)
            page.write_leaves(finding)
        return Text("\n").join(page.lines)

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


class _Entry(NamedTuple):
    """A leaf of a finding as text."""

    size: str
    path: str
    facts: tuple[str, ...]
    """Array, spec, expected spec, and the fix. Some are empty."""


def _nbytes(leaves: Iterable[FindingLeaf]) -> int:
    return sum(leaf.nbytes or 0 for leaf in leaves)


def _nbytes_after(leaves: Iterable[FindingLeaf]) -> int:
    return sum(leaf.nbytes_after or 0 for leaf in leaves)


class _Page:
    """Lines of text for a width and an encoding."""

    def __init__(self, width: int, encoding: str, sizes: Mapping[str, int]) -> None:
        self.lines: list[Text] = []
        self._sizes = sizes
        self._width = width
        self._encoding = encoding

    def write(self, words: str, *, indent: str = "", look: str = "") -> None:
        """Add a text, wrapped."""
        for line in wrapped(self._printable(words), max(1, self._width - len(indent))):
            self.lines.append(Text(indent + line, look))

    def write_rule(self, title: str) -> None:
        """Add a horizontal line with a title."""
        line = style.marks(self._encoding).horizontal
        rest = line * (self._width - len(title) - 4)
        self.lines.append(Text(f"{line * 2} {title} {rest}"[: self._width], f"bold {style.WARNING}"))

    def write_leaves(self, finding: Finding) -> None:
        """Add the leaves of a finding: in columns if these fit, else with the facts below each path."""
        folded = folded_paths(
            [leaf.path for leaf in finding.leaves],
            [replace(leaf, path="") for leaf in finding.leaves],
        )
        rows = [(path, [finding.leaves[index] for index in members]) for path, members in folded]
        shown, rest = split_rows(sorted(rows, key=lambda row: -_nbytes(row[1])), _MAX_ROWS)
        entries = [self._entry(path, leaves) for path, leaves in shown]
        size = max((len(entry.size) for entry in entries), default=0)
        columns = [(entry.size.rjust(size), entry.path, *entry.facts) for entry in entries]
        widths = [max(map(cell_len, cells)) for cells in zip(*columns, strict=True)]
        if sum(len(_GAP) + width for width in widths if width) <= self._width:
            for cells in columns:
                padded = [
                    _GAP + cell + " " * (width - cell_len(cell))
                    for cell, width in zip(cells, widths, strict=True)
                    if width
                ]
                self.lines.append(Text("".join(padded).rstrip()))
        else:
            for entry in entries:
                self._write_stacked(entry, size)
        if rest:
            left = [leaf for _, leaves in rest for leaf in leaves]
            nbytes = f", {format_bytes(_nbytes(left))}" if _nbytes(left) else ""
            self.write(f"and {len(left)} more{nbytes}", indent=_GAP)

    def _write_stacked(self, entry: _Entry, size: int) -> None:
        """Add a leaf with its facts below its path."""
        first = f"{_GAP}{entry.size:>{size}}{_GAP}" if size else _GAP
        indent = " " * len(first)
        for number, line in enumerate(path_lines(entry.path, max(1, self._width - len(first)))):
            self.lines.append(Text((indent if number else first) + line))
        indent += _GAP
        *facts, remedy = entry.facts
        words = _GAP.join(filter(None, facts))
        together = _GAP.join(filter(None, (words, remedy)))
        for text in (
            [together] if len(indent) + cell_len(together) <= self._width else filter(None, (words, remedy))
        ):
            self.write(text, indent=indent)

    def _entry(self, path: str, leaves: Sequence[FindingLeaf]) -> _Entry:
        """Return the entry of leaves that differ only in the indices of their paths, with summed bytes."""
        leaf = leaves[0]
        after = "" if leaf.nbytes_after is None else f": {format_bytes(_nbytes_after(leaves))}"
        facts = (
            leaf.array,
            "" if leaf.spec is None else self._spec(leaf.spec),
            "" if leaf.expected is None else f"expected {self._spec(leaf.expected)}",
            leaf.remedy + after,
        )
        size = "" if leaf.nbytes is None else format_bytes(_nbytes(leaves))
        times = f" {style.marks(self._encoding).times}{len(leaves)}" if len(leaves) > 1 else ""
        return _Entry(size, f"{self._printable(path or '(root)')}{times}", tuple(map(self._printable, facts)))

    def _spec(self, spec: Spec) -> str:
        """Return a spec without mesh axes of size 1 and without trailing entries of None."""
        return str(effective_spec(spec, self._sizes))

    def _printable(self, text: str) -> str:
        return printable(clipped(text), self._encoding)
