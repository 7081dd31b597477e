"""Text pictures of layouts: shards as grids of boxes, plain or colored.

Sizes follow ``jax.debug.visualize_sharding``: an array is ``10 * scale`` lines high and, since a character is
about 2.5 times as high as wide, ``25 * scale * columns / rows`` characters wide. Ratios beyond 8 are
compressed logarithmically. A picture that does not fit is reduced in steps (see ``text_plan``): smaller
cells, shorter labels, fewer cells. A note below it gives the number of cells that are shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, get_args

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from jax_array_info_core import ShardingLayout
from jax_array_info_core.base.errors import require
from jax_array_info_core.base.text import plain_text, printable
from jax_array_info_core.errors import UnsupportedValueError
from jax_array_info_core.layouts import MeshAxes
from jax_array_info_core.reports import ArrayReport

from .. import style
from ..style import LEAST_WIDTH, wrapped
from .fitting import label_formats
from .palette import ColorMap, DeviceGroup, group_styles
from .subject import Subject, array_subject, facet_title, footer, left_out, mesh_subject
from .text_plan import Canvas, TextPlan, text_plan

if TYPE_CHECKING:
    from jax_array_info_core.reports import MeshReport, XlaReport

MAX_LINES = 40
MOST_SCALE = 1000
_BORDER = Style(underline=True)
"""Style of the last line of a cell with no rule below it."""


def array_picture(
    layout: ShardingLayout | ArrayReport | XlaReport,
    *,
    use_color: bool = False,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int = 80,
    color_map: ColorMap | None = None,
    encoding: str = "utf-8",
    mesh: Any = None,
    has_ranges: bool = False,
) -> Text:
    """Return a text picture of a layout, at most ``max_width`` characters wide, without a final newline.

    With at most two sharded axes, the picture is one grid. With more, there is one titled grid for each
    position along the leading sharded axes, in the order in which NumPy prints an array.

    Args:
        layout: A layout, or the report of an array or of an XLA sharding.
        use_color: Whether to fill the cells with colors that show the position of a device in the mesh: the
            hue follows the largest axis, the lightness the second largest. The mesh of a
            ``ShardingLayout`` is not known, so its cells are colored by device id.
        scale: Factor for the height and width of the cells. A factor above 1 also raises the limit of 40
            lines.
        min_width: Minimum width of a cell in characters, including its borders, if there is room.
        max_width: Maximum width of the picture in characters, at least 20.
        color_map: Function from a number between 0 and 1 to red, green and blue, each between 0 and 1. The
            shards shown take evenly spaced colors from it.
        encoding: Encoding of the console. If it lacks box-drawing characters, boxes are drawn in ASCII.
        mesh: The mesh, its axes or its report, if the layout is that of a mesh. The picture then names the
            axes and shows the processes.
        has_ranges: Whether to write the indices of each row and column at the edges, where there is room.

    Raises:
        UnsupportedValueError: (a ValueError) If the report has no device layout.
        TypeError: If ``scale`` is not a number, ``max_width`` is not an integer, or ``color_map`` is not
            callable.
        ValueError: If ``scale`` or ``max_width`` is out of range, or ``color_map`` does not return colors.

    >>> from jax_array_info import spec_layout
    >>> print(array_picture(spec_layout((8,), {"x": 2}, ("x",))))
    ┌────────┬────────┐
    │device 0│device 1│
    └────────┴────────┘
    """
    if not isinstance(layout, ShardingLayout | ArrayReport):
        from jax_array_info_core.facts.reports.mesh import Placed  # arrays do not need it

        require(layout, get_args(Placed), "a layout or the report of an array, which array_report returns")
    known = layout if isinstance(layout, ShardingLayout) else layout.layout
    if known is None:
        raise UnsupportedValueError(
            "no picture: the sharding does not say which device holds each shard. Use a NamedSharding"
        )
    check_size(scale, max_width)
    known = replace(
        known,
        platform=known.platform and printable(known.platform, encoding),
        unreduced=tuple(printable(name, encoding) for name in known.unreduced),
    )
    report = _mesh_of(mesh, known)
    subject = mesh_subject(report, encoding) if report else array_subject(known)
    marks = style.marks(encoding)
    head = _heading(subject, max_width, marks)
    notes = footer(subject, max_width, *(marks.horizontals[1:] if report else ()))
    foot = [note.replace("×", marks.times) for note in notes]
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
        frames=subject.frames if report else None,
    )
    formats = label_formats(known.platform, subject.process_of if report else {}, max_width)
    plan = text_plan(formats, subject.grids, canvas)
    looks: dict[DeviceGroup, Style] = {}
    if use_color:
        from jax_array_info_core.facts.reports.mesh import shared_mesh

        cells = (group for facet in plan.groups for row in facet for group in row)
        looks = group_styles(cells, shared_mesh([report or layout]), color_map)
    below = _wrapped([*plan.labels.notes, *left_out(subject, plan.shown), *foot], max_width)
    lines = [*map(Text, head), *_facets_lines(subject, plan, canvas, looks, has_ranges), *map(Text, below)]
    return Text("\n", no_wrap=True, overflow="ignore").join(lines)


def _mesh_of(mesh: Any, layout: ShardingLayout) -> MeshReport | None:
    """Return the report of a mesh with the given layout; None without a mesh."""
    if mesh is None:
        return None
    from jax_array_info_core import mesh_report
    from jax_array_info_core.reports import MeshReport

    if isinstance(mesh, MeshAxes):
        return MeshReport(axes=mesh, layout=layout)

    return replace(mesh if isinstance(mesh, MeshReport) else mesh_report(mesh), layout=layout)


def check_size(scale: object, max_width: object) -> None:
    """Check that ``scale`` and ``max_width`` leave room for a picture.

    Raises:
        TypeError: If either is not a number.
        ValueError: If either is too small, or ``scale`` too large.
    """
    wanted = f"scale must be a number above 0 and at most {MOST_SCALE}, got {plain_text(scale, repr)}"
    if not isinstance(scale, Real):
        raise TypeError(wanted)
    if scale <= 0 or not scale <= MOST_SCALE:  # in this form, NaN is rejected, too
        raise ValueError(wanted)
    wanted = f"max_width must be an integer of at least {LEAST_WIDTH}, got {plain_text(max_width, repr)}"
    if not isinstance(max_width, Integral):
        raise TypeError(wanted)
    if max_width < LEAST_WIDTH:
        raise ValueError(wanted)


def _heading(subject: Subject, width: int, marks: style.Marks) -> list[str]:
    """Return the lines above the grids: the axes of a mesh, or the axes shown of an array of over two."""
    axes = subject.grids.axes
    if subject.is_mesh:
        shown = zip([subject.names[axis] for axis in axes], ("down", "across")[-len(axes) :], strict=False)
        directions = ", ".join(f"{name} {direction}" for name, direction in shown)
        return [*_wrapped(subject.caption, width), *_rule(directions or "one device", width, marks)]
    shape = subject.layout.shape
    if len(shape) <= 2:
        return []
    return _rule(f"showing dims {list(axes)} from original shape {shape}", width, marks)


def _facet_rule(subject: Subject, facet: int, width: int, marks: style.Marks) -> list[str]:
    """Return the titled rule above a grid; empty if there is only one grid."""
    title = ", ".join(facet_title(subject, facet, subject.names))
    return _rule(title, width, marks) if title else []


def _rule(title: str, width: int, marks: style.Marks) -> list[str]:
    """Return a horizontal rule with a title in the middle, or only the title if it is too long."""
    room = width - cell_len(title) - 2
    if room < 2:
        return wrapped(title, width)
    before = room // 2
    return [f"{marks.horizontal * before} {title} {marks.horizontal * (room - before)}"]


def _wrapped(notes: Iterable[str], width: int) -> list[str]:
    return [line for note in notes for line in wrapped(note, width)]


def _facets_lines(
    subject: Subject, plan: TextPlan, canvas: Canvas, looks: Mapping[DeviceGroup, Style], has_ranges: bool
) -> Iterator[Text]:
    """Yield the lines of the grids, each below its title, with a mark in place of omitted grids."""
    across, down = _ranges(subject, plan, canvas.max_width) if has_ranges else ("", [""] * len(plan.rows))
    marks, width = canvas.marks, canvas.max_width
    for before, facet in zip([-1, *plan.facets], plan.facets, strict=False):
        if facet > before + 1:
            yield Text(marks.skipped_rows.center(width).rstrip())
        yield from map(Text, _facet_rule(subject, facet, width, marks))
        if across:
            yield Text(across)
        yield from _grid_lines(plan, facet, canvas, looks, down)


def _ranges(subject: Subject, plan: TextPlan, most: int) -> tuple[str, list[str]]:
    """Return the indices of all columns as a line, and those of each row; empty where they do not fit.

    Args:
        subject: The array.
        plan: The part that is drawn.
        most: Maximum line length.
    """
    if not subject.grids.axes:
        return "", [""] * len(plan.rows)
    *above, last = subject.grids.axes

    def words(axis: int, shard: int | None) -> str:
        piece = None if shard is None else subject.layout.axis_slice(axis, shard)
        return "" if piece is None else f"{piece.start}:{piece.stop}"

    columns = [(words(last, column), width) for column, width in plan.columns]
    fits = all(len(text) <= width for text, width in columns)
    across = "".join(f" {text.center(width)}" for text, width in columns).rstrip() if fits else ""
    down = [f" {words(above[-1], row)}" if above and row is not None else "" for row, _ in plan.rows]
    room = most - sum(width + 1 for _, width in plan.columns) - 1
    return across, down if max(map(len, down)) <= room else [""] * len(down)


def _grid_lines(
    plan: TextPlan, facet: int, canvas: Canvas, looks: Mapping[DeviceGroup, Style], ranges: Sequence[str]
) -> Iterator[Text]:
    """Yield the lines of a grid: boxes in the styles of their devices, with the indices of each row."""
    lines = _Lines(plan, facet, canvas)
    for number, (row, height) in enumerate(plan.rows):
        if number == 0:
            yield lines.rule(0, 0)
        elif plan.rows[number - 1][0] is None and row in plan.rules:
            assert row is not None
            yield lines.rule(1, row)
        cells = [_cell(plan, facet, row, column, canvas.marks) for column, _ in plan.columns]
        styles = [looks.get(group, Style.null()) for _, group in cells]
        texts = [
            _centered(wrapped(label, width), width, height)
            for (label, _), (_, width) in zip(cells, plan.columns, strict=True)
        ]
        has_rule = row is not None and row + 1 in plan.rules
        verticals = lines.verticals(number)
        for line_number, pieces in enumerate(zip(*texts, strict=True), 1):
            line = Text(verticals[0])
            is_border = line_number == height and number < len(plan.rows) - 1 and not has_rule
            for piece, look, vertical in zip(pieces, styles, verticals[1:], strict=True):
                line.append(piece, look + _BORDER if look and is_border else look)
                line.append(vertical)
            yield line.append(ranges[number] if line_number == height // 2 + 1 else "")
        if has_rule and row is not None:
            yield lines.rule(1, row + 1)
    yield lines.rule(2, plan.grids.device_ids.shape[1])


class _Lines:
    """The lines of a grid, heavy round hosts and double round slices."""

    def __init__(self, plan: TextPlan, facet: int, canvas: Canvas) -> None:
        self.plan, self.facet, self.marks, self.frames = plan, facet, canvas.marks, canvas.frames
        columns = [column for column, _ in plan.columns]
        self.edges = [_edge(columns, number) for number in range(len(columns) + 1)]

    def weights(self, row: int) -> list[int]:
        """Return the weights of the vertical lines that are drawn in a row."""
        if self.frames is None:
            return [0] * len(self.edges)
        weights = self.frames.across(self.facet, row)
        return [weights[edge] for edge in self.edges]

    def verticals(self, number: int) -> list[str]:
        """Return the vertical lines of a row that is drawn; a gap has those of the row before it."""
        row, _ = self.plan.rows[number]
        if row is None:
            row = self.plan.rows[number - 1][0]
        return [self.marks.verticals[weight] for weight in self.weights(row or 0)]

    def rule(self, part: int, line: int) -> Text:
        """Return a horizontal line: the first (part 0), one between rows (1) or the last (2)."""
        verticals = self.weights(min(line, self.plan.grids.device_ids.shape[1] - 1))
        if self.frames is None:
            across = [0] * len(self.plan.columns)
        else:
            down = self.frames.down(self.facet, line)
            across = [down[column or 0] for column, _ in self.plan.columns]
            if part == 1:
                verticals = list(map(max, verticals, self.weights(line - 1)))
        text = ""
        for number, vertical in enumerate(verticals):
            beside = across[max(number - 1, 0) : number + 1]
            corner = 3 * part + (0 if number == 0 else 2 if number == len(across) else 1)
            text += self.marks.boxes[vertical, max(beside)][corner]
            if number < len(across):
                text += self.marks.horizontals[across[number]] * self.plan.columns[number][1]
        return Text(text)


def _edge(columns: Sequence[int | None], number: int) -> int:
    """Return the line of a grid that is drawn before a column, or after the last one."""
    if number < len(columns) and (column := columns[number]) is not None:
        return column
    # Before a gap, or at the end: the line after the column before it.
    before = columns[number - 1]
    assert before is not None
    return before + 1


def _cell(
    plan: TextPlan, facet: int, row: int | None, column: int | None, marks: style.Marks
) -> tuple[str, DeviceGroup]:
    """Return the label and the devices of a cell; for a gap, its mark and no devices."""
    if row is None:
        return ("" if column is None else marks.skipped_rows), ()
    if column is None:
        return marks.skipped_columns, ()
    group = tuple(plan.grids.device_ids[facet, row, column].tolist())
    return plan.labels.write(group), group


def _centered(text: Sequence[str], width: int, height: int) -> list[str]:
    """Return the lines of a cell with its text centered."""
    above = (height - len(text)) // 2
    lines = [""] * above + [*text] + [""] * (height - above - len(text))
    rooms = [width - cell_len(line) for line in lines]
    return [
        " " * (room // 2) + line + " " * (room - room // 2) for room, line in zip(rooms, lines, strict=True)
    ]
