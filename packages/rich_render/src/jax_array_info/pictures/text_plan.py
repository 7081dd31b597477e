"""The part of a layout's grids that a text draws, its size in characters, and the labels of its cells.

A crowded picture names the platform once and shows bare ids, or letters for long lists of devices. If that is
still too large, it drops the rules between rows. Last, it leaves out rows, columns and facets in the middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from jax_array_info_core import Grids

from ..style import Marks
from .fitting import compressed, first_and_last, fit, wrapped
from .labels import Labels
from .palette import Holder

MAX_FACETS = 40
_HEIGHT_TO_WIDTH = 2.5
_EXTREME = 8.0
"""Ratios of length and width beyond this one are compressed: twice as extreme is 8 more."""
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

Span = tuple[int | None, int]
"""A row or a column, with its size in characters without borders; None is the gap of those left out."""

Holders = list[list[list[Holder]]]
"""The devices that hold each cell, by facet, row and column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Canvas:
    """The room that the grids of a picture have, and how large it is wished for."""

    scale: float
    min_width: int
    max_width: int
    lines: int
    """How many lines there are for the grids and what is said of them."""
    rule_lines: int
    """How many of them are over each grid."""
    left_out_lines: int
    """How many of them say what is left out, where something is."""
    marks: Marks

    def column_widths(self, grids: Grids, columns: Sequence[int]) -> list[int]:
        """Return the widths that are wished for some columns, without borders."""
        down, across = sum(grids.row_lengths), sum(grids.column_lengths)
        array_width = 0
        if len(grids.axes) == 2 and down and across:
            array_width = int(int(10 * self.scale) * compressed(across / down, _EXTREME, _EXTREME))
        parts = (grids.column_lengths[column] / max(across, 1) for column in columns)
        widths = (int(part * array_width * _HEIGHT_TO_WIDTH) for part in parts)
        return [min(max(width, self.min_width), self.max_width) - 2 for width in widths]

    def row_heights(self, grids: Grids, rows: Sequence[int]) -> list[int]:
        """Return the heights that are wished for some rows, without borders; a 1-D array is one line high."""
        if len(grids.axes) < 2:
            return [1 for _ in rows]
        down, height = max(sum(grids.row_lengths), 1), int(10 * self.scale)
        return [max(1, int(grids.row_lengths[row] / down * height) - 1) for row in rows]

    def lines_for_grids(self, labels: Labels) -> int:
        """Return how many lines are left for the grids under the notes of some labels."""
        return self.lines - sum(len(wrapped(note, self.max_width)) for note in labels.notes)

    def most_label_width(self, columns: int) -> int:
        """Return the most that a column takes for its labels, so that the first and the last have room."""
        ends = min(columns, 2)
        gap = cell_len(self.marks.skipped_columns) + 1 if columns > 2 else 0
        return (self.max_width - ends - 1 - gap) // ends


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPlan:
    """What is drawn of the grids, and how large."""

    grids: Grids
    labels: Labels
    facets: list[int]
    rows: list[Span]
    columns: list[Span]
    is_ruled: bool = False
    """Whether there are rules between the rows."""
    is_wrapped: bool = False
    """Whether some label takes more than a line."""

    @property
    def shown(self) -> tuple[int, int, int]:
        """How many facets, rows and columns are drawn."""
        return len(self.facets), len(_places(self.rows)), len(_places(self.columns))

    @property
    def holders(self) -> Holders:
        """The devices that hold the cells."""
        return self.grids.holders(self.facets, _places(self.rows), _places(self.columns))


def _places(spans: Sequence[Span]) -> list[int]:
    """Return the rows or columns of some spans, without the gap."""
    return [place for place, _ in spans if place is not None]


def text_plan(ways: Sequence[Labels], grids: Grids, canvas: Canvas) -> TextPlan:
    """Return which facets, rows and columns are drawn, how large, and how their cells are labelled.

    All of them, labelled in the first way in which no label is broken, else in the first that has room; with
    rules between rows before without. Where no way has room, the first and the last.

    Args:
        ways: How the cells may be labelled, the most telling first, bare ids last.
        grids: What there is to draw.
        canvas: The room for it.
    """
    facets, rows, columns, copies = grids.device_ids.shape
    broken = None
    if (
        facets * (rows + 2 + canvas.rule_lines) <= canvas.lines
        and 2 * columns + 1 <= canvas.max_width
        and facets <= MAX_FACETS
    ):
        *long, bare = ways
        short = [bare, *(_letters(grids, long[-1]) if copies > 1 else [])]
        for labels, is_ruled in [*((way, True) for way in (*long, *short)), *((way, False) for way in short)]:
            whole = _whole(labels, grids, canvas, is_ruled=is_ruled)
            if whole and not whole.is_wrapped:
                return whole
            broken = broken or whole
    return broken or _thinned(ways[-1], grids, canvas, MAX_FACETS)


