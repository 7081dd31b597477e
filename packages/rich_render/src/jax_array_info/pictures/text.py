"""ShardingLayout → a picture of its shards as grids of boxes, plain or filled with colours.

The size of a cell follows ``jax.debug.visualize_sharding``: an array is ``10 * scale`` lines high and,
since a character is about 2.5 times as high as wide, ``25 * scale * columns / rows`` characters wide;
ratios beyond 8 count by their logarithm. A picture that does not fit is made smaller, then crowded, then
thinned (``text_plan`` says how), and a line below says what is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
)
from jax_array_info_core.reports.mesh_devices import shared_mesh
from jax_array_info_core.text import plain_text, printable

from .. import style
from .captions import facet_title, footer, left_out
from .fitting import wrapped
from .labels import label_ways
from .palette import ColorMap, Holder, holder_styles
from .subject import Subject, array_subject, mesh_subject
from .text_plan import Canvas, TextPlan, text_plan

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
    known = layout if isinstance(layout, ShardingLayout) else layout.layout
    if known is None:
        raise UnsupportedValueError("no picture: the device of each shard is not known")
    check_size(scale, max_width)
    known = replace(known, platform=known.platform and printable(known.platform, encoding))
    subject = mesh_subject(known, mesh, encoding) if mesh else array_subject(known)
    marks = style.marks(encoding)
    head, foot = _heading(subject, max_width, marks), footer(subject, max_width)
    *counts, _ = subject.grids.device_ids.shape
    fewer = [max(count - 1, 1) for count in counts]
    canvas = Canvas(
        scale=scale,
        min_width=min_width,
        max_width=max_width,
        lines=max(MAX_LINES, round(MAX_LINES * scale)) - len(head) - len(foot),
        rule_lines=len(_facet_rule(subject, counts[0] - 1, max_width, marks)),
        left_out_lines=len(_wrapped(left_out(subject, fewer), max_width)),
        marks=marks,
    )
    ways = label_ways(known.platform, subject.process_of if mesh else {}, max_width)
    plan = text_plan(ways, subject.grids, canvas)
    looks: dict[Holder, Style] = {}
    if use_color:
        drawn = (
            MeshReport(axes=mesh, layout=layout) if mesh and isinstance(layout, ShardingLayout) else layout
        )
        cells = (holder for facet in plan.holders for row in facet for holder in row)
        looks = holder_styles(cells, shared_mesh([drawn]), color_map)
    notes = _wrapped([*plan.labels.notes, *left_out(subject, plan.shown), *foot], max_width)
    lines = [*map(Text, head), *_facets_lines(subject, plan, canvas, looks), *map(Text, notes)]
    return Text("\n", no_wrap=True, overflow="ignore").join(lines)


def check_size(scale: object, max_width: object) -> None:
    """Raise for what leaves no room for a picture.

    Raises:
        TypeError: these are no numbers.
        ValueError: they are too small, or the scale is too large.
    """
    message = (
        f"scale must be a number above 0, at most {MOST_SCALE}, and max_width an integer, at least"
        f" {LEAST_WIDTH}, got scale={plain_text(scale, repr)} and max_width={plain_text(max_width, repr)}"
    )
    if not isinstance(scale, Real) or not isinstance(max_width, Integral):
        raise TypeError(message)
    # Written so that NaN fails, too.
    if scale <= 0 or not scale <= MOST_SCALE or max_width < LEAST_WIDTH:
        raise ValueError(message)


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


def _heading(subject: Subject, width: int, marks: style.Marks) -> list[str]:
    """Return the axes of a mesh and which of them go where; of an array of many axes, which are shown."""
    axes = subject.grids.axes
    if subject.is_mesh:
        shown = zip([subject.names[axis] for axis in axes], ("down", "across")[-len(axes) :], strict=False)
        directions = ", ".join(f"{name} {where}" for name, where in shown)
        return [*wrapped(subject.caption[0], width), *_rule(directions or "one device", width, marks)]
    shape = subject.layout.shape
    if len(shape) <= 2:
        return []
    return _rule(f"showing dims {list(axes)} from original shape {shape}", width, marks)


def _facet_rule(subject: Subject, facet: int, width: int, marks: style.Marks) -> list[str]:
    """Return the rule over a grid that says which it is, where there are several."""
    title = ", ".join(facet_title(subject, facet, subject.names))
    return _rule(title, width, marks) if title else []


def _rule(title: str, width: int, marks: style.Marks) -> list[str]:
    """Return a line across the picture with a title in it; the title alone where that is too long."""
    room = width - cell_len(title) - 2
    if room < 2:
        return wrapped(title, width)
    left = room // 2
    return [f"{marks.horizontal * left} {title} {marks.horizontal * (room - left)}"]


def _wrapped(notes: Iterable[str], width: int) -> list[str]:
    return [line for note in notes for line in wrapped(note, width)]


def _facets_lines(
    subject: Subject, plan: TextPlan, canvas: Canvas, looks: Mapping[Holder, Style]
) -> Iterator[Text]:
    """Yield the lines of the grids, each under its rule, with a mark where grids are left out."""
    marks, width = canvas.marks, canvas.max_width
    for before, facet in zip([-1, *plan.facets], plan.facets, strict=False):
        if facet > before + 1:
            yield Text(marks.skipped_rows.center(width).rstrip())
        yield from map(Text, _facet_rule(subject, facet, width, marks))
        yield from _grid_lines(plan, facet, marks, looks)


def _grid_lines(
    plan: TextPlan, facet: int, marks: style.Marks, looks: Mapping[Holder, Style]
) -> Iterator[Text]:
    """Yield the lines of a grid: boxes, filled with the styles of their holders."""

    def rule(corners: tuple[str, str, str]) -> Text:
        left, middle, right = corners
        return Text(left + middle.join(marks.horizontal * width for _, width in plan.columns) + right)

    for number, (row, height) in enumerate(plan.rows):
        if number == 0 or plan.is_ruled:
            yield rule(marks.middle if number else marks.top)
        cells = [_cell(plan, facet, row, column, marks) for column, _ in plan.columns]
        styles = [looks.get(holder, Style.null()) for _, holder in cells]
        texts = [
            _centred(wrapped(label, width), width, height)
            for (label, _), (_, width) in zip(cells, plan.columns, strict=True)
        ]
        for line_number, pieces in enumerate(zip(*texts, strict=True), 1):
            line = Text(marks.vertical)
            is_border = line_number == height and number < len(plan.rows) - 1 and not plan.is_ruled
            for piece, look in zip(pieces, styles, strict=True):
                line.append(piece, look + _BORDER if look and is_border else look)
                line.append(marks.vertical)
            yield line
    yield rule(marks.bottom)


def _cell(
    plan: TextPlan, facet: int, row: int | None, column: int | None, marks: style.Marks
) -> tuple[str, Holder]:
    """Return the label of a cell and the devices that hold it; in a gap its mark, and none."""
    if row is None:
        return ("" if column is None else marks.skipped_rows), ()
    if column is None:
        return marks.skipped_columns, ()
    holder = tuple(plan.grids.device_ids[facet, row, column].tolist())
    return plan.labels.write(holder), holder


def _centred(text: Sequence[str], width: int, height: int) -> list[str]:
    """Return the lines of a cell with its text in the middle."""
    above = (height - len(text)) // 2
    lines = [""] * above + [*text] + [""] * (height - above - len(text))
    rooms = [width - cell_len(line) for line in lines]
    return [
        " " * (room // 2) + line + " " * (room - room // 2) for room, line in zip(rooms, lines, strict=True)
    ]
