"""ShardingLayout → a picture of its shards as grids of boxes or coloured cells.

The size of a cell follows ``jax.debug.visualize_sharding``: an array is ``10 * scale`` lines high and,
since a character is about 2.5 times as high as wide, ``25 * scale * columns / rows`` characters wide;
ratios beyond 8 count by their logarithm. What does not fit is made smaller first, then thinned, and a
line below says what is shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from jax_array_info_core import (
    Grids,
    MeshAxes,
    MeshReport,
    ShardingLayout,
    describe_pattern,
    flat_grids,
    format_devices,
)
from jax_array_info_core.units import printable

from . import style
from .fitting import Fitted, fit, spread, wrapped
from .palette import ColorMap, cell_styles

MAX_LINES = 40
LEAST_WIDTH = 20
MAX_PATTERNS = 6
MAX_PROCESS_LINES = 8
PATTERN_FROM = 256
_HEIGHT_TO_WIDTH = 2.5
_EXTREME = 8.0
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def array_picture(
    layout: ShardingLayout,
    *,
    use_color: bool = False,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int = 80,
    color_map: ColorMap | None = None,
    encoding: str = "utf-8",
    mesh: MeshAxes | None = None,
) -> Text:
    """Return the picture of a layout, no line wider than ``max_width``, without a final line break.

    Up to two sharded axes are one grid; of more, there is a grid for each shard of the leading ones,
    in the order in which numpy prints an array, each under a rule that says which.

    Args:
        layout: What to draw.
        use_color: Fill the cells with colours instead of drawing boxes.
        scale: Factor for the height and width of the cells, and for the 40 lines that a picture may have.
        min_width: Least width of a cell in characters, its border included.
        max_width: Width of the whole picture in characters, at least 20.
        color_map: Colours to fill with, the same for the same devices; a palette of our own when None.
        encoding: Encoding of the console, which decides on the characters of the boxes.
        mesh: Where the layout is that of a mesh: its axes, which then are named, and the processes with
            them.

    Raises:
        ValueError: ``scale`` or ``max_width`` leave no room for a picture.
    """
    if not 0 < scale < math.inf or max_width < LEAST_WIDTH:
        wanted = f"a finite scale > 0 and max_width >= {LEAST_WIDTH}"
        raise ValueError(f"a picture needs {wanted}, got {scale=} and {max_width=}")
    canvas = _Canvas(scale, min_width, max_width, 0 if use_color else 1, style.marks(encoding))
    grids = flat_grids(layout)
    if mesh:
        names = [printable(name, encoding) for name in mesh.names]
        head = _mesh_heading(grids, canvas, mesh, names)
    else:
        names = [f"axis {axis}" for axis in range(len(layout.shape))]
        head = _heading(layout, grids, canvas)
    foot = _footer(layout, canvas, names)
    # What is left out is said in about a hundred characters.
    max_lines = max(MAX_LINES, round(MAX_LINES * scale)) - len(head) - len(foot) - -(-100 // max_width)
    rule_lines = 0
    if grids.facet_axes:
        last = _facet_title(layout, grids, names, math.prod(grids.facet_counts) - 1)
        rule_lines = len(canvas.rule(last))
    labeller = _Labeller(layout, max_width, owners=mesh is not None)
    drawn = _choose(labeller, grids, canvas, max_lines, rule_lines)

    lines: list[Text] = list(map(Text, head))
    looks: dict[str, Style] = {}
    if use_color:
        looks = {str(holder): look for holder, look in cell_styles(drawn.labels, color_map).items()}
    for facet, labels in zip(drawn.facets, drawn.labels, strict=True):
        if grids.facet_axes:
            lines += map(Text, canvas.rule(_facet_title(layout, grids, names, facet)))
        cells = [
            [
                _centred(wrapped(label, width), width, height)
                for label, (_, width) in zip(row, drawn.columns, strict=True)
            ]
            for row, (_, height) in zip(labels, drawn.rows, strict=True)
        ]
        if use_color:
            lines += _coloured_lines(cells, [[looks[label] for label in row] for row in labels])
        else:
            lines += map(Text, _boxed_lines(cells, [width for _, width in drawn.columns], canvas.marks))
    for note in [*drawn.legend, *_left_out(grids, drawn, names), *foot]:
        lines += map(Text, wrapped(note, max_width))
    return Text("\n", no_wrap=True, overflow="ignore").join(lines)


def mesh_picture(report: MeshReport, *, max_width: int = 80, encoding: str = "utf-8") -> Text:
    """Return the picture of a mesh: its axes named, its devices and processes in their places.

    Args:
        report: The mesh.
        max_width: Width of the whole picture in characters, at least 20.
        encoding: Encoding of the console, which decides on the characters of the boxes.
    """
    return array_picture(report.layout, max_width=max_width, encoding=encoding, mesh=report.axes)


@dataclass(frozen=True, slots=True)
class _Canvas:
    """How large a picture is wished for."""

    scale: float
    min_width: int
    max_width: int
    border: int
    marks: style.Marks

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
class _Drawn:
    """What is drawn of the grids."""

    facets: list[int]
    rows: Fitted
    columns: Fitted
    labels: list[list[list[str]]]
    """What stands in each cell: by facet, row and column."""
    legend: list[str]


class _Labeller:
    """Names the devices of a cell."""

    def __init__(self, layout: ShardingLayout, width: int, *, owners: bool) -> None:
        self.platform = layout.platform
        self.width = width
        self.owners = {device: process for process, ids in layout.processes if owners for device in ids}

    def __call__(self, devices: Sequence[int]) -> str:
        """Return the devices' ids, and behind a single one's its process where that is wanted."""
        label = _listed(self.platform, devices, self.width)
        return f"{label} p{self.owners[devices[0]]}" if self.owners and len(devices) == 1 else label


def _listed(platform: str | None, devices: Sequence[int], width: int) -> str:
    """Return devices' ids, folded; of more than two lines can list, how many and from where to where."""
    platform = platform and printable(platform)
    label = format_devices(platform, devices)
    if len(label) <= 2 * width:
        return label
    return f"{len(devices)} of {format_devices(platform, [min(devices)])}-{max(devices)}"


