"""What of a layout's grids is drawn, how large, and what stands in the cells, so that it fits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from jax_array_info_core import Grids, ShardingLayout, format_devices
from jax_array_info_core.units import printable

from .fitting import Fitted, fit, spread, wrapped
from .style import Marks

MAX_FACETS = 40
_HEIGHT_TO_WIDTH = 2.5
_EXTREME = 8.0
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Canvas:
    """How large a picture is wished for."""

    scale: float
    min_width: int
    max_width: int
    border: int
    marks: Marks

    def column_width(self, grids: Grids, length: int) -> int:
        """Return the width of a column of this length, without its border."""
        down, across = sum(grids.row_lengths), sum(grids.column_lengths)
        width = 0
        if len(grids.axes) == 2 and down and across:
            height = int(10 * self.scale)
            array_width = int(height * _legible(across / down))
            width = int(length / across * array_width * _HEIGHT_TO_WIDTH)
        return min(max(width, self.min_width), self.max_width) - 2 * self.border

    def row_height(self, grids: Grids, length: int) -> int:
        """Return the height of a row of this length, without its border; a 1-D array is one line high."""
        height = 1
        if len(grids.axes) == 2:
            height = int(length / max(sum(grids.row_lengths), 1) * int(10 * self.scale))
        return max(1, height - 1 if self.border else height + 1)

    def rule(self, title: str) -> list[str]:
        """Return a line across the picture with a title in it; the title alone where that is too long."""
        title = f" {title} "
        if cell_len(title) > self.max_width - 2:
            return wrapped(title.strip(), self.max_width)
        left = (self.max_width - cell_len(title)) // 2
        right = self.max_width - cell_len(title) - left
        return [self.marks.horizontal * left + title + self.marks.horizontal * right]


def _legible(ratio: float) -> float:
    """Return a ratio of lengths, compressed by its logarithm where it is extreme."""
    if ratio < 1:
        return 1 / _legible(1 / ratio) if ratio > 0 else 0
    return ratio if ratio <= _EXTREME else _EXTREME * (1 + math.log2(ratio / _EXTREME))


@dataclass(frozen=True, slots=True)
class Arrangement:
    """What is drawn of the grids."""

    facets: list[int]
    rows: Fitted
    columns: Fitted
    labels: list[list[list[str]]]
    """What stands in each cell: by facet, row and column."""
    legend: list[str]

    @property
    def shown(self) -> tuple[int, int, int]:
        """How many facets, rows and columns are drawn."""
        return len(self.facets), len(self.rows), len(self.columns)


class Labeller:
    """Names the devices of a cell."""

    def __init__(self, layout: ShardingLayout, width: int, *, owners: bool) -> None:
        self.platform = layout.platform
        self.width = width
        self.owners = {device: process for process, ids in layout.processes if owners for device in ids}

    def __call__(self, devices: Sequence[int]) -> str:
        """Return the devices' ids, and behind a single one's its process where that is wanted."""
        label = listed_devices(self.platform, devices, self.width)
        return f"{label} p{self.owners[devices[0]]}" if self.owners and len(devices) == 1 else label


def listed_devices(platform: str | None, devices: Sequence[int], width: int) -> str:
    """Return devices' ids, folded; of more than two lines can list, how many and from where to where."""
    platform = platform and printable(platform)
    label = format_devices(platform, devices)
    if len(label) <= 2 * width:
        return label
    return f"{len(devices)} of {format_devices(platform, [min(devices)])}-{max(devices)}"


def arrange(
    labeller: Labeller,
    grids: Grids,
    canvas: Canvas,
    max_lines: int,
    rule_lines: int,
    max_facets: int = MAX_FACETS,
) -> Arrangement:
    """Return which facets, rows and columns are drawn, how large, and what stands in their cells."""
    facet_count, row_count, column_count, copies = grids.device_ids.shape
    # A facet wants two rows at least, and more only where all facets have them.
    least_lines = rule_lines + min(row_count, 2) * (1 + canvas.border) + canvas.border
    facets = spread(facet_count, min(max_facets, max(max_lines // least_lines, 2)))
    facet_lines = max_lines // len(facets) - rule_lines

    # Only so many can ever be shown: labels are made for no others.
    some_rows = spread(row_count, max(facet_lines, 2))
    some_columns = spread(column_count, max(canvas.max_width // 2, 2))

    def labelled(chosen_rows: Sequence[int], chosen_columns: Sequence[int]) -> list[list[list[str]]]:
        cells = grids.device_ids[facets][:, chosen_rows][:, :, chosen_columns].tolist()
        return [[[labeller(cell) for cell in row] for row in facet] for facet in cells]

    def fitted(labels: list[list[list[str]]]) -> tuple[Fitted, Fitted]:
        at_least = min(2, len(some_columns))
        most = (canvas.max_width - canvas.border * (at_least + 1)) // at_least
        rows_of_all = [row for facet in labels for row in facet]
        needed = [min(most, max(map(len, column))) for column in zip(*rows_of_all, strict=True)]
        widths = [canvas.column_width(grids, grids.column_lengths[column]) for column in some_columns]
        columns = fit(widths, needed, canvas.max_width, canvas.border)
        heights = [canvas.row_height(grids, grids.row_lengths[row]) for row in some_rows]
        tallest = [
            max(len(wrapped(facet[row][column], width)) for facet in labels for column, width in columns)
            for row in range(len(some_rows))
        ]
        return fit(heights, tallest, facet_lines, canvas.border), columns

    labels = labelled(some_rows, some_columns)
    rows, columns = fitted(labels)
    letters: dict[str, str] = {}
    if copies > 1 and (len(some_rows), len(some_columns)) == (row_count, column_count):
        crowded = len(columns) < column_count or any(
            len(label) > width
            for facet in labels
            for row in facet
            for label, (_, width) in zip(row, columns, strict=True)
        )
        letters = _lettered(labels) if crowded else {}
        legend_lines = sum(len(wrapped(f"A: {label}", canvas.max_width)) for label in letters)
        room = (max_lines - legend_lines) // len(facets) - rule_lines
        if room < least_lines - rule_lines:
            letters = {}
        elif letters:
            facet_lines = room
    while True:
        labels = [
            [[letters.get(label, label) for label in row] for row in facet]
            for facet in labelled(some_rows, some_columns)
        ]
        rows, columns = fitted(labels)
        if (len(rows), len(columns)) == (len(some_rows), len(some_columns)):
            break
        # Spread anew over all of them, so that what is shown stays even.
        some_rows, some_columns = spread(row_count, len(rows)), spread(column_count, len(columns))
    used = sum(height for _, height in rows) + canvas.border * (len(rows) + 1) + rule_lines
    if used * len(facets) > max_lines and len(facets) > 2:
        # Labels that take several lines make a facet higher than was hoped for.
        return arrange(labeller, grids, canvas, max_lines, rule_lines, len(facets) - 1)
    seen = {label for facet in labels for row in facet for label in row}
    return Arrangement(
        facets,
        [(some_rows[row], height) for row, height in rows],
        [(some_columns[column], width) for column, width in columns],
        labels,
        [f"{letter}: {label}" for label, letter in letters.items() if letter in seen],
    )


def _lettered(labels: list[list[list[str]]]) -> dict[str, str]:
    """Return a letter for each group of devices; none for a single one, or more than there are letters."""
    groups = list(dict.fromkeys(label for facet in labels for row in facet for label in row))
    return dict(zip(groups, _LETTERS, strict=False)) if 1 < len(groups) <= len(_LETTERS) else {}
