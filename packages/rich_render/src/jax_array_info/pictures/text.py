"""ShardingLayout → a picture of its shards as grids of boxes, plain or filled with colours.

The size of a cell follows ``jax.debug.visualize_sharding``: an array is ``10 * scale`` lines high and,
since a character is about 2.5 times as high as wide, ``25 * scale * columns / rows`` characters wide;
ratios beyond 8 count by their logarithm. A picture that does not fit is made smaller, then crowded, then
thinned (``arrangement`` says how), and a line below says what is shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from jax_array_info_core import (
    ArrayReport,
    MeshAxes,
    MeshReport,
    ShardingLayout,
    UnsupportedValueError,
    XlaReport,
    flat_grids,
)
from jax_array_info_core.reports.mesh_devices import shared_mesh
from jax_array_info_core.text import plain_text, printable

from .. import style
from .captions import facet_title, footer, heading, left_out, mesh_heading
from .fitting import clipped, wrapped
from .labels import label_ways
from .palette import ColorMap, Holder, holder_styles
from .text_plan import Arrangement, Canvas, Cell, arrange

MAX_LINES = 40
LEAST_WIDTH = 20
MOST_SCALE = 1000
_BORDER = Style(underline=True)
"""Between cells that no rule separates."""


def array_picture(
    layout: ShardingLayout | ArrayReport | XlaReport,
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
        layout: What to draw: a layout, or the report of an array or of a sharding that XLA wrote.
        use_color: Fill the cells with colours, which say where a device stands in the mesh of the report: the
            hue along its largest axis, the lightness along the next. A layout alone has no mesh: there the
            devices go by their ids.
        scale: Factor for the height and width of the cells, and for the 40 lines that a picture may have.
        min_width: Least width of a cell in characters, its border included, where there is room for it.
        max_width: Width of the whole picture in characters, at least 20.
        color_map: Colours to fill with, divided evenly among the shards that are shown.
        encoding: Encoding of the console, which decides on the characters of the boxes.
        mesh: Where the layout is that of a mesh: its axes, which then are named, and the processes with
            them.

    Raises:
        UnsupportedValueError: (a ValueError) the report says of no device what it holds.
        TypeError: ``scale`` or ``max_width`` is no number.
        ValueError: ``scale`` or ``max_width`` leave no room for a picture; ``color_map`` returns no colours.
    """
    report = MeshReport(axes=mesh, layout=layout) if mesh and isinstance(layout, ShardingLayout) else layout
    if not isinstance(layout, ShardingLayout):
        if layout.layout is None:
            raise UnsupportedValueError("it is not known which device holds which part of this array")
        layout = layout.layout
    check_size(scale, max_width)
    layout = replace(layout, platform=layout.platform and printable(layout.platform, encoding))
    canvas = Canvas(scale, min_width, max_width, style.marks(encoding))
    grids = flat_grids(layout)
    if mesh:
        names = [printable(clipped(name), encoding) for name in mesh.names]
        mesh = replace(mesh, types=tuple(printable(kind, encoding) for kind in mesh.types))
        head = mesh_heading(grids, canvas, mesh, names)
    else:
        names = [f"axis {axis}" for axis in range(len(layout.shape))]
        head = heading(layout, grids, canvas)
    foot = footer(layout, max_width, names)

    def rule(facet: int) -> list[str]:
        if not grids.facet_axes:
            return []
        return canvas.rule(", ".join(facet_title(layout, grids, names, facet, is_mesh=mesh is not None)))

    canvas = replace(
        canvas,
        lines=max(MAX_LINES, round(MAX_LINES * scale)) - len(head) - len(foot),
        rule_lines=len(rule(math.prod(grids.facet_counts) - 1)),
    )
    facets, rows, columns = (max(count - 1, 1) for count in grids.device_ids.shape[:-1])
    longest = list(left_out(grids, (facets, rows, columns), names))
    ways = label_ways(layout, max_width, owners=mesh is not None)
    drawn = arrange(ways, grids, canvas, canvas.lines_of(longest))

    looks: dict[Holder, Style] = {}
    if use_color:
        looks = holder_styles(drawn.holders, shared_mesh([report]), color_map)
    lines: list[Text] = list(map(Text, head))
    for before, facet, cells in zip([-1, *drawn.facets], drawn.facets, drawn.cells, strict=False):
        if facet > before + 1:
            lines.append(Text(canvas.marks.skipped_rows.center(max_width).rstrip()))
        lines += map(Text, rule(facet))
        lines += _lines(drawn, cells, canvas.marks, looks)
    for note in [*drawn.notes, *left_out(grids, drawn.shown, names), *foot]:
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


def mesh_picture(
    report: MeshReport, *, use_color: bool = False, max_width: int = 80, encoding: str = "utf-8"
) -> Text:
    """Return the picture of a mesh: its axes named, its devices and processes in their places.

    Args:
        report: The mesh.
        use_color: Fill the cells with colours.
        max_width: Width of the whole picture in characters, at least 20.
        encoding: Encoding of the console, which decides on the characters of the boxes.
    """
    return array_picture(
        report.layout, use_color=use_color, max_width=max_width, encoding=encoding, mesh=report.axes
    )


def _lines(
    drawn: Arrangement, cells: Sequence[Sequence[Cell]], marks: style.Marks, looks: Mapping[Holder, Style]
) -> Iterator[Text]:
    """Yield the lines of a grid: boxes, filled with the styles of their holders."""

    def rule(corners: tuple[str, str, str]) -> Text:
        left, middle, right = corners
        return Text(left + middle.join(marks.horizontal * width for _, width in drawn.columns) + right)

    for number, (row, (_, height)) in enumerate(zip(cells, drawn.rows, strict=True)):
        if number == 0 or drawn.is_ruled:
            yield rule(marks.middle if number else marks.top)
        styles = [looks.get(holder, Style()) if holder else Style() for _, holder in row]
        texts = [
            _centred(wrapped(label, width), width, height)
            for (label, _), (_, width) in zip(row, drawn.columns, strict=True)
        ]
        for line_number, pieces in enumerate(zip(*texts, strict=True)):
            line = Text(marks.vertical)
            is_last = line_number == height - 1 and number < len(cells) - 1
            for piece, look in zip(pieces, styles, strict=True):
                line.append(piece, look + _BORDER if look and is_last and not drawn.is_ruled else look)
                line.append(marks.vertical)
            yield line
    yield rule(marks.bottom)


def _centred(text: Sequence[str], width: int, height: int) -> list[str]:
    """Return the lines of a cell with its text in the middle."""
    above = (height - len(text)) // 2
    lines = []
    for line in text:
        room = width - cell_len(line)
        left = room // 2
        lines.append(" " * left + line + " " * (room - left))
    blank = " " * width
    return [blank] * above + lines + [blank] * (height - above - len(text))