def _choose(
    labeller: _Labeller,
    grids: Grids,
    canvas: _Canvas,
    max_lines: int,
    rule_lines: int,
    max_facets: int = MAX_LINES,
) -> _Drawn:
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
        return _choose(labeller, grids, canvas, max_lines, rule_lines, len(facets) - 1)
    seen = {label for facet in labels for row in facet for label in row}
    return _Drawn(
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


def _centred(text: Sequence[str], width: int, height: int) -> list[str]:
    """Return the lines of a cell with its text in the middle."""
    above = (height - len(text)) // 2
    lines = []
    for line in text:
        left = (width - len(line)) // 2
        lines.append(" " * left + line + " " * (width - len(line) - left))
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


def _heading(layout: ShardingLayout, grids: Grids, canvas: _Canvas) -> list[str]:
    """Return the rule that says which axes are shown, where there are others."""
    if len(layout.shape) <= 2:
        return []
    return canvas.rule(f"showing dims {list(grids.axes)} from original shape {layout.shape}")


def _mesh_heading(grids: Grids, canvas: _Canvas, mesh: MeshAxes, names: Sequence[str]) -> list[str]:
    """Return the axes of a mesh, and which of them go where in the picture."""
    types = mesh.types or ("",) * len(names)
    axes = [
        f"{name}={size}" + (f" ({kind})" if kind not in ("", "Auto") else "")
        for name, size, kind in zip(names, mesh.sizes, types, strict=True)
    ]
    shown = [names[axis] for axis in grids.axes]
    directions = [
        f"{name} {where}" for name, where in zip(shown, ("down", "across")[-len(shown) :], strict=False)
    ]
    return [
        *wrapped(f"mesh {', '.join(axes)}", canvas.max_width),
        *canvas.rule(", ".join(directions) or "one device"),
    ]


def _facet_title(layout: ShardingLayout, grids: Grids, names: Sequence[str], facet: int) -> str:
    """Return which part of the leading sharded axes a grid shows: ``axis 0 = 0:16 (1/2)``."""
    pieces = []
    for axis, count in zip(reversed(grids.facet_axes), reversed(grids.facet_counts), strict=True):
        facet, position = divmod(facet, count)
        piece = layout.axis_slice(axis, position)
        pieces.append(f"{names[axis]} = {piece.start}:{piece.stop} ({position + 1}/{count})")
    return ", ".join(reversed(pieces))


def _left_out(grids: Grids, drawn: _Drawn, names: Sequence[str]) -> Iterator[str]:
    """Yield the line that says how much of the picture is shown, where that is not all."""
    facet_count, row_count, column_count, _ = grids.device_ids.shape
    facet_names = f"slices of {', '.join(names[axis] for axis in grids.facet_axes)}"
    thinned = [
        f"{shown} of {count} {name}"
        for shown, count, name in (
            (len(drawn.facets), facet_count, facet_names),
            (len(drawn.rows), row_count, "rows"),
            (len(drawn.columns), column_count, "columns"),
        )
        if shown < count
    ]
    if thinned:
        yield f"showing {', '.join(thinned)}"


def _footer(layout: ShardingLayout, canvas: _Canvas, names: Sequence[str]) -> list[str]:
    """Return what is said below: the processes where there are several, the pattern of many shards."""
    lines = _process_lines(layout, canvas.max_width)
    if math.prod(layout.shard_counts) > PATTERN_FROM:
        patterns = describe_pattern(layout, names)
        lines += patterns[:MAX_PATTERNS]
        if len(patterns) > MAX_PATTERNS:
            lines.append(f"and so on for {len(patterns) - MAX_PATTERNS} more")
    return [piece for line in lines for piece in wrapped(line, canvas.max_width)]


def _process_lines(layout: ShardingLayout, width: int) -> list[str]:
    """Return which devices are whose, several processes a line; thinned where that takes many lines."""
    entries = [
        f"process {process}: {_listed(layout.platform, ids, width)}" for process, ids in layout.processes
    ]
    if not entries:
        return []
    columns = max(1, (width + 2) // (max(map(len, entries)) + 2))
    chosen = [entries[number] for number in spread(len(entries), columns * MAX_PROCESS_LINES)]
    size = max(map(len, chosen))
    lines = [
        "  ".join(entry.ljust(size) for entry in chosen[start : start + columns]).rstrip()
        for start in range(0, len(chosen), columns)
    ]
    if len(chosen) < len(entries):
        lines.append(f"showing {len(chosen)} of {len(entries)} processes")
    return lines
