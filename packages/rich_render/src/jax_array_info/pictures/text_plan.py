"""Sizes, labels and cells of a text picture."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from rich.cells import cell_len

from jax_array_info_core.layouts import Grids

from ..style import Marks, wrapped
from .fitting import Labels, compressed, first_and_last, fit
from .palette import DeviceGroup
from .subject import Frames

MAX_FACETS = 40
_HEIGHT_TO_WIDTH = 2.5
_EXTREME = 8.0
"""Largest true aspect ratio; beyond it, each doubling adds 8."""
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

Span = tuple[int | None, int]
"""Index of a row or column, None for a gap, and its size in characters without borders."""

DeviceGroups = list[list[list[DeviceGroup]]]
"""The devices of each cell, by facet, row and column."""


class Canvas(NamedTuple):
    """The available and the desired size of a picture."""

    scale: float
    min_width: int
    max_width: int
    lines: int
    """Number of lines for the grids and the notes on them."""
    rule_lines: int
    """Number of title lines above each grid."""
    left_out_lines: int
    """Number of lines to reserve for the note of a thinned picture."""
    marks: Marks
    frames: Frames | None
    """Frames round the hosts and slices of a mesh."""

    def rules(self, facets: Sequence[int], rows: Sequence[int], *, is_ruled: bool) -> frozenset[int]:
        """Return the horizontal lines of some grids to draw between some rows: all, or only frames.

        A line has the number of the row below it.
        """
        if is_ruled or self.frames is None:
            return frozenset(rows[1:] if is_ruled else ())
        lines = {line for above, below in pairwise(rows) for line in (above + 1, below)}
        return frozenset(line for line in lines if self.frames.is_framed(facets, line))

    def column_widths(self, grids: Grids, columns: Sequence[int]) -> list[int]:
        """Return the desired widths of some columns, without borders."""
        down, across = sum(grids.row_lengths), sum(grids.column_lengths)
        array_width = 0
        if len(grids.axes) == 2 and down and across:
            array_width = int(int(10 * self.scale) * compressed(across / down, _EXTREME, _EXTREME))
        parts = (grids.column_lengths[column] / max(across, 1) for column in columns)
        widths = (int(part * array_width * _HEIGHT_TO_WIDTH) for part in parts)
        return [min(max(width, self.min_width), self.max_width) - 2 for width in widths]

    def row_heights(self, grids: Grids, rows: Sequence[int]) -> list[int]:
        """Return the desired heights of some rows, without borders; a 1-D array is one line high."""
        if len(grids.axes) < 2:
            return [1 for _ in rows]
        down, height = max(sum(grids.row_lengths), 1), int(10 * self.scale)
        return [max(1, int(grids.row_lengths[row] / down * height) - 1) for row in rows]

    def lines_for_grids(self, labels: Labels) -> int:
        """Return the number of lines for the grids, after the notes of some labels."""
        return self.lines - sum(len(wrapped(note, self.max_width)) for note in labels.notes)

    def most_label_width(self, columns: int) -> int:
        """Return the maximum label width at which the first and last columns fit."""
        ends = min(columns, 2)
        gap = cell_len(self.marks.skipped_columns) + 1 if columns > 2 else 0
        return (self.max_width - ends - 1 - gap) // ends


class TextPlan(NamedTuple):
    """The part of the grids that is drawn, with sizes and labels."""

    grids: Grids
    labels: Labels
    facets: list[int]
    rows: list[Span]
    columns: list[Span]
    rules: frozenset[int] = frozenset()
    """Rows with a line above them."""
    is_wrapped: bool = False
    """Whether any label takes more than one line."""

    @property
    def shown(self) -> tuple[int, int, int]:
        """Number of facets, rows and columns that are drawn."""
        return len(self.facets), len(_places(self.rows)), len(_places(self.columns))

    @property
    def groups(self) -> DeviceGroups:
        """The devices of the cells that are drawn."""
        return self.grids.holders(self.facets, _places(self.rows), _places(self.columns))


def _places(spans: Sequence[Span]) -> list[int]:
    """Return the row or column indices of some spans, without the gap."""
    return [place for place, _ in spans if place is not None]


def text_plan(formats: Sequence[Labels], grids: Grids, canvas: Canvas) -> TextPlan:
    """Return the facets, rows and columns to draw, with their sizes and labels.

    All cells are drawn in the first label format that fits without wrapping, else in the first that fits.
    Formats are tried with rules between rows first, then without. If none fits, the picture is thinned.

    Args:
        formats: Label formats of the cells, the most detailed first, bare ids last.
        grids: The grids to draw.
        canvas: The available space.
    """
    facets, rows, columns, replicas = grids.device_ids.shape
    wrapped_plan = None
    if (
        facets * (rows + 2 + canvas.rule_lines) <= canvas.lines
        and 2 * columns + 1 <= canvas.max_width
        and facets <= MAX_FACETS
    ):
        *long, bare = formats
        short = [bare, *(_letters(grids, long[-1]) if replicas > 1 else [])]
        for labels, is_ruled in [
            *((labels, True) for labels in (*long, *short)),
            *((labels, False) for labels in short),
        ]:
            plan = _unthinned(labels, grids, canvas, is_ruled=is_ruled)
            if plan and not plan.is_wrapped:
                return plan
            wrapped_plan = wrapped_plan or plan
    return wrapped_plan or _thinned(formats[-1], grids, canvas, MAX_FACETS)


def _letters(grids: Grids, long: Labels) -> list[Labels]:
    """Return the label format with a letter for each device list; empty if there are not enough letters."""
    groups = list(
        dict.fromkeys(map(tuple, grids.device_ids.reshape(-1, grids.device_ids.shape[-1]).tolist()))
    )
    if not 1 < len(groups) <= len(_LETTERS):
        return []
    letters = dict(zip(groups, _LETTERS, strict=False))
    notes = tuple(f"{letter}: {long.write(group)}" for group, letter in letters.items())
    return [Labels(letters.__getitem__, notes)]


def _unthinned(labels: Labels, grids: Grids, canvas: Canvas, *, is_ruled: bool) -> TextPlan | None:
    """Return the plan with all cells, None if they do not fit with these labels."""
    facets, rows, columns = map(range, grids.device_ids.shape[:-1])
    groups = grids.holders(facets, rows, columns)
    widths = fit(
        canvas.column_widths(grids, columns),
        _widths(labels, groups, canvas.most_label_width(len(columns))),
        canvas.max_width - len(columns) - 1,
    )
    if widths is None:
        return None
    lines = canvas.lines_for_grids(labels) // len(facets) - canvas.rule_lines
    needed = _heights(labels, groups, widths)
    rules = canvas.rules(facets, rows, is_ruled=is_ruled)
    heights = fit(canvas.row_heights(grids, rows), needed, lines - len(rules) - 2)
    if heights is None:
        return None
    return TextPlan(
        grids=grids,
        labels=labels,
        facets=list(facets),
        rows=[*enumerate(heights)],
        columns=[*enumerate(widths)],
        rules=rules,
        is_wrapped=max(needed) > 1,
    )


def _thinned(labels: Labels, grids: Grids, canvas: Canvas, most_facets: int) -> TextPlan:
    """Return the plan with the first and last facets, rows and columns that fit, and a gap between them."""
    facet_count, row_count, column_count, _ = grids.device_ids.shape
    room = canvas.lines_for_grids(labels) - canvas.left_out_lines
    # Reserve the first and last rows of each facet; the remaining lines go to further rows.
    least = canvas.rule_lines + min(row_count, 3) + 2
    facets = first_and_last(facet_count, min(most_facets, max((room - 1) // least, 2)))
    room -= len(facets) < facet_count
    lines = room // len(facets) - canvas.rule_lines - 2

    some_rows = first_and_last(row_count, max(lines, 2))
    some_columns = first_and_last(column_count, max(canvas.max_width // 2, 2))
    groups = grids.holders(facets, some_rows, some_columns)
    columns = _spans(
        column_count,
        some_columns,
        canvas.column_widths(grids, some_columns),
        _widths(labels, groups, canvas.most_label_width(column_count)),
        canvas.max_width - 1,
        gap=cell_len(canvas.marks.skipped_columns),
        border=1,
    )
    widths = [width for place, width in columns if place is not None]
    needed = _heights(labels, grids.holders(facets, some_rows, _places(columns)), widths)
    heights = canvas.row_heights(grids, some_rows)
    rows = _spans(row_count, some_rows, heights, needed, lines, gap=1, border=0)
    room = lines
    while room > 3 and room + len(canvas.rules(facets, _places(rows), is_ruled=False)) > lines:
        room -= 1
        rows = _spans(row_count, some_rows, heights, needed, room, gap=1, border=0)
    rules = canvas.rules(facets, _places(rows), is_ruled=False)
    if sum(height for _, height in rows) > lines and len(facets) > 2:
        # Wrapped labels make a facet higher than estimated.
        return _thinned(labels, grids, canvas, len(facets) - 1)
    return TextPlan(grids=grids, labels=labels, facets=facets, rows=rows, columns=columns, rules=rules)


def _widths(labels: Labels, groups: DeviceGroups, most: int) -> list[int]:
    """Return the width of each column for its labels; labels over ``most`` characters are wrapped."""
    columns = zip(*(row for facet in groups for row in facet), strict=True)
    return [min(most, max(cell_len(labels.write(group)) for group in column)) for column in columns]


def _heights(labels: Labels, groups: DeviceGroups, widths: Sequence[int]) -> list[int]:
    """Return the number of lines of each row for its labels."""
    return [
        max(
            len(wrapped(labels.write(group), width))
            for row in rows
            for group, width in zip(row, widths, strict=True)
        )
        for rows in zip(*groups, strict=True)
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
    """Return all rows or columns, or as many of the first and last ones as fit, with a gap between them.

    Args:
        count: Number of rows or columns.
        some: Indices of the first and last of them, at least as many as fit.
        wanted: Desired size of each of these, without its border.
        needed: Minimum size of each of these.
        limit: Maximum total size.
        gap: Size of the gap.
        border: Size of a border.
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
