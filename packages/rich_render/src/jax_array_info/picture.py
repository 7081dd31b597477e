"""ShardingLayout → a picture of its shards as a grid of boxes or coloured cells.

The size of a cell follows ``jax.debug.visualize_sharding``: an array is ``10 * scale`` lines high and,
since a character is about 2.5 times as high as wide, ``25 * scale * columns / rows`` characters wide.
What does not fit is made smaller first, then thinned, and a line below says what is shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from textwrap import wrap

import numpy as np
from rich.color import Color
from rich.style import Style
from rich.text import Text

from jax_array_info_core import Grid, ShardingLayout, flat_grid, format_devices

from . import style

MAX_LINES = 40
_HEIGHT_TO_WIDTH = 2.5

ColorMap = Callable[[float], Sequence[float]]
"""From 0…1 to red, green, blue (and alpha) in 0…1, as matplotlib's colormaps."""

Fitted = list[tuple[int, int]]
"""Which rows or columns are shown, each with its size in characters without borders."""


def array_picture(
    layout: ShardingLayout,
    *,
    use_color: bool = False,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int = 80,
    color_map: ColorMap | None = None,
    encoding: str = "utf-8",
) -> Text:
    """Return the picture of a layout, no line wider than ``max_width``, without a final line break.

    Args:
        layout: What to draw.
        use_color: Fill the cells with colours instead of drawing boxes.
        scale: Factor for the height and width of the cells.
        min_width: Least width of a cell in characters, its border included.
        max_width: Width of the whole picture in characters, at least 5.
        color_map: Colours to fill with, the same for the same devices; a palette of our own when None.
        encoding: Encoding of the console, which decides on the characters of the boxes.

    Raises:
        ValueError: ``scale`` or ``max_width`` leave no room for a picture.
    """
    if not scale > 0 or max_width < 5:
        raise ValueError(f"a picture needs scale > 0 and max_width >= 5, got {scale=} and {max_width=}")
    grid = flat_grid(layout)
    marks = style.marks(encoding)
    border = 0 if use_color else 1
    max_lines = max(MAX_LINES, round(MAX_LINES * scale))

    # Only so many can ever be shown: labels are made for no others.
    some_rows = _spread(len(grid.row_lengths), max_lines)
    some_columns = _spread(len(grid.column_lengths), max_width)
    labels = [
        [format_devices(layout.platform, grid.device_ids[row, column].tolist()) for column in some_columns]
        for row in some_rows
    ]
    widths = [
        _wanted_width(grid, grid.column_lengths[column], scale, min_width, max_width) - 2 * border
        for column in some_columns
    ]
    at_least = min(2, len(some_columns))
    most = (max_width - border * (at_least + 1)) // at_least
    needed = [min(most, max(map(len, column))) for column in zip(*labels, strict=True)]
    columns = _fit(widths, needed, max_width, border)
    cells = [[wrap(row[column], width) for column, width in columns] for row in labels]
    heights = [
        max(1, _wanted_height(grid, grid.row_lengths[row], scale) + (-1 if border else 1))
        for row in some_rows
    ]
    rows = _fit(heights, [max(map(len, row)) for row in cells], max_lines, border)

    filled = [
        [_centred(cell, width, height) for cell, (_, width) in zip(cells[row], columns, strict=True)]
        for row, height in rows
    ]
    if use_color:
        looks = _looks([[labels[row][column] for column, _ in columns] for row, _ in rows], color_map)
        lines = list(_coloured_lines(filled, looks))
    else:
        lines = list(map(Text, _boxed_lines(filled, [width for _, width in columns], marks)))
    lines[:0] = _heading(layout, grid, max_width, marks)
    for note in _notes(grid, len(rows), len(columns)):
        lines += map(Text, wrap(note, max_width))
    return Text("\n", no_wrap=True, overflow="ignore").join(lines)


def _wanted_width(grid: Grid, length: int, scale: float, min_width: int, max_width: int) -> int:
    """Return the width of a column of this length, its border included."""
    down, across = sum(grid.row_lengths), sum(grid.column_lengths)
    array_width = int(int(10 * scale) * across / max(down, 1)) if len(grid.axes) == 2 else 0
    width = int(length / max(across, 1) * array_width * _HEIGHT_TO_WIDTH)
    return min(max(width, min_width), max_width)


def _wanted_height(grid: Grid, length: int, scale: float) -> int:
    """Return the height of a row of this length; a 1-D array is one line high."""
    if len(grid.axes) < 2:
        return 1
    return int(length / max(sum(grid.row_lengths), 1) * int(10 * scale))


def _spread(count: int, most: int) -> list[int]:
    """Return at most so many of ``range(count)``, evenly spread, first and last among them."""
    if count <= most:
        return list(range(count))
    return [round(step * (count - 1) / (most - 1)) for step in range(most)]