def _letters(grids: Grids, long: Labels) -> list[Labels]:
    """Return the way to label each group of devices with a letter, where there are letters for them."""
    groups = list(
        dict.fromkeys(map(tuple, grids.device_ids.reshape(-1, grids.device_ids.shape[-1]).tolist()))
    )
    if not 1 < len(groups) <= len(_LETTERS):
        return []
    letters = dict(zip(groups, _LETTERS, strict=False))
    notes = tuple(f"{letter}: {long.write(group)}" for group, letter in letters.items())
    return [Labels(letters.__getitem__, notes)]


def _whole(labels: Labels, grids: Grids, canvas: Canvas, *, is_ruled: bool) -> TextPlan | None:
    """Return all of the grids, None where they have no room with these labels."""
    facets, rows, columns = map(range, grids.device_ids.shape[:-1])
    holders = grids.holders(facets, rows, columns)
    widths = fit(
        canvas.column_widths(grids, columns),
        _widths(labels, holders, canvas.most_label_width(len(columns))),
        canvas.max_width - len(columns) - 1,
    )
    if widths is None:
        return None
    lines = canvas.lines_for_grids(labels) // len(facets) - canvas.rule_lines
    needed = _heights(labels, holders, widths)
    heights = fit(canvas.row_heights(grids, rows), needed, lines - (len(rows) + 1 if is_ruled else 2))
    if heights is None:
        return None
    return TextPlan(
        grids=grids,
        labels=labels,
        facets=list(facets),
        rows=[*enumerate(heights)],
        columns=[*enumerate(widths)],
        is_ruled=is_ruled,
        is_wrapped=max(needed) > 1,
    )


def _thinned(labels: Labels, grids: Grids, canvas: Canvas, most_facets: int) -> TextPlan:
    """Return the first and the last facets, rows and columns that have room, with a gap between them."""
    facet_count, row_count, column_count, _ = grids.device_ids.shape
    room = canvas.lines_for_grids(labels) - canvas.left_out_lines
    # A facet wants the first and the last row at least, and more only where all facets have them.
    least = canvas.rule_lines + min(row_count, 3) + 2
    facets = first_and_last(facet_count, min(most_facets, max((room - 1) // least, 2)))
    room -= len(facets) < facet_count
    lines = room // len(facets) - canvas.rule_lines - 2

    some_rows = first_and_last(row_count, max(lines, 2))
    some_columns = first_and_last(column_count, max(canvas.max_width // 2, 2))
    holders = grids.holders(facets, some_rows, some_columns)
    columns = _spans(
        column_count,
        some_columns,
        canvas.column_widths(grids, some_columns),
        _widths(labels, holders, canvas.most_label_width(column_count)),
        canvas.max_width - 1,
        gap=cell_len(canvas.marks.skipped_columns),
        border=1,
    )
    widths = [width for place, width in columns if place is not None]
    needed = _heights(labels, grids.holders(facets, some_rows, _places(columns)), widths)
    rows = _spans(row_count, some_rows, canvas.row_heights(grids, some_rows), needed, lines, gap=1, border=0)
    if sum(height for _, height in rows) > lines and len(facets) > 2:
        # Labels that take several lines make a facet higher than was hoped for.
        return _thinned(labels, grids, canvas, len(facets) - 1)
    return TextPlan(grids=grids, labels=labels, facets=facets, rows=rows, columns=columns)


def _widths(labels: Labels, holders: Holders, most: int) -> list[int]:
    """Return how wide each column must be for its labels, of which the longest are broken."""
    columns = zip(*(row for facet in holders for row in facet), strict=True)
    return [min(most, max(cell_len(labels.write(holder)) for holder in column)) for column in columns]


def _heights(labels: Labels, holders: Holders, widths: Sequence[int]) -> list[int]:
    """Return how many lines each row must have for its labels."""
    return [
        max(
            len(wrapped(labels.write(holder), width))
            for row in rows
            for holder, width in zip(row, widths, strict=True)
        )
        for rows in zip(*holders, strict=True)
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
    most = max(min(len(some), count - 1), 2)
    kept = first_and_last(len(some), most)
    while most > 2 and sum(needed[number] + border for number in kept) + gap + border > limit:
        most -= 1
        kept = first_and_last(len(some), most)
    spans: list[Span] = [(some[number], needed[number]) for number in kept]
    if len(spans) < count:
        spans.insert(len(spans) - len(spans) // 2, (None, gap))
    return spans
