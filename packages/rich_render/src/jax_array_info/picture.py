"""ShardingLayout → a picture of its shards as grids of boxes or coloured cells.

The size of a cell follows ``jax.debug.visualize_sharding``: an array is ``10 * scale`` lines high and,
since a character is about 2.5 times as high as wide, ``25 * scale * columns / rows`` characters wide;
ratios beyond 8 count by their logarithm. What does not fit is made smaller first, then thinned, and a
line below says what is shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from numbers import Integral, Real

from rich.style import Style
from rich.text import Text

from jax_array_info_core import (
    ArrayReport,
    MeshAxes,
    MeshReport,
    ShardingLayout,
    UnsupportedValueError,
    flat_grids,
)
from jax_array_info_core.units import plain_text, printable

from . import style
from .arrangement import Canvas, Labeller, arrange
from .captions import facet_title, footer, heading, left_out, mesh_heading
from .fitting import wrapped
from .palette import ColorMap, cell_styles

MAX_LINES = 40
LEAST_WIDTH = 20
MOST_SCALE = 1000


def array_picture(
    layout: ShardingLayout | ArrayReport,
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
        layout: What to draw: a layout, or the report of an array.
        use_color: Fill the cells with colours instead of drawing boxes.
        scale: Factor for the height and width of the cells, and for the 40 lines that a picture may have.
        min_width: Least width of a cell in characters, its border included.
        max_width: Width of the whole picture in characters, at least 20.
        color_map: Colours to fill with, the same for the same devices; a palette of our own when None.
        encoding: Encoding of the console, which decides on the characters of the boxes.
        mesh: Where the layout is that of a mesh: its axes, which then are named, and the processes with
            them.

    Raises:
        UnsupportedValueError: (a ValueError) the report says of no device what it holds.
        TypeError: ``scale`` or ``max_width`` is no number.
        ValueError: ``scale`` or ``max_width`` leave no room for a picture; ``color_map`` returns no colours.
    """
    if isinstance(layout, ArrayReport):
        if layout.layout is None:
            raise UnsupportedValueError("it is not known which device holds which part of this array")
        layout = layout.layout
    check_size(scale, max_width)
    layout = replace(layout, platform=layout.platform and printable(layout.platform, encoding))
    canvas = Canvas(scale, min_width, max_width, 0 if use_color else 1, style.marks(encoding))
    grids = flat_grids(layout)
    if mesh:
        names = [printable(name, encoding) for name in mesh.names]
        mesh = replace(mesh, types=tuple(printable(kind, encoding) for kind in mesh.types))
        head = mesh_heading(grids, canvas, mesh, names)
    else:
        names = [f"axis {axis}" for axis in range(len(layout.shape))]
        head = heading(layout, grids, canvas)
    foot = footer(layout, max_width, names)
    # What is left out is said in about a hundred characters.
    max_lines = max(MAX_LINES, round(MAX_LINES * scale)) - len(head) - len(foot) - -(-100 // max_width)

    def rule(facet: int) -> list[str]:
        return canvas.rule(", ".join(facet_title(layout, grids, names, facet, is_mesh=mesh is not None)))

    rule_lines = len(rule(math.prod(grids.facet_counts) - 1)) if grids.facet_axes else 0
    labeller = Labeller(layout, max_width, owners=mesh is not None)
    drawn = arrange(labeller, grids, canvas, max_lines, rule_lines)
    if labeller.owners and any(left_out(grids, drawn.shown, names)):
        # The processes stand below as well: rather all devices than some with their process.
        narrow = arrange(Labeller(layout, max_width, owners=False), grids, canvas, max_lines, rule_lines)
        drawn = drawn if any(left_out(grids, narrow.shown, names)) else narrow

    lines: list[Text] = list(map(Text, head))
    looks: dict[str, Style] = {}
    if use_color:
        looks = {str(holder): look for holder, look in cell_styles(drawn.labels, color_map).items()}
    for facet, labels in zip(drawn.facets, drawn.labels, strict=True):
        if grids.facet_axes:
            lines += map(Text, rule(facet))
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
    for note in [*drawn.legend, *left_out(grids, drawn.shown, names), *foot]:
        lines += map(Text, wrapped(note, max_width))
    return Text("\n", no_wrap=True, overflow="ignore").join(lines)


def check_size(scale: object, max_width: object) -> None:
    """Raise for what leaves no room for a picture.

    Raises:
        TypeError: these are no numbers.
        ValueError: they are too small, or the scale is too large.
    """
    said = (
        f"a picture needs a finite scale > 0 and max_width >= {LEAST_WIDTH}, got "
        f"scale={plain_text(scale, repr)} and max_width={plain_text(max_width, repr)}; "
        f"the largest scale is {MOST_SCALE}"
    )
    if not isinstance(scale, Real) or not isinstance(max_width, Integral):
        raise TypeError(said)
    # NaN is neither of the two.
    if scale <= 0 or not scale <= MOST_SCALE or max_width < LEAST_WIDTH:
        raise ValueError(said)


def mesh_picture(report: MeshReport, *, max_width: int = 80, encoding: str = "utf-8") -> Text:
    """Return the picture of a mesh: its axes named, its devices and processes in their places.

    Args:
        report: The mesh.
        max_width: Width of the whole picture in characters, at least 20.
        encoding: Encoding of the console, which decides on the characters of the boxes.
    """
    return array_picture(report.layout, max_width=max_width, encoding=encoding, mesh=report.axes)


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