def _fit(wanted: Sequence[int], needed: Sequence[int], limit: int, border: int) -> Fitted:
    """Return which rows or columns to show, and their sizes, so that they fit a limit with their borders.

    As large as wanted if that fits; else the largest made smaller, down to what their labels need;
    else as many as fit that, evenly spread. Two are always shown where there are two.
    """
    everything = range(len(wanted))

    def fits(chosen: Sequence[int], cap: int) -> Fitted | None:
        sizes = [max(needed[item], min(wanted[item], cap)) for item in chosen]
        total = sum(sizes) + border * (len(sizes) + 1)
        return list(zip(chosen, sizes, strict=True)) if total <= limit else None

    for cap in range(max(wanted), 0, -1):
        if fitted := fits(everything, cap):
            return fitted
    for count in range(min(len(wanted) - 1, limit), 2, -1):
        if fitted := fits(_spread(len(wanted), count), 0):
            return fitted
    return [(item, needed[item]) for item in _spread(len(wanted), 2)]


def _centred(text: Sequence[str], width: int, height: int) -> list[str]:
    """Return the lines of a cell with its text in the middle."""
    above = (height - len(text)) // 2
    lines = [
        " " * (left := (width - len(line)) // 2) + line + " " * (width - len(line) - left) for line in text
    ]
    blank = " " * width
    return [blank] * above + lines + [blank] * (height - above - len(text))


def _boxed_lines(
    cells: Sequence[Sequence[Sequence[str]]], widths: Sequence[int], marks: style.Marks
) -> Iterator[str]:
    def rule(corners: tuple[str, str, str]) -> str:
        left, middle, right = corners
        return left + middle.join(marks.horizontal * width for width in widths) + right

    for number, row in enumerate(cells):
        yield rule(marks.middle if number else marks.top)
        for pieces in zip(*row, strict=True):
            yield marks.vertical + marks.vertical.join(pieces) + marks.vertical
    yield rule(marks.bottom)


def _coloured_lines(
    cells: Sequence[Sequence[Sequence[str]]], looks: Sequence[Sequence[Style]]
) -> Iterator[Text]:
    for row, row_looks in zip(cells, looks, strict=True):
        for pieces in zip(*row, strict=True):
            yield Text.assemble(*zip(pieces, row_looks, strict=True))


def _looks(labels: Sequence[Sequence[str]], color_map: ColorMap | None) -> list[list[Style]]:
    """Return a style for each cell: the same devices, the same colour."""
    holders = list(dict.fromkeys(label for row in labels for label in row))
    if color_map is None:
        colors = [Color.parse(style.PALETTE[k % len(style.PALETTE)]) for k in range(len(holders))]
    else:
        colors = [_from_map(color_map, position) for position in np.linspace(0, 1, len(holders))]
    looks = {holder: _readable(color) for holder, color in zip(holders, colors, strict=True)}
    return [[looks[label] for label in row] for row in labels]


def _from_map(color_map: ColorMap, position: float) -> Color:
    return Color.from_rgb(*(255 * float(part) for part in list(color_map(float(position)))[:3]))


def _readable(background: Color) -> Style:
    """Return a background with black or white text on it, whichever contrasts more.

    By relative luminance, https://www.w3.org/TR/WCAG21/#dfn-relative-luminance, both contrast alike at 0.179.
    """
    weights = (0.2126, 0.7152, 0.0722)
    linear = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (value / 255 for value in background.get_truecolor())
    )
    luminance = math.fsum(weight * part for weight, part in zip(weights, linear, strict=True))
    return Style(color="black" if luminance > 0.179 else "white", bgcolor=background)


def _heading(layout: ShardingLayout, grid: Grid, width: int, marks: style.Marks) -> Iterable[Text]:
    """Yield a rule that says which axes are shown, where there are others."""
    if len(layout.shape) > 2:
        title = f" showing dims {list(grid.axes)} from original shape {layout.shape} "
        if len(title) <= width - 2:
            left = (width - len(title)) // 2
            yield Text(marks.horizontal * left + title + marks.horizontal * (width - left - len(title)))
        else:
            yield from map(Text, wrap(title.strip(), width))


def _notes(grid: Grid, rows: int, columns: int) -> Iterator[str]:
    """Yield what the picture does not show."""
    thinned = [
        f"{shown} of {len(lengths)} {name}"
        for shown, lengths, name in (
            (rows, grid.row_lengths, "rows"),
            (columns, grid.column_lengths, "columns"),
        )
        if shown < len(lengths)
    ]
    if thinned:
        yield f"showing {', '.join(thinned)}"
    for axis in grid.hidden_axes:
        yield f"axis {axis} is sharded too: a cell names the devices of all its shards"
