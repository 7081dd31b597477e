"""The part of a layout's grids that is drawn, its size, and the text of its cells.

A crowded picture names the platform once and shows bare ids, or letters for long lists of devices. If that is
still too large, it drops the rules between rows. Last, it leaves out rows, columns and facets in the middle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from numpy.typing import NDArray
from rich.cells import cell_len

from jax_array_info_core import Grids

from ..style import Marks
from .fitting import first_and_last, fit, wrapped
from .labels import Labels
from .palette import Holder

MAX_FACETS = 40
_HEIGHT_TO_WIDTH = 2.5
_EXTREME = 8.0
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

_T = TypeVar("_T")

Span = tuple[int | None, int]
"""A row or a column, with its size in characters without borders; None is the gap of those left out."""

Cell = tuple[str, Holder | None]
"""The text of a cell and the devices that hold it; None in a gap."""


@dataclass(frozen=True, slots=True)
class Canvas:
    """The room that a picture has, and how large it is wished for."""

    scale: float
    min_width: int
    max_width: int
    marks: Marks
    lines: int = 0
    """How many lines there are for the grids and what is said of them."""
    rule_lines: int = 0
    """How many of them are over each grid."""

    def column_widths(self, grids: Grids, columns: Sequence[int]) -> list[int]:
        """Return the widths of some columns, without borders."""
        down, across = sum(grids.row_lengths), sum(grids.column_lengths)
        array_width = 0
        if len(grids.axes) == 2 and down and across:
            array_width = int(int(10 * self.scale) * _legible(across / down))
        parts = (grids.column_lengths[column] / max(across, 1) for column in columns)
        widths = (int(part * array_width * _HEIGHT_TO_WIDTH) for part in parts)
        return [min(max(width, self.min_width), self.max_width) - 2 for width in widths]

    def row_heights(self, grids: Grids, rows: Sequence[int]) -> list[int]:
        """Return the heights of some rows, without borders; a 1-D array is one line high."""
        if len(grids.axes) < 2:
            return [1 for _ in rows]
        down, height = max(sum(grids.row_lengths), 1), int(10 * self.scale)
        return [max(1, int(grids.row_lengths[row] / down * height) - 1) for row in rows]

    def rule(self, title: str) -> list[str]:
        """Return a line across the picture with a title in it; the title alone where that is too long."""
        title = f" {title} "
        if cell_len(title) > self.max_width - 2:
            return wrapped(title.strip(), self.max_width)
        left = (self.max_width - cell_len(title)) // 2
        right = self.max_width - cell_len(title) - left
        return [self.marks.horizontal * left + title + self.marks.horizontal * right]

    def lines_of(self, notes: Sequence[str]) -> int:
        """Return how many lines some notes take."""
        return sum(len(wrapped(note, self.max_width)) for note in notes)


def _legible(ratio: float) -> float:
    """Return a ratio of lengths, compressed by its logarithm where it is extreme."""
    if ratio < 1:
        return 1 / _legible(1 / ratio) if ratio > 0 else 0
    return ratio if ratio <= _EXTREME else _EXTREME * (1 + math.log2(ratio / _EXTREME))


@dataclass(frozen=True, slots=True)
class Arrangement:
    """What is drawn of the grids."""

    facets: list[int]
    rows: list[Span]
    columns: list[Span]
    cells: list[list[list[Cell]]]
    """By facet, row and column, gaps included."""
    notes: Sequence[str]
    """What is said once of all cells."""
    is_ruled: bool
    """Whether there are rules between the rows."""

    @property
    def shown(self) -> tuple[int, int, int]:
        """How many facets, rows and columns are drawn."""
        rows, columns = (sum(place is not None for place, _ in spans) for spans in (self.rows, self.columns))
        return len(self.facets), rows, columns

    @property
    def is_wrapped(self) -> bool:
        """Whether some label takes more than a line."""
        return any(
            cell_len(label) > width
            for facet in self.cells
            for row in facet
            for (label, _), (_, width) in zip(row, self.columns, strict=True)
        )

    @property
    def holders(self) -> list[Holder]:
        """The devices that hold the cells, in the order of these."""
        return [holder for facet in self.cells for row in facet for _, holder in row if holder is not None]


def arrange(ways: Sequence[Labels], grids: Grids, canvas: Canvas, left_out_lines: int) -> Arrangement:
    """Return which facets, rows and columns are drawn, how large, and what stands in their cells.

    Args:
        ways: How the cells may be labelled, the most telling first, bare ids last.
        grids: What there is to draw.
        canvas: The room for it.
        left_out_lines: How many lines it takes to say what is left out.
    """
    facet_count, row_count, column_count, copies = grids.device_ids.shape
    lines = facet_count * (row_count + 2 + canvas.rule_lines)
    if lines <= canvas.lines and 2 * column_count + 1 <= canvas.max_width and facet_count <= MAX_FACETS:
        short = [ways[-1], *(_letters(grids, ways[-2]) if copies > 1 else [])]
        attempts = [(way, True) for way in (*ways[:-1], *short)] + [(way, False) for way in short]
        wrapped_one: Arrangement | None = None
        for way, is_ruled in attempts:
            whole = _complete(way, is_ruled, grids, canvas)
            if whole and not whole.is_wrapped:
                return whole
            wrapped_one = wrapped_one or whole
        if wrapped_one:
            return wrapped_one
    return _thinned(ways[-1], grids, canvas, left_out_lines, MAX_FACETS)


def _letters(grids: Grids, long: Labels) -> Iterator[Labels]:
    """Yield the way to label each group of devices with a letter, where there are letters for them."""
    groups = dict.fromkeys(_holders(grids.device_ids))
    if 1 < len(groups) <= len(_LETTERS):
        letters = dict(zip(groups, _LETTERS, strict=False))
        notes = tuple(f"{letter}: {long.write(group)}" for group, letter in letters.items())
        yield Labels(lambda devices: letters[tuple(devices)], notes)


def _complete(labels: Labels, is_ruled: bool, grids: Grids, canvas: Canvas) -> Arrangement | None:
    """Return all of the grids, None where they have no room with these labels."""
    facet_count, row_count, column_count, _ = grids.device_ids.shape
    lines = (canvas.lines - canvas.lines_of(labels.notes)) // facet_count - canvas.rule_lines
    cells = _labelled(labels, grids.device_ids)
    widths = fit(
        canvas.column_widths(grids, range(column_count)),
        _widths(cells, _most_width(canvas, column_count)),
        canvas.max_width - column_count - 1,
    )
    if widths is None:
        return None
    heights = fit(
        canvas.row_heights(grids, range(row_count)),
        _heights(cells, widths),
        lines - (row_count + 1 if is_ruled else 2),
    )
    if heights is None:
        return None
    rows: list[Span] = [*enumerate(heights)]
    columns: list[Span] = [*enumerate(widths)]
    return Arrangement(list(range(facet_count)), rows, columns, cells, labels.notes, is_ruled)


def _thinned(
    labels: Labels, grids: Grids, canvas: Canvas, left_out_lines: int, most_facets: int
) -> Arrangement:
    """Return the first and the last facets, rows and columns that have room, with a gap between them."""
    facet_count, row_count, column_count, _ = grids.device_ids.shape
    room = canvas.lines - canvas.lines_of(labels.notes) - left_out_lines
    # A facet wants the first and the last row at least, and more only where all facets have them.
    least = canvas.rule_lines + min(row_count, 3) + 2
    facets = first_and_last(facet_count, min(most_facets, max((room - 1) // least, 2)))
    room -= len(facets) < facet_count
    lines = room // len(facets) - canvas.rule_lines - 2

    some_rows = first_and_last(row_count, max(lines, 2))
    some_columns = first_and_last(column_count, max(canvas.max_width // 2, 2))
    cells = _labelled(labels, grids.device_ids[facets][:, some_rows][:, :, some_columns])
    gap = canvas.marks.skipped_columns
    columns = _spans(
        column_count,
        some_columns,
        canvas.column_widths(grids, some_columns),
        _widths(cells, _most_width(canvas, column_count)),
        canvas.max_width - 1,
        gap=cell_len(gap),
        border=1,
    )
    cells = [[_with_gap(row, some_columns, columns, (gap, None)) for row in facet] for facet in cells]
    tallest = _heights(cells, [width for _, width in columns])
    wished = canvas.row_heights(grids, some_rows)
    rows = _spans(row_count, some_rows, wished, tallest, lines, gap=1, border=0)
    skipped: Cell = (canvas.marks.skipped_rows, None)
    between = [("", None) if place is None else skipped for place, _ in columns]
    cells = [_with_gap(facet, some_rows, rows, between) for facet in cells]
    if sum(height for _, height in rows) > lines and len(facets) > 2:
        # Labels that take several lines make a facet higher than was hoped for.
        return _thinned(labels, grids, canvas, left_out_lines, len(facets) - 1)
    return Arrangement(facets, rows, columns, cells, labels.notes, is_ruled=False)


def _labelled(labels: Labels, device_ids: NDArray[Any]) -> list[list[list[Cell]]]:
    """Return a cell for each list of devices, by facet, row and column."""
    return [
        [[(labels.write(holder), tuple(holder)) for holder in row] for row in facet]
        for facet in device_ids.tolist()
    ]


def _holders(device_ids: NDArray[Any]) -> Iterator[Holder]:
    return map(tuple, device_ids.reshape(-1, device_ids.shape[-1]).tolist())


def _most_width(canvas: Canvas, columns: int) -> int:
    """Return the most that a column takes for its labels, so that the first and the last have room."""
    gap = cell_len(canvas.marks.skipped_columns) + 1 if columns > 2 else 0
    return (canvas.max_width - min(columns, 2) - 1 - gap) // min(columns, 2)


def _widths(cells: list[list[list[Cell]]], most: int) -> list[int]:
    """Return how wide each column must be for its labels, of which the longest are broken."""
    every = zip(*(row for facet in cells for row in facet), strict=True)
    return [min(most, max(cell_len(label) for label, _ in column)) for column in every]


def _heights(cells: list[list[list[Cell]]], widths: Sequence[int]) -> list[int]:
    """Return how many lines each row must have for its labels."""
    return [
        max(len(wrapped(label, width)) for row in rows for (label, _), width in zip(row, widths, strict=True))
        for rows in zip(*cells, strict=True)
    ]


def _spans(
    count: int,
    some: Sequence[int],
    wanted: Sequence[int],
    needed: Sequence[int],
    limit: int,
    *,
    gap: int,
    border: int,
) -> list[Span]:
    """Return all rows or columns, or as many of the first and the last as fit a limit, and the gap between.

    Args:
        count: How many rows or columns there are.
        some: The first and the last of them, at least as many as fit.
        wanted: The size that is wished for each of these, without its border.
        needed: The size that each of these needs.
        limit: The room for all together.
        gap: The size of the gap.
        border: The size of a border.
    """
    if len(some) == count and (sizes := fit(wanted, needed, limit - border * count)):
        return list(zip(some, sizes, strict=True))
    for most in range(min(len(some), count - 1), 1, -1):
        kept = first_and_last(len(some), most)
        if sum(needed[number] + border for number in kept) + gap + border <= limit:
            break
    else:
        kept = first_and_last(len(some), 2)
    spans: list[Span] = [(some[number], needed[number]) for number in kept]
    if len(spans) < count:
        spans.insert(len(spans) - len(spans) // 2, (None, gap))
    return spans


def _with_gap(items: Sequence[_T], some: Sequence[int], spans: Sequence[Span], gap: _T) -> list[_T]:
    """Return the items of the rows or columns that are drawn, with another one in the gap.

    Args:
        items: One for each of ``some``.
        some: Rows or columns.
        spans: Which of them are drawn.
        gap: What stands in the gap.
    """
    item_of = dict(zip(some, items, strict=True))
    return [gap if place is None else item_of[place] for place, _ in spans]
